use std::sync::Arc;

use karat_seam::{Recorded, Recorder, RowId, Site, Streams, Tap, Tensor, Visitor};
use proptest::prelude::*;

use super::fake::requests;
use crate::facts::LayerFacts;
use crate::{Glob, align, choices, parse_tokens};

#[test]
fn globs_match_tap_names() {
    let glob = Glob::parse("layers.*.attn.o, logits").unwrap();
    assert!(glob.matches(Site::layer(12, Tap::AttnO)));
    assert!(!glob.matches(Site::layer(12, Tap::AttnOut)));
    assert!(glob.matches("logits".parse().unwrap()));
    assert!(Glob::parse("*").unwrap().matches(Site::layer(0, Tap::Out)));
    assert!(Glob::parse("layers.3.*out").unwrap().matches(Site::layer(3, Tap::HcAttnOut)));
    let error = Glob::parse("layers.*.attn.q,nonsense").unwrap_err().to_string();
    assert!(error.contains("nonsense"), "{error}");
}

#[test]
fn broken_token_files_say_what_is_wrong() {
    let good = br#"{"sequences":[{"id":"a","input_ids":[1,2,3]},{"id":"b","input_ids":[0]}]}"#;
    assert_eq!(parse_tokens(good, 4).unwrap().seqs.len(), 2);
    for (text, words) in [
        ("", "not a token file"),
        ("[]", "not a token file"),
        (r#"{"sequences":[]}"#, "no sequences"),
        (r#"{"sequences":[{"id":"a","input_ids":[]}]}"#, "no ids"),
        (r#"{"sequences":[{"id":"a","input_ids":[1,9]}]}"#, "position 1: an id is outside the vocabulary"),
        (r#"{"sequences":[{"id":"a","input_ids":[-1]}]}"#, "expected 0 to 3, found -1"),
        (r#"{"sequences":[{"id":"a","input_ids":[1.5]}]}"#, "not a token file"),
        (r#"{"sequences":[{"id":"a","input_ids":[1]},{"id":"a","input_ids":[1]}]}"#, "two sequences"),
        (r#"{"sequences":[{"id":"a/b","input_ids":[1]}]}"#, "without `/`"),
        (r#"{"sequences":[{"id":"a","input_ids":[1],"x":1}]}"#, "unknown field `x`"),
        (r#"{"sequences":[{"id":"a","input_ids":[99999999999999999999]}]}"#, "not a token file"),
    ] {
        let error = parse_tokens(text.as_bytes(), 4).unwrap_err();
        assert_eq!(error.kind, karat_model::ErrorKind::Input);
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
}

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
    let facts = LayerFacts { ratio: Some(2), selects_entries: true, scored_experts: Some(4), bias: vec![] };
    let of = |seen: &Recorder, facts: &LayerFacts| choices::of(1, seen, &requests, facts).by_layer[&(1, 0)].clone();
    let got = of(&decided(vec![3, 0, 1, 2], vec![0, 1]), &facts);
    assert_eq!((got.experts, got.entries), (vec![3, 0, 1, 2], vec![vec![], vec![0]]));
    assert!(of(&decided(vec![3, 4, 1, 2], vec![0, 1]), &facts).experts.is_empty(), "expert 4 does not exist");
    assert!(of(&decided(vec![3, -1, 1, 2], vec![0, 1]), &facts).experts.is_empty());
    assert!(of(&decided(vec![3, 3, 1, 2], vec![0, 1]), &facts).experts.is_empty(), "one expert twice");
    assert!(of(&decided(vec![3, 0, 1, 2], vec![1, 0]), &facts).entries.is_empty(), "entry 0 is not visible at 0");
    let hash = LayerFacts { scored_experts: None, selects_entries: false, ..facts };
    let got = of(&decided(vec![3, 0, 1, 2], vec![0, 1]), &hash);
    assert!(got.experts.is_empty() && got.entries.is_empty(), "hash routing and HCA decide nothing");
    let mut short = requests.clone();
    short.seqs[0].ids = vec![0, 1, 2].into();
    let seen = decided(vec![3, 0, 1, 2], vec![0, 1]);
    let facts = LayerFacts { scored_experts: Some(4), ..LayerFacts::default() };
    assert!(choices::of(1, &seen, &short, &facts).by_layer[&(1, 0)].experts.is_empty(), "a row is missing");
}

proptest! {
    #[test]
    fn token_files_take_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_tokens(&bytes, 10);
    }

    #[test]
    fn globs_take_any_text(text in "[a-z0-9.*,]{0,30}") {
        let _ = Glob::parse(&text);
    }
}
