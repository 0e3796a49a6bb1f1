//! Faults of loaders and conversions in a made model with random weights: what needs no trained channels is found. Gate, up
//! and the order of packed codes need them: `tests/it/load_audit.rs` has these on the golden model.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::{Report, verify_memory};
use super::*;
use crate::formats::{bf16, e4m3};
use crate::{Geometry, new_model};

type Bytes<'a> = &'a mut dyn FnMut(&mut [u8]);

/// A made model with some tensors changed.
fn damaged(edits: &mut [(&str, Bytes<'_>)]) -> BTreeMap<String, Arc<[u8]>> {
    let mut files = new_model(Geometry::Mini, 3);
    let mut weights = files["model.safetensors"].to_vec();
    for (name, edit) in edits {
        let at = {
            let all = safetensors::SafeTensors::deserialize(&weights).unwrap();
            let view = all.tensor(name).unwrap();
            let start = view.data().as_ptr() as usize - weights.as_ptr() as usize;
            start..start + view.data().len()
        };
        edit(&mut weights[at]);
    }
    files.insert("model.safetensors".into(), weights.into());
    files
}

fn run(edits: &mut [(&str, Bytes<'_>)]) -> Report {
    verify_memory("made", damaged(edits), &|_, _| {}).unwrap()
}

/// One warning of this kind, about this tensor, with these words.
#[track_caller]
fn finds(edits: &mut [(&str, Bytes<'_>)], tensor: &str, words: &str) {
    let report = run(edits);
    let shown = report.to_string();
    assert_eq!(report.findings.len(), 1, "{shown}");
    assert!(report.ok() && shown.contains(tensor) && shown.contains(words), "{shown}");
}

const W1: &str = "layers.2.ffn.experts.3.w1.scale";

#[test]
fn scales_that_are_not_those_of_their_codes() {
    // [128, 4] scales of a matrix [128, 128]: rows in another order, columns for rows, and their inverse.
    finds(&mut [(W1, &mut |b: &mut [u8]| b.rotate_left(4 * 17))], "layers.2.ffn.experts.3.w1", "transposed, permuted");
    let transpose = &mut |b: &mut [u8]| {
        let old = b.to_vec();
        (0..b.len()).for_each(|i| b[i] = old[i % 128 * 4 + i / 128]);
    };
    finds(&mut [(W1, transpose)], "layers.2.ffn.experts.3.w1", "not those of their codes");
    // About the exponent between the two that occur, so that the level stays.
    let inverse = &mut |b: &mut [u8]| {
        let (low, high) = (*b.iter().min().unwrap(), *b.iter().max().unwrap());
        b.iter_mut().for_each(|s| *s = low + high - *s);
    };
    finds(&mut [(W1, inverse)], "layers.2.ffn.experts.3.w1", "inverse");
}

#[test]
fn another_tensors_scales_are_the_same_bytes_too() {
    let files = new_model(Geometry::Mini, 3);
    let all = safetensors::SafeTensors::deserialize(&files["model.safetensors"]).unwrap();
    let other = all.tensor("layers.1.ffn.experts.3.w1.scale").unwrap().data().to_vec();
    let report = run(&mut [(W1, &mut |b: &mut [u8]| b.copy_from_slice(&other))]);
    let shown = report.to_string();
    assert_eq!(report.findings.len(), 2, "{shown}");
    assert!(shown.contains("the same bytes as another tensor") && shown.contains("layers.1.ffn.experts.3.w1.scale"));
    assert!(shown.contains("not those of their codes"), "{shown}");
}

#[test]
fn levels_unlike_those_of_the_others() {
    let quarter = &mut |b: &mut [u8]| b.iter_mut().for_each(|s| *s -= 2);
    let names: Vec<String> = (0..8).map(|e| format!("layers.1.ffn.experts.{e}.w3.scale")).collect();
    let mut copies: Vec<_> = (0..8).map(|_| |b: &mut [u8]| b.iter_mut().for_each(|s| *s -= 2)).collect();
    let mut edits: Vec<(&str, Bytes<'_>)> =
        names.iter().map(String::as_str).zip(copies.iter_mut().map(|c| c as Bytes<'_>)).collect();
    let shown = run(&mut edits).to_string();
    assert!(shown.contains("layers.1.ffn: up projections have another level than gates"), "{shown}");
    // One expert at 2^-4 of its level; a quarter is within what experts may differ by.
    finds(
        &mut [(W1, &mut |b: &mut [u8]| b.iter_mut().for_each(|s| *s -= 4))],
        "layers.2.ffn.experts.3.w1",
        "another level",
    );
    assert!(run(&mut [(W1, quarter)]).findings.is_empty());
    // The attention of one layer, by 2^11.
    let more = &mut |b: &mut [u8]| b.iter_mut().for_each(|s| *s += 11);
    finds(&mut [("layers.3.attn.wq_b.scale", more)], "layers.3.attn.wq_b", "in the other layers");
}

#[test]
fn values_that_were_rounded_flushed_or_never_written() {
    let rounded = &mut |b: &mut [u8]| b.as_chunks_mut::<4>().0.iter_mut().for_each(|v| (v[0], v[1]) = (0, 0));
    finds(&mut [("layers.1.attn.compressor.ape", rounded)], "layers.1.attn.compressor.ape", "BF16 values");
    let coarse = &mut |b: &mut [u8]| {
        for v in b.as_chunks_mut::<2>().0 {
            let value = bf16::decode(u16::from_le_bytes(*v));
            *v = bf16::encode(e4m3::decode(e4m3::encode(value))).to_le_bytes();
        }
    };
    finds(&mut [("head.weight", coarse)], "head.weight", "E4M3 values");
    let flushed = &mut |b: &mut [u8]| {
        let of = |code: u8| if code & 7 == 1 { code & 8 } else { code };
        b.iter_mut().for_each(|b| *b = of(*b & 15) | of(*b >> 4) << 4);
    };
    finds(&mut [("layers.1.ffn.experts.0.w3.weight", flushed)], "layers.1.ffn.experts.0.w3", "codes with a gap");
    let half = &mut |b: &mut [u8]| {
        let n = b.len() / 2;
        b[n..].fill(0);
    };
    finds(&mut [("layers.1.attn.wq_b.weight", half)], "layers.1.attn.wq_b.weight", "rows of zeros");
}

#[test]
fn names_of_layers_and_parts() {
    assert_eq!(layer("layers.12.ffn.experts.3.w1"), "layers.12");
    assert_eq!(layer("mtp.0.norm"), "mtp.0");
    assert_eq!((layer("embed"), layer("hc_head_fn")), ("", ""));
    assert_eq!(part("layers.12.ffn.experts.3.w1"), "ffn.experts.*.w1");
    assert_eq!(part("layers.0.attn.wq_a"), "attn.wq_a");
}

#[test]
fn correlation_by_hand() {
    assert!((correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]) - 1.0).abs() < 1e-12);
    assert!((correlation(&[1.0, 2.0, 3.0], &[3.0, 0.0, 0.0]) + 3.0 / 12f64.sqrt()).abs() < 1e-12);
    assert_eq!(correlation(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
}
