use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::support::manifest;

fn read(value: &Value) -> Result<Manifest> {
    Manifest::read(value.to_string().as_bytes())
}

#[test]
fn a_manifest_reads_back() {
    let m = read(&manifest()).unwrap();
    assert_eq!(
        (m.producer.as_str(), m.mode, m.sequences[0].input_ids.as_slice()),
        ("hand 1", Mode::Eager, &[5, 6, 7][..])
    );
    assert_eq!(Manifest::read(m.text().as_bytes()).unwrap(), m);
    let phases: Vec<_> = (0..3).map(|p| m.phase_of(0, p)).collect();
    assert_eq!(phases, [Phase::Prefill, Phase::Prefill, Phase::Decode]);
    assert_eq!(m.phase_of(7, 0), Phase::Prefill);
}

#[test]
fn the_least_manifest() {
    let m = read(
        &json!({"format": "karat-trace/1", "sequences": [{"id": "x", "input_ids": [1]}], "files": ["t.safetensors"]}),
    )
    .unwrap();
    assert_eq!((m.mode, m.model.clone(), m.phase_of(0, 0)), (Mode::Unknown, ModelId::default(), Phase::Prefill));
    assert_eq!(m.requests().seqs[0].id, "x");
}

#[test]
fn a_row_has_the_phase_of_its_last_computation() {
    let mut value = manifest();
    value["history"][0]["steps"] = json!([
        {"kind": "decode", "start": 0, "end": 3}, {"kind": "abort", "start": 0, "end": 3},
        {"kind": "prefill", "start": 0, "end": 2}, {"kind": "transfer", "start": 0, "end": 3}]);
    let m = read(&value).unwrap();
    let phases: Vec<_> = (0..3).map(|p| m.phase_of(0, p)).collect();
    assert_eq!(phases, [Phase::Prefill, Phase::Prefill, Phase::Decode]);
}

#[test]
fn each_broken_manifest_is_told_apart() {
    let broken = |edit: &dyn Fn(&mut Value), expected: &str| {
        let mut value = manifest();
        edit(&mut value);
        let message = read(&value).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}\n  lacks {expected}");
    };
    let two = |v: &mut Value| {
        let copy = v["sequences"][0].clone();
        v["sequences"].as_array_mut().unwrap().push(copy);
    };
    broken(
        &|v| v["format"] = json!("karat-trace/2"),
        "unknown trace format: expected karat-trace/1, found \"karat-trace/2\"",
    );
    broken(&|v| drop(v.as_object_mut().unwrap().remove("format")), "not a trace manifest");
    broken(&|v| v["sequences"] = json!([]), "holds no sequence");
    broken(&|v| v["sequences"][0]["input_ids"] = json!([]), "sequence \"a\": empty sequence");
    broken(&|v| v["sequences"][0]["input_ids"] = json!([-1]), "expected u32");
    broken(&|v| v["sequences"][0]["input_ids"] = json!([1.5]), "expected u32");
    broken(&|v| v["sequences"][0]["id"] = json!(""), "sequence id is empty");
    broken(&two, "two sequences have one id");
    broken(&|v| v["history"][0]["sequence"] = json!("b"), "doesn't list");
    broken(&|v| v["history"][0]["steps"][1]["end"] = json!(4), "expected positions within 0..3, found decode 2..4");
    broken(&|v| v["history"][0]["steps"][1]["start"] = json!(9), "outside the sequence");
    for name in [
        "../t.safetensors",
        "a/b.safetensors",
        "/etc/x.safetensors",
        "..",
        "",
        "t.bin",
        "c:t.safetensors",
        "a\\b.safetensors",
    ] {
        broken(&|v| v["files"] = json!([name]), "not the name of a file in the trace's folder");
    }
    broken(&|v| v["files"] = json!(["t.safetensors", "t.safetensors"]), "file is listed twice");
    broken(&|v| v["model"]["weights_sha256"] = json!("xyz"), "model.weights_sha256: not a sha256");
    broken(&|v| v["files"] = json!([]), "manifest.json: files: trace lists no file");
    broken(&|v| v["history"][0]["steps"][0]["kind"] = json!("teleport"), "unknown kind of step");
    broken(&|v| v["modle"] = json!({}), "unknown field `modle`");
    broken(&|v| v["mode"] = json!("lazy"), "mode `lazy`, expected eager, graph or unknown");
    broken(&|v| v["files"] = json!("t.safetensors"), "manifest doesn't fit the format");
    for bytes in
        [&b"not json"[..], b"", b"[1]", b"\xff\xfe", b"{\"format\":\"karat-trace/1\",\"format\":\"karat-trace/1\"}"]
    {
        assert!(Manifest::read(bytes).unwrap_err().to_string().starts_with("manifest.json: "));
    }
}

#[test]
fn hashes_are_64_hex_digits() {
    let hash = parse_hash(&"0aF9".repeat(16)).unwrap();
    assert_eq!((hash[0], hash[1], hash_text(hash)), (0x0a, 0xf9, "0af9".repeat(16)));
    assert!(
        parse_hash(&"+f".repeat(32)).is_none() && parse_hash("").is_none() && parse_hash(&"ab".repeat(33)).is_none()
    );
}

proptest! {
    #[test]
    fn any_bytes_are_a_manifest_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Manifest::read(&bytes);
    }

    #[test]
    fn one_changed_byte_never_panics(at: usize, byte: u8) {
        let mut bytes = manifest().to_string().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(m) = Manifest::read(&bytes) {
            prop_assert!(m.check().is_ok());
        }
    }
}
