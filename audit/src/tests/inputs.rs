use std::sync::Arc;

use karat_seam::{Recorded, Recorder, RowId, Site, Streams, Tap, Tensor, Visitor};

use super::fake::requests;
use crate::facts::LayerFacts;
use crate::{align, choices, rotate};

fn rows(positions: &[u32]) -> Vec<RowId> {
    positions.iter().map(|p| RowId::new(0, *p)).collect()
}

#[test]
fn of_a_row_computed_twice_the_last_pass_counts() {
    let mut twice = rows(&[0, 1, 2]);
    twice.push(RowId { seq: 0, pos: 1, pass: 1 });
    let tensor = Tensor::f32([4, 1], vec![0.0, 1.0, 2.0, 10.0]);
    let got = align::gather(&twice, &tensor, &rows(&[2, 1])).unwrap();
    assert_eq!(got.into_owned(), Tensor::f32([2, 1], vec![2.0, 10.0]));
    assert!(align::gather(&twice, &tensor, &rows(&[3])).is_none());
    assert_eq!(align::common(&rows(&[0, 1, 2, 3]), &rows(&[3, 1])), rows(&[1, 3]));
    let want: Arc<[RowId]> = rows(&[0, 1, 2]).into();
    let x = Streams { rows: twice.into(), data: Tensor::f64([4, 1], vec![0.0, 1.0, 2.0, 10.0]) };
    assert_eq!(align::streams(&x, &want).unwrap().data, Tensor::f32([3, 1], vec![0.0, 10.0, 2.0]));
}

#[test]
fn ragged_taps_are_widened() {
    let rec = Recorded { rows: rows(&[0, 1]), tensor: Tensor::f32([2, 1], vec![1.0, 2.0]) };
    let wide = align::take(Tap::AttnIndexScore, &rec, &rows(&[0, 1]), 2).unwrap().into_owned();
    assert_eq!(wide, Tensor::f32([2, 2], vec![1.0, f32::NEG_INFINITY, 2.0, f32::NEG_INFINITY]));
}

fn decided(idx: Vec<i64>, selected: Vec<u8>) -> Recorder {
    let mut seen = Recorder::all();
    let n = idx.len() / 2;
    let rows: Vec<RowId> = (0..n as u32).map(|p| RowId::new(0, p)).collect();
    let mut show = |tap, mut tensor: Tensor| seen.visit(Site::layer(1, tap), &rows, tensor.as_mut()).unwrap();
    show(Tap::FfnIdx, Tensor::i64([n, 2], idx));
    show(Tap::AttnSelected, Tensor::u8([n, selected.len() / n], selected));
    seen
}

#[test]
fn only_possible_decisions_are_forced() {
    let requests = requests(&[2]);
    let routing = LayerFacts { experts: 4, experts_per_token: 2, ..LayerFacts::default() };
    let facts = LayerFacts { ratio: Some(2), selects_entries: true, ..routing.clone() };
    let all = rows(&[0, 1]);
    let of =
        |seen: &Recorder, facts: &LayerFacts| choices::of(1, seen, &requests, facts, &all).by_layer[&(1, 0)].clone();
    let got = of(&decided(vec![3, 0, 1, 2], vec![0, 1]), &facts);
    assert_eq!((got.experts, got.entries), (vec![3, 0, 1, 2], vec![vec![], vec![0]]));
    assert!(of(&decided(vec![3, 4, 1, 2], vec![0, 1]), &facts).experts.is_empty(), "expert 4 does not exist");
    assert!(of(&decided(vec![3, -1, 1, 2], vec![0, 1]), &facts).experts.is_empty());
    assert!(of(&decided(vec![3, 3, 1, 2], vec![0, 1]), &facts).experts.is_empty(), "one expert twice");
    assert!(of(&decided(vec![3, 0, 1, 2], vec![1, 0]), &facts).entries.is_empty(), "entry 0 is not visible at 0");
    let wide = LayerFacts { experts_per_token: 4, ..routing.clone() };
    assert!(of(&decided(vec![3, 0, 1, 2], vec![0, 1]), &wide).experts.is_empty(), "two experts a row instead of four");
    let hca = LayerFacts { selects_entries: false, ..facts };
    assert!(of(&decided(vec![3, 0, 1, 2], vec![0, 1]), &hca).entries.is_empty(), "HCA decides nothing");
    let mut short = requests.clone();
    short.seqs[0].ids = vec![0, 1, 2].into();
    let seen = decided(vec![3, 0, 1, 2], vec![0, 1]);
    let three = rows(&[0, 1, 2]);
    assert!(choices::of(1, &seen, &short, &routing, &three).by_layer[&(1, 0)].experts.is_empty(), "a row is missing");
    // Golden runs these two rows of three alone.
    let some = choices::of(1, &seen, &short, &routing, &all).by_layer[&(1, 0)].clone();
    assert_eq!(some.experts, [3, 0, 1, 2, 0, 0]);
}

#[test]
fn rotated_index_vectors_are_compared_in_their_own_frame() {
    let tensor = Tensor::f32([2, 2, 4], (0..16).map(|i| (i * i % 7) as f32).collect());
    let got = rotate::rows(std::borrow::Cow::Borrowed(&tensor), &[false, true]).into_owned();
    let (before, after) = (tensor.as_f32("x").unwrap(), got.as_f32("x").unwrap());
    assert_eq!(before[..8], after[..8], "the first row was asked to stay");
    for vector in 2..4 {
        for i in 0..4usize {
            let sign = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            let sum: f64 = (0..4).map(|j| sign(j) * f64::from(before[vector * 4 + j])).sum();
            assert_eq!(after[vector * 4 + i], (sum / 2.0) as f32);
        }
    }
    let odd = Tensor::f32([1, 3], vec![1.0, 2.0, 3.0]);
    assert_eq!(rotate::rows(std::borrow::Cow::Borrowed(&odd), &[true]).into_owned(), odd);
}
