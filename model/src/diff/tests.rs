//! Two checkpoints: the same, the same in other clothes, and different by a known amount.

use serde_json::json;

use super::*;
use crate::formats::{bf16, e4m3, e8m0};
use crate::testing::Model;

fn run(a: &Model, b: &Model) -> Report {
    diff(&a.open().unwrap(), &b.open().unwrap(), &|_, _| {}).unwrap()
}

#[test]
fn a_model_is_itself() {
    let report = run(&Model::new(), &Model::new());
    assert!(report.same(), "{report}");
    assert!(report.tensors.iter().all(|t| t.equal_bytes && t.max_abs == 0.0 && t.rel_l2 == 0.0));
    assert!(report.to_string().ends_with("the same model"));
}

#[test]
fn another_encoding_of_the_same_values_is_the_same_model() {
    let mut b = Model::new();
    // FP8 in blocks of 16x32 decoded to F32, by the formula of spec 4.
    let codes = b.take("layers.1.attn.wkv.weight");
    let scales = b.take("layers.1.attn.wkv.scale");
    let decoded = (0..40 * 64)
        .flat_map(|i| {
            (e4m3::decode(codes.bytes[i]) * e8m0::decode(scales.bytes[i / 64 / 16 * 2 + i % 64 / 32])).to_le_bytes()
        })
        .collect();
    b.put("layers.1.attn.wkv.weight", "F32", &[40, 64], decoded);
    let report = run(&Model::new(), &b);
    assert!(report.same(), "{report}");
    let t = report.tensors.iter().find(|t| t.name == "layers.1.attn.wkv").unwrap();
    assert!(!t.equal_bytes);
    assert_eq!((t.stored_a.as_str(), t.stored_b.as_str()), ("FP8 16x32 with F8_E8M0 scales", "F32"));
}

#[test]
fn a_changed_value_is_measured() {
    let (mut a, mut b) = (Model::new(), Model::new());
    // All ones; one of 64 becomes 1.5: |d| = 0.5, rel-L2 = 0.5 / sqrt(64).
    let ones = bf16::encode(1.0).to_le_bytes().repeat(64);
    a.get("norm.weight").bytes = ones.clone();
    b.get("norm.weight").bytes = ones;
    b.get("norm.weight").bytes[10..12].copy_from_slice(&bf16::encode(1.5).to_le_bytes());
    let report = run(&a, &b);
    assert!(!report.same());
    let worst = report.worst();
    assert_eq!(worst.len(), 1);
    assert_eq!((worst[0].name.as_str(), worst[0].differing, worst[0].max_abs), ("norm", 1, 0.5));
    assert_eq!((worst[0].rel_l2, worst[0].at), (0.0625, Some([0, 5])));
    assert!(report.to_string().contains("norm: rel-L2 6.250e-2, max 5.000e-1 at row 0, column 5, 1 of 64"), "{report}");
    assert!(report.to_string().ends_with("NOT the same model"));
}

#[test]
fn changed_codes_scales_and_ids_are_found() {
    let mut b = Model::new();
    b.get("layers.1.ffn.experts.2.w1.scale").bytes[0] += 1;
    b.get("layers.0.ffn.gate.tid2eid").bytes[8] = 2;
    let report = run(&Model::new(), &b);
    let names: Vec<&str> = report.tensors.iter().filter(|t| !t.equal()).map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["layers.0.ffn.gate.tid2eid", "layers.1.ffn.experts.2.w1"]);
    let ids = report.tensors.iter().find(|t| t.name.ends_with("tid2eid")).unwrap();
    assert_eq!((ids.differing, ids.max_abs, ids.at), (1, 1.0, Some([0, 1])));
    // Doubling one group of 32 makes each of its values differ by itself.
    let scale = report.tensors.iter().find(|t| t.name.ends_with("w1") && !t.equal()).unwrap();
    assert!(scale.differing <= 32 && scale.at.unwrap()[0] == 0);
}

#[test]
fn nan_on_one_side_is_an_infinite_difference() {
    let mut b = Model::new();
    b.get("norm.weight").bytes[..2].copy_from_slice(&[0xC0, 0x7F]);
    let t = run(&Model::new(), &b).worst()[0].clone();
    assert_eq!((t.max_abs, t.differing), (f64::INFINITY, 1));
    assert_eq!(serde_json::to_value(t).unwrap()["max_abs"], "inf");
    assert!(run(&b, &b).same(), "the same NaN on both sides is the same model");
}

#[test]
fn configs_and_inventories_are_compared() {
    let mut config = crate::testing::config();
    config["swiglu_limit"] = json!(10.0);
    let report = run(&Model::new(), &Model::of(config));
    assert_eq!(report.config, [("swiglu_limit".to_string(), "2".to_string(), "10".to_string())]);
    assert!(!report.same() && report.worst().is_empty());
    let mut config = crate::testing::config();
    config["num_nextn_predict_layers"] = json!(0);
    config["n_routed_experts"] = json!(4);
    let report = run(&Model::new(), &Model::of(config));
    assert!(report.only_a.iter().all(|n| n.starts_with("mtp.0.")) && !report.only_a.is_empty());
    assert!(report.only_b.contains(&"layers.0.ffn.experts.3.w1".to_string()));
    assert!(report.shapes.contains(&("layers.0.ffn.gate".to_string(), vec![3, 64], vec![4, 64])));
    assert!(!report.same());
}
