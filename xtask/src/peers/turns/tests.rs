use super::*;

#[test]
fn they_take_turns_and_the_first_ones_do_not_count() {
    let order = std::cell::RefCell::new(String::new());
    let run = |name: char, times: &std::cell::Cell<f64>| {
        order.borrow_mut().push(name);
        times.set(times.get() + 1.0);
        Ok(times.get())
    };
    let (a, b) = (std::cell::Cell::new(0.0), std::cell::Cell::new(0.0));
    let (of_a, of_b) = turns(2, || run('a', &a), || run('b', &b)).unwrap();
    assert_eq!(order.into_inner(), "ab abba abba".replace(' ', ""));
    assert_eq!((of_a.best(), of_a.worst(), of_b.0.len()), (2.0, 5.0, 4));
}
