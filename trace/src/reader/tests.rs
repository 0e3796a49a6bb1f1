use karat_seam::Sequence;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::support::{Raw, f32s, files, i64s, manifest, ramp, safetensors};

fn good() -> Vec<Raw<'static>> {
    vec![
        ("a/layers.0.out", "F32", vec![3, 2, 4], ramp(24)),
        ("a/layers.0.attn.ckv", "BF16", vec![0, 4], vec![]),
        ("a/layers.0.ffn.idx", "I32", vec![3, 1], vec![1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]),
        ("a/layers.0.attn.selected", "BOOL", vec![3, 2], vec![1, 0, 0, 1, 1, 1]),
        ("a/state/layers.0.win_pos", "I64", vec![2], i64s(&[1, 2])),
        ("a/logits", "F32", vec![3, 5], ramp(15)),
    ]
}

fn open(tensors: &[Raw<'_>]) -> Result<Trace> {
    Trace::from_memory("mem", &files(&manifest(), tensors))
}

fn refused(manifest: &Value, tensors: &[Raw<'_>], expected: &str) {
    let message = Trace::from_memory("mem", &files(manifest, tensors)).err().expect(expected).to_string();
    assert!(message.contains(expected), "{message}\n  lacks {expected}");
}

#[test]
fn a_trace_made_by_hand_reads() {
    let t = open(&good()).unwrap();
    assert_eq!(t.held().count(), 6);
    assert_eq!(t.tensor(Site::layer(0, Tap::FfnIdx), 0, 0).unwrap(), Tensor::i64([3, 1], vec![1, 2, 3]));
    assert_eq!(t.tensor(Site::layer(0, Tap::AttnSelected), 0, 0).unwrap(), Tensor::u8([3, 2], vec![1, 0, 0, 1, 1, 1]));
    assert_eq!(t.dtype(Site::layer(0, Tap::AttnCkv), 0, 0).unwrap(), Dtype::Bf16);
    assert_eq!(t.row_ids(Site::layer(0, Tap::AttnCkv), 0, 0).unwrap(), []);
    assert_eq!(t.row_ids(Site::layer(0, Tap::StateWinPos), 0, 0).unwrap(), [RowId::new(0, 2)]);
    assert_eq!(t.row_ids(Site::layer(0, Tap::Out), 0, 0).unwrap().len(), 3);
    assert_eq!(t.phase_of(RowId::new(0, 2)), Phase::Decode);
    let missing = t.tensor(Site::layer(1, Tap::Out), 0, 0).unwrap_err().to_string();
    assert_eq!(missing, "mem: a/layers.1.out: trace doesn't hold this tap");
}

#[test]
fn models_and_ids_are_compared() {
    let t = open(&good()).unwrap();
    assert_eq!(t.same_model([0xab; 32], [1; 32]), SameModel::Same);
    assert_eq!(t.same_model([0; 32], [1; 32]), SameModel::SameWeights);
    assert_eq!(t.same_model([0xab; 32], [2; 32]), SameModel::Different);
    let mut unnamed = manifest();
    unnamed["model"] = json!({});
    let unknown = Trace::from_memory("mem", &files(&unnamed, &good())).unwrap();
    assert_eq!(unknown.same_model([0xab; 32], [1; 32]), SameModel::Unknown);
    let requests = |id: &str, ids: &[u32]| Requests { seqs: vec![Sequence::prompt(id, ids.to_vec())] };
    assert!(t.id_differences(&requests("a", &[5, 6, 7])).is_empty());
    let differs = |r: &Requests| t.id_differences(r).into_iter().map(|d| (d.sequence, d.position)).collect::<Vec<_>>();
    assert_eq!(differs(&requests("a", &[5, 9, 7])), [("a".into(), Some(1))]);
    assert_eq!(differs(&requests("a", &[5, 6])), [("a".into(), Some(2))]);
    assert_eq!(differs(&requests("b", &[5, 6, 7])), [("b".into(), None), ("a".into(), None)]);
}

#[test]
fn contents_have_one_hash() {
    let one = open(&good()).unwrap().content_sha256();
    assert_eq!(one, open(&good()).unwrap().content_sha256());
    let mut other = good();
    other[0].3[5] ^= 1;
    assert_ne!(one, open(&other).unwrap().content_sha256());
}

#[test]
fn each_broken_trace_is_told_apart() {
    let m = manifest();
    let with = |raw: Raw<'static>| {
        let mut tensors = good();
        tensors.retain(|t| t.0 != raw.0);
        tensors.push(raw);
        tensors
    };
    refused(
        &m,
        &with(("a/logits", "F32", vec![2, 5], ramp(10))),
        "tensor a/logits: wrong number of rows: expected 3, one a token, found 2",
    );
    refused(&m, &with(("a/logits", "F32", vec![15], ramp(15))), "wrong number of axes: expected 2");
    refused(&m, &with(("a/logits", "U64", vec![3, 5], vec![0; 120])), "dtype that traces don't have");
    refused(&m, &with(("a/logits", "F99", vec![3, 5], vec![0; 60])), "unknown dtype");
    refused(&m, &with(("b/logits", "F32", vec![3, 5], ramp(15))), "sequence is not in the manifest");
    refused(&m, &with(("logits", "F32", vec![3, 5], ramp(15))), "not a key of a trace");
    refused(
        &m,
        &with(("a/layers.0.attn.vibes", "F32", vec![3, 2], ramp(6))),
        "not a key of a trace: expected SEQUENCE/TAP",
    );
    refused(&m, &with(("a/logits@0", "F32", vec![3, 5], ramp(15))), "must be followed by a pass");
    refused(&m, &with(("a/layers.10000.out", "F32", vec![3, 2, 4], ramp(24))), "layer number is not believable");
    refused(&m, &with(("a/layers.0.attn.ckv", "F32", vec![4, 1], ramp(4))), "expected at most 3, found 4");
    refused(&m, &with(("a/rows", "I64", vec![2], i64s(&[0, 1]))), "expected 2, one a listed position of 3");
    refused(
        &m,
        &with(("a/rows", "I64", vec![3], i64s(&[0, 1, 3]))),
        "position is outside the sequence: expected 0 to 2, found 3",
    );
    refused(&m, &with(("a/rows", "I64", vec![3], i64s(&[-1, 1, 2]))), "position is outside");
    refused(&m, &with(("a/rows", "I64", vec![3], i64s(&[0, 2, 2]))), "not ascending");
    refused(&m, &with(("a/rows", "F32", vec![3], ramp(3))), "positions are not integers");
    refused(&m, &with(("a/rows", "I64", vec![1, 3], i64s(&[0, 1, 2]))), "positions are no list");
    let mut elsewhere = m.clone();
    elsewhere["files"] = json!(["t.safetensors", "u.safetensors"]);
    refused(&elsewhere, &good(), "u.safetensors: file is missing");
    let mut twice = files(&elsewhere, &good());
    twice.insert("u.safetensors".into(), safetensors(&[("a/logits", "F32", vec![3, 5], ramp(15))]));
    let message = Trace::from_memory("mem", &twice).err().unwrap().to_string();
    assert_eq!(message, "mem/u.safetensors: tensor a/logits: key is in two files: found mem/t.safetensors");
}

#[test]
fn values_that_do_not_fit_the_tap_are_refused_when_read() {
    let mut tensors = good();
    tensors[2] = ("a/layers.0.ffn.idx", "F32", vec![3, 1], ramp(3));
    tensors[5] = ("a/logits", "I64", vec![3, 1], i64s(&[1, 2, 3]));
    tensors[3] = ("a/layers.0.attn.selected", "U8", vec![3, 2], vec![1, 0, 0, 1, 2, 1]);
    let t = open(&tensors).unwrap();
    let error = |site| t.tensor(site, 0, 0).unwrap_err().to_string();
    assert!(
        error(Site::layer(0, Tap::FfnIdx))
            .contains("mem/t.safetensors: tensor a/layers.0.ffn.idx: tap holds decisions")
    );
    assert!(error("logits".parse().unwrap()).contains("tap holds numbers"));
    assert!(error(Site::layer(0, Tap::AttnSelected)).contains("another value than 0 and 1"));
}

#[test]
fn every_truncation_is_an_error() {
    let files = files(&manifest(), &good());
    let whole = &files["t.safetensors"];
    for n in 0..whole.len() {
        let mut cut = files.clone();
        cut.insert("t.safetensors".into(), whole[..n].into());
        assert!(Trace::from_memory("mem", &cut).is_err(), "{n} of {} bytes", whole.len());
    }
    let mut longer = files.clone();
    longer.insert("t.safetensors".into(), [&**whole, &[0]].concat().into());
    assert!(Trace::from_memory("mem", &longer).is_err());
}

#[test]
fn overlapping_tensors_are_refused() {
    let header = json!({
        "a/logits": {"dtype": "F32", "shape": [3, 1], "data_offsets": [0, 12]},
        "a/layers.0.attn.in": {"dtype": "F32", "shape": [3, 1], "data_offsets": [8, 20]},
    })
    .to_string();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &f32s(&[0.0; 5])].concat();
    let mut files = files(&manifest(), &[]);
    files.insert("t.safetensors".into(), bytes.into());
    let message = Trace::from_memory("mem", &files).err().unwrap().to_string();
    assert!(message.contains("tensors overlap"), "{message}");
}

#[test]
fn folders_that_are_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let message = |r: Result<Trace>| r.err().unwrap().to_string();
    assert!(message(Trace::open(dir.path())).contains("trace manifest can't be read"));
    assert!(message(Trace::open(&dir.path().join("none"))).contains("trace manifest can't be read"));
    std::fs::write(dir.path().join("manifest.json"), manifest().to_string()).unwrap();
    assert!(message(Trace::open(dir.path())).contains("t.safetensors: file can't be read"));
    std::fs::write(dir.path().join("t.safetensors"), b"").unwrap();
    assert!(message(Trace::open(dir.path())).contains("too short"));
    std::fs::write(dir.path().join("t.safetensors"), safetensors(&good())).unwrap();
    assert!(Trace::open(dir.path()).is_ok());
}

proptest! {
    #[test]
    fn any_file_is_a_trace_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut files = files(&manifest(), &[]);
        files.insert("t.safetensors".into(), bytes.into());
        let _ = Trace::from_memory("mem", &files);
    }

    #[test]
    fn changed_bytes_never_panic(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4)) {
        let mut files = files(&manifest(), &good());
        let mut bytes = files["t.safetensors"].to_vec();
        for (at, byte) in changes {
            let n = bytes.len();
            bytes[at % n] = byte;
        }
        files.insert("t.safetensors".into(), bytes.into());
        if let Ok(t) = Trace::from_memory("mem", &files) {
            for (site, seq, pass) in t.held() {
                let _ = t.tensor(site, seq, pass);
                let _ = t.row_ids(site, seq, pass);
            }
        }
    }

    #[test]
    fn a_hostile_header_never_allocates_what_it_claims(len: u64, dims in proptest::collection::vec(any::<u64>(), 0..4), ends: (u64, u64)) {
        let header = json!({"a/logits": {"dtype": "F32", "shape": dims, "data_offsets": [ends.0, ends.1]}}).to_string();
        for claimed in [len, header.len() as u64] {
            let bytes = [&claimed.to_le_bytes()[..], header.as_bytes(), &[0; 16]].concat();
            let mut files = files(&manifest(), &[]);
            files.insert("t.safetensors".into(), bytes.into());
            let _ = Trace::from_memory("mem", &files);
        }
    }
}
