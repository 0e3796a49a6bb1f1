//! Orders of an all-reduce, on sums that tell them apart; a real one that takes the contract's place, and one that fails.

use super::*;

/// 2^24, 1 and -2^24 in f32: whoever adds 1 to the large one first loses it.
fn sums() -> Vec<Vec<f32>> {
    let big = 16_777_216.0;
    vec![vec![big; 3], vec![1.0; 3], vec![-big; 3]]
}

fn parts(order: Order) -> Parts {
    Parts { count: 3, store: Store::F32, order }
}

#[test]
fn a_ring_begins_each_chunk_behind_its_rank() {
    assert_eq!(add_parts(parts(Order::Ascending), sums()), [0.0; 3]);
    // Chunk 0: ranks 1, 2, 0; chunk 1: 2, 0, 1; chunk 2: 0, 1, 2. -2^24 + 1 is exact, 2^24 + 1 is not.
    assert_eq!(add_parts(parts(Order::Ring), sums()), [1.0, 1.0, 0.0]);
}

#[test]
fn every_addition_is_stored() {
    let sums = vec![vec![1.0, 1.0, 3.0], vec![0.00390625, 0.00390625, 0.015625], vec![0.00390625, 0.00390625, 0.0]];
    let low = |order| add_parts(Parts { count: 3, store: Store::Bf16, order }, sums.clone());
    // bf16 has 8 bits: 1 + 2^-8 is a tie and falls to 1, twice; together first they would make 1 + 2^-7.
    assert_eq!(low(Order::Ascending), [1.0, 1.0, 3.015625]);
    // Ranks 1, 2, 0; ranks 2, 0, 1; ranks 0, 1, 2.
    assert_eq!(low(Order::Ring), [1.0078125, 1.0, 3.015625]);
}

/// Adds in f64 from the last rank on, or fails.
#[derive(Debug)]
struct Real(bool);

impl AllReduce for Real {
    fn name(&self) -> String {
        "backwards".to_string()
    }

    fn ranks(&self) -> usize {
        3
    }

    fn all_reduce(&self, sums: &[Vec<f32>], is_bf16: bool) -> Result<Vec<f32>> {
        assert!(!is_bf16);
        let total = |i: usize| sums.iter().rev().map(|s| f64::from(s[i])).sum::<f64>() as f32;
        if self.0 { Ok((0..sums[0].len()).map(total).collect()) } else { Err(Error::Request("a link is down".into())) }
    }
}

#[test]
fn a_real_all_reduce_adds_where_it_has_as_many_ranks() {
    let adder = Adder::new(Arc::new(Real(true)));
    assert_eq!(adder.add(parts(Order::Ascending), sums()), [1.0; 3]);
    let two = Parts { count: 2, ..parts(Order::Ascending) };
    assert!(adder.real(two).is_none(), "two ranks are not three");
    assert_eq!(adder.add(two, sums()[..2].to_vec()), [16_777_216.0; 3]);
    assert!(adder.checked(Ok(())).is_ok());
    assert!(Adder::default().real(parts(Order::Ring)).is_none());
}

#[test]
fn a_real_all_reduce_that_fails_ends_the_run() {
    let adder = Adder::new(Arc::new(Real(false)));
    assert_eq!(adder.add(parts(Order::Ascending), sums()), [0.0; 3], "values stay values");
    assert!(adder.checked(Ok(())).unwrap_err().to_string().contains("a link is down"));
}
