use super::*;

fn pass(values: &[&str], name: &str, rel: f64, max_abs: f64) -> bool {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    Criteria::new(&values).unwrap().unwrap().pass(name, Distance { rel, max_abs, mean_abs: max_abs / 2.0 }).unwrap()
}

#[test]
fn conditions_are_those_of_the_comparator() {
    assert!(pass(&["0.0085"], "x", 0.0085, 9.0) && !pass(&["0.0085"], "x", 0.0086, 0.0));
    assert!(!pass(&["1e3"], "x", f64::NAN, 0.0));
    let two = [".*expert.*", "rel <= 0.01 or max_abs<=1e-3", ".*", "rel<1e-3 and mean_abs < 1"];
    assert!(pass(&two, "l.expert.1", 0.5, 1e-3) && pass(&two, "l.expert.1", 0.01, 5.0));
    assert!(!pass(&two, "l.expert.1", 0.02, 2e-3));
    assert!(!pass(&two, "other", 1e-3, 0.0) && pass(&two, "other", 9e-4, 1.5) && !pass(&two, "other", 9e-4, 2.0));
    assert!(pass(&[".*", "(rel < 1 or rel > 2) and max_abs >= 3"], "x", 3.0, 3.0));
    assert!(!pass(&[".*", "rel < 1 or rel > 2 and max_abs >= 3"], "x", 3.0, 2.0));
}

#[test]
fn what_is_not_read_is_refused() {
    let new = |values: &[&str]| Criteria::new(&values.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert!(new(&[]).unwrap().is_none());
    for bad in [
        &["x"][..],
        &["a", "rel <= 1", "b"],
        &[".*", "rell <= 1"],
        &[".*", "rel"],
        &[".*", "(rel < 1"],
        &[".*", "rel = 1"],
    ] {
        assert_eq!(new(bad).unwrap_err().exit, 2, "{bad:?}");
    }
    let some = new(&["a", "rel <= 1", "b", "rel <= 1"]).unwrap().unwrap();
    assert_eq!(some.pass("c", Distance { rel: 0.0, max_abs: 0.0, mean_abs: 0.0 }).unwrap_err().exit, 2);
}
