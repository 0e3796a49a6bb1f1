use serde_json::json;

use super::*;
use crate::support::{f32s, manifest, ramp, safetensors};

#[test]
fn traces_files_and_folders_are_dumps() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("trace")).unwrap();
    std::fs::create_dir_all(at("shards")).unwrap();
    std::fs::create_dir_all(at("empty")).unwrap();
    let logits = safetensors(&[("a/logits", "F32", vec![3, 5], ramp(15))]);
    std::fs::write(at("trace/manifest.json"), manifest().to_string()).unwrap();
    std::fs::write(at("trace/t.safetensors"), &logits).unwrap();
    std::fs::write(
        at("one.safetensors"),
        safetensors(&[("x", "BF16", vec![1, 2], vec![0x80, 0x3f, 0, 0x40]), ("y", "U64", vec![1], vec![0; 8])]),
    )
    .unwrap();
    std::fs::write(at("shards/2.safetensors"), safetensors(&[("w", "F32", vec![1], f32s(&[2.0]))])).unwrap();
    std::fs::write(at("shards/1.safetensors"), safetensors(&[("x", "F32", vec![1, 2], f32s(&[1.0, 2.5]))])).unwrap();

    let trace = open_any(&at("trace")).unwrap();
    assert_eq!(trace.names().collect::<Vec<_>>(), ["a/logits"]);
    let one = open_any(&at("one.safetensors")).unwrap();
    assert_eq!(one.tensor("x").unwrap(), Tensor::f32([1, 2], vec![1.0, 2.0]));
    assert_eq!((one.dtype("x").unwrap(), one.shape("x").unwrap()), (Dtype::Bf16, &[1, 2][..]));
    assert!(one.tensor("y").unwrap_err().to_string().contains("tensor y: dtype that traces don't have"));
    assert!(one.tensor("z").unwrap_err().to_string().contains("no such tensor"));
    let shards = open_any(&at("shards")).unwrap();
    assert_eq!(shards.names().collect::<Vec<_>>(), ["w", "x"]);
    let pairs = pair(&one, &shards).unwrap();
    let names: Vec<_> = pairs.matched.iter().map(|m| m.name.as_str()).collect();
    assert_eq!((names, pairs.only_a, pairs.only_b), (vec!["x"], vec!["y".to_string()], vec!["w".to_string()]));

    std::fs::write(at("shards/3.safetensors"), safetensors(&[("w", "F32", vec![1], ramp(1))])).unwrap();
    std::fs::write(at("not.txt"), "text").unwrap();
    for (path, expected) in [
        ("shards", "name is in two files"),
        ("empty", "folder holds no tensors"),
        ("none", "can't be read"),
        ("not.txt", "too short"),
    ] {
        let message = open_any(&at(path)).err().unwrap().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let mut broken = manifest();
    broken["files"] = json!(["../one.safetensors"]);
    std::fs::write(at("trace/manifest.json"), broken.to_string()).unwrap();
    assert!(open_any(&at("trace")).err().unwrap().to_string().contains("not the name of a file"));
}
