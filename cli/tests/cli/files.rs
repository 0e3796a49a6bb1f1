use crate::support::{karat, workplace};

#[test]
fn a_made_model_is_inspected_verified_and_compared() {
    let dir = workplace();
    let text = karat(dir.path(), &["model", "inspect", "mini"]).expect(0).stdout;
    assert!(text.contains("parameters"), "{text}");
    assert!(karat(dir.path(), &["model", "inspect", "--json"]).expect(0).json()["parameters"].as_u64().unwrap() > 0);
    karat(dir.path(), &["model", "verify", "mini", "--quiet"]).expect(0);
    karat(dir.path(), &["model", "diff", "mini", "mini", "--quiet"]).expect(0);
    karat(dir.path(), &["model", "new", "--geometry", "mini", "--seed", "6", "--out", "second"]).expect(0);
    karat(dir.path(), &["model", "diff", "mini", "second", "--quiet"]).expect(1);
    let made = ["model", "new", "--geometry", "mini", "--experts", "nvfp4", "--out", "nvfp4"];
    let said = karat(dir.path(), &made).expect(0).stdout;
    assert!(said.contains("golden is these bytes dequantised"), "{said}");
    karat(dir.path(), &["model", "verify", "nvfp4", "--quiet"]).expect(0);
    let other = karat(dir.path(), &["model", "new", "--experts", "nvfp5", "--out", "third"]).expect(2);
    assert!(other.error().contains("mxfp4 or nvfp4, found `nvfp5`"), "{}", other.stderr);
    let again = karat(dir.path(), &["model", "new", "--geometry", "mini", "--out", "second"]).expect(2);
    assert!(again.error().contains("second"), "{}", again.stderr);
    std::fs::write(dir.path().join("a-file"), "x").unwrap();
    let taken = karat(dir.path(), &["model", "new", "--geometry", "mini", "--out", "a-file"]).expect(2);
    assert!(taken.error().contains("a-file"), "{}", taken.stderr);
}

#[test]
fn a_damaged_tensor_fails_verification() {
    let dir = workplace();
    let path = dir.path().join("mini").join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let start = tensors["embed.weight"]["data_offsets"][0].as_u64().unwrap() as usize;
    // A bf16 NaN.
    bytes[8 + header + start..8 + header + start + 2].copy_from_slice(&[0xc0, 0x7f]);
    std::fs::write(&path, bytes).unwrap();
    let ran = karat(dir.path(), &["model", "verify", "mini", "--quiet"]).expect(3);
    assert!(ran.stdout.contains("embed.weight"), "{}", ran.stdout);
}

#[test]
fn scenarios_and_patches_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let list = karat(dir.path(), &["scenario", "list"]).expect(0).stdout;
    assert!(list.contains("tic-tac-toe: "), "{list}");
    assert_eq!(
        karat(dir.path(), &["scenario", "list", "--grep", "no such text", "--json"]).expect(0).json()["scenarios"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    let rendered = karat(dir.path(), &["scenario", "render", "tic-tac-toe", "--json"]).expect(0).json();
    let ids = rendered["input_ids"].as_array().unwrap().len() as u64;
    assert!(ids > 100 && rendered["spans"].as_array().unwrap().last().unwrap()["end"] == ids, "{rendered}");
    let text = karat(dir.path(), &["patches"]).expect(0).stdout;
    for name in ["bf16-mhc", "fp8-indexer", "mma-sparse-mla"] {
        assert!(text.contains(name), "{text}");
    }
    let listed = karat(dir.path(), &["patches", "--json"]).expect(0).json();
    assert_eq!(listed["patches"].as_array().unwrap().len(), 24);
    assert_eq!(listed["default"], serde_json::json!(["bf16-mhc", "fp8-indexer", "mma-sparse-mla"]));
    let sglang = &listed["profiles"].as_array().unwrap()[2];
    let basis = |row: u64| &sglang["rows"].as_array().unwrap().iter().find(|r| r["row"] == row).unwrap()["basis"];
    assert_eq!(
        (sglang["name"].as_str(), basis(7).as_str(), basis(5).as_str()),
        (Some("sglang"), Some("spec"), Some("assumed"))
    );
    assert!(text.contains("D5  cos and sin in f32 (assumed)"), "{text}");
}

#[test]
fn conversations_are_made_and_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let made = karat(dir.path(), &["scenario", "render", "turn-two", "--number", "3", "--json"]).expect(0).json();
    let question = &made["questions"][0];
    assert!(question["expected"].is_string() && question["told"].as_u64() < question["start"].as_u64(), "{question}");
    let none = karat(dir.path(), &["scenario", "render", "turn-two", "--number", "99"]).expect(2);
    assert!(none.error().contains("6 conversations"), "{}", none.stderr);
    karat(dir.path(), &["scenario", "generate", "turn-two", "--out", "w"]).expect(0);
    let file = dir.path().join("w").join("turn-two-003.toml");
    let back = karat(dir.path(), &["scenario", "render", file.to_str().unwrap(), "--json"]).expect(0).json();
    assert_eq!((&back["input_ids"], &back["questions"]), (&made["input_ids"], &made["questions"]));
    karat(dir.path(), &["scenario", "generate", "turn-two", "--out", "w"]).expect(2);
}

#[test]
fn the_doctor_runs_a_self_test() {
    let dir = tempfile::tempdir().unwrap();
    let data = karat(dir.path(), &["doctor", "--json"]).expect(0).json();
    assert_eq!((&data["self_test"], &data["gpu_used"]), (&"pass".into(), &false.into()), "{data}");
    let said = karat(dir.path(), &["doctor"]).expect(0).stdout;
    assert!(said.contains("self-test: pass"), "{said}");
    assert!(said.contains("accumulation: sm_90: bf16: 16 products a step"), "{said}");
    assert!(said.contains("accumulation: sm_120: no model (not probed)"), "{said}");
}
