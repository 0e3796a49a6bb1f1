use std::collections::BTreeMap;

use karat_seam::{Data, NoTaps, Recorder, TensorMut, Want};
use serde_json::json;

use super::*;
use crate::support::{Raw, f32s, i64s, manifest, ramp, safetensors};

const BLOCKS: Blocks = Blocks { layers: 2, mtp: 1 };

/// Sequence a: three rows whole; sequence b: rows 1 and 3 of four; nothing of c.
fn trace_of(tensors: &[Raw<'_>]) -> Arc<Trace> {
    let mut m = manifest();
    m["sequences"] = json!([
        {"id": "a", "input_ids": [5, 6, 7]}, {"id": "b", "input_ids": [1, 2, 3, 4]}, {"id": "c", "input_ids": [9]}]);
    let text: Arc<[u8]> = m.to_string().into_bytes().into();
    let files: BTreeMap<String, Arc<[u8]>> =
        [("manifest.json".to_string(), text), ("t.safetensors".to_string(), safetensors(tensors))].into();
    Arc::new(Trace::from_memory("mem", &files).unwrap())
}

fn tensors() -> Vec<Raw<'static>> {
    vec![
        ("a/embed", "F32", vec![3, 2], f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ("a/layers.0.attn.in", "F32", vec![3, 2], ramp(6)),
        ("a/layers.0.attn.ckv", "F32", vec![1, 4], ramp(4)),
        ("a/layers.0.out", "F32", vec![3, 2, 2], ramp(12)),
        ("b/layers.0.out", "F32", vec![2, 2, 2], ramp(8)),
        ("a/layers.1.out", "F32", vec![3, 2, 2], ramp(12)),
        ("a/logits", "F32", vec![3, 5], ramp(15)),
        ("a/mtp.0.logits", "F32", vec![3, 5], ramp(15)),
        ("a/state/layers.0.win_pos", "I64", vec![2], i64s(&[1, 2])),
        ("b/rows", "I64", vec![2], i64s(&[1, 3])),
    ]
}

fn path() -> TracePath {
    TracePath::new(trace_of(&tensors()), BLOCKS, 2, 2).unwrap()
}

#[test]
fn streams_enter_a_layer_as_they_left_the_one_before() {
    let p = path();
    let x0 = p.stream_in(0).unwrap().unwrap();
    assert_eq!(x0.data, Tensor::f32([3, 2, 2], vec![1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0, 5.0, 6.0, 5.0, 6.0]));
    assert_eq!(&*x0.rows, [RowId::new(0, 0), RowId::new(0, 1), RowId::new(0, 2)]);
    let x1 = p.stream_in(1).unwrap().unwrap();
    assert_eq!((x1.data.shape.as_slice(), x1.rows.len()), (&[5, 2, 2][..], 5));
    assert_eq!(&x1.rows[3..], [RowId::new(1, 1), RowId::new(1, 3)]);
    let head = p.stream_in(2).unwrap().unwrap();
    assert_eq!(head.rows.len(), 3, "only a holds the last layer's out");
    assert_eq!(p.rows().len(), 5);
    let bare = TracePath::new(trace_of(&tensors()[1..]), BLOCKS, 2, 2).unwrap();
    assert_eq!(bare.stream_in(0).unwrap(), None);
    assert!(matches!(bare.embed(&mut NoTaps), Err(Error::Unsupported { .. })));
}

#[test]
fn run_replays_what_is_stored_and_shows_it_in_op_order() {
    let p = path();
    let x = p.embed(&mut NoTaps).unwrap();
    let mut recorder = Recorder::all();
    let mut lanes = [Lane::new(&x, &mut recorder)];
    p.layer(0).unwrap().run(&mut lanes).unwrap();
    let out = lanes[0].out.take().unwrap().streams;
    assert_eq!((out.data, out.rows), (p.trace().tensor(Site::layer(0, Tap::Out), 0, 0).unwrap(), x.rows.clone()));
    let seen: Vec<String> = recorder.taps.keys().map(|(site, seq)| format!("{seq} {site}")).collect();
    assert_eq!(seen, ["0 layers.0.attn.in", "0 layers.0.attn.ckv", "0 layers.0.out", "0 state/layers.0.win_pos"]);
    let mut lanes = [Lane::new(&x, &mut recorder)];
    assert_eq!(p.head(&mut lanes).unwrap()[0].shape, [3, 5]);
    assert_eq!(p.mtp(0, &mut lanes, &[]).unwrap()[0].shape, [3, 5]);
    assert!(recorder.get("mtp.0.logits".parse().unwrap(), 0).is_some());
}

#[test]
fn lanes_may_hold_some_rows_of_some_sequences() {
    let p = path();
    let rows: Arc<[RowId]> = [RowId::new(0, 2), RowId::new(1, 3)].into();
    let x = Streams { rows, data: Tensor::f32([2, 2, 2], vec![0.0; 8]) };
    let mut recorder = Recorder::all();
    let mut lanes = [Lane::new(&x, &mut recorder)];
    p.layer(0).unwrap().run(&mut lanes).unwrap();
    let got = lanes[0].out.take().unwrap().streams.data;
    assert_eq!(got, Tensor::f32([2, 2, 2], vec![1.0, 1.125, 1.25, 1.375, 0.5, 0.625, 0.75, 0.875]));
    assert_eq!(recorder.get(Site::layer(0, Tap::Out), 1).unwrap().rows, [RowId::new(1, 3)]);
    // Layer 1 holds nothing of b, and row 0 of b is nowhere: no output rather than a guess.
    let mut lanes = [Lane::new(&x, &mut recorder)];
    p.layer(1).unwrap().run(&mut lanes).unwrap();
    assert!(lanes[0].out.is_none());
    assert!(matches!(p.head(&mut lanes), Err(Error::Unsupported { .. })));
    let elsewhere = Streams { rows: [RowId::new(1, 0)].into(), data: Tensor::f32([1, 2, 2], vec![0.0; 4]) };
    let mut lanes = [Lane::new(&elsewhere, &mut recorder)];
    p.layer(0).unwrap().run(&mut lanes).unwrap();
    assert!(lanes[0].out.is_none());
}

#[test]
fn what_a_visitor_writes_goes_on() {
    struct Double;
    impl Visitor for Double {
        fn want(&self, at: Site) -> Want {
            if at.tap == Tap::Out { Want::Write } else { Want::Skip }
        }
        fn visit(&mut self, _: Site, _: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
            if let karat_seam::DataMut::F32(v) = tensor.data {
                for v in v {
                    *v *= 2.0;
                }
            }
            Ok(())
        }
    }
    let p = path();
    let x = p.embed(&mut NoTaps).unwrap();
    let mut double = Double;
    let mut lanes = [Lane::new(&x, &mut double)];
    p.layer(0).unwrap().run(&mut lanes).unwrap();
    let Data::F32(v) = lanes[0].out.take().unwrap().streams.data.data else { panic!("dtype") };
    assert_eq!(v[11], 2.0 * 11.0 / 8.0);
}

#[test]
fn what_is_missing_is_listed_and_ops_are_unsupported() {
    let p = path();
    assert_eq!(p.missing(), ["b/layers.1.out", "b/logits", "c/layers.0.out", "c/layers.1.out", "c/logits"]);
    let layer = p.layer(0).unwrap();
    assert!(layer.has_op(Op::AttnNorm) && layer.has_op(Op::HcFfnPost) && !layer.has_op(Op::Experts));
    let error = layer.op(Op::Experts, &[], &[]).unwrap_err().to_string();
    assert_eq!(error, "trace mem does not support op ffn.experts");
    assert!(p.layer(3).is_err() && p.layer(2).is_ok() && p.mtp(1, &mut [], &[]).unwrap().is_empty());
    assert_eq!((p.phase_of(RowId::new(0, 2)), p.phase_of(RowId::new(1, 1))), (Phase::Decode, Phase::Prefill));
    assert_eq!(p.identity(), path().identity());
}

#[test]
fn traces_of_another_model_are_refused() {
    let trace = trace_of(&tensors());
    let new = |blocks, hc, hidden| TracePath::new(Arc::clone(&trace), blocks, hc, hidden).err().map(|e| e.to_string());
    assert_eq!(new(BLOCKS, 2, 2), None);
    for (message, expected) in [
        (new(Blocks { layers: 1, mtp: 1 }, 2, 2), "expected layers 0 to 0, found layer 1"),
        (new(Blocks { layers: 2, mtp: 0 }, 2, 2), "expected 0 MTP blocks"),
        (new(BLOCKS, 4, 2), "expected rows of shape [4, 2], found [2, 2]"),
        (new(BLOCKS, 2, 3), "expected rows of shape [3], found [2]"),
    ] {
        let message = message.unwrap();
        assert!(message.contains(expected), "{message}");
    }
}
