//! Each kind of damage gives one finding that names the tensor, and nothing else.

use serde_json::json;

use super::*;
use crate::testing::Model;

fn run(model: &Model) -> Report {
    verify_memory("made", model.files(), &|_, _| {}).unwrap()
}

/// Damages a good model and wants exactly these findings: severity, check, part of the tensor's name, words.
#[track_caller]
fn finds(damage: impl Fn(&mut Model), wanted: &[(Severity, Check, &str, &[&str])]) {
    let mut model = Model::new();
    damage(&mut model);
    let report = run(&model);
    let shown = report.to_string();
    assert_eq!(report.findings.len(), wanted.len(), "{shown}");
    for (severity, check, tensor, words) in wanted {
        let found = report
            .findings
            .iter()
            .find(|f| f.severity == *severity && f.check == *check && f.error.to_string().contains(tensor))
            .unwrap_or_else(|| panic!("no {check} about {tensor}: {shown}"));
        let text = found.to_string();
        for word in *words {
            assert!(text.contains(word), "`{word}` is not in: {text}");
        }
        assert!(!text.contains('\n'), "{text}");
    }
    let errors = wanted.iter().any(|w| w.0 == Severity::Error);
    assert_eq!(report.ok(), !errors);
}

use Severity::{Error as Bad, Note, Warning};

#[test]
fn a_whole_model_has_no_finding() {
    let calls = AtomicUsize::new(0);
    let report = verify_memory("made", Model::new().files(), &|done, all| {
        assert!((1..=all).contains(&done));
        calls.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    assert!(report.ok() && report.findings.is_empty(), "{report}");
    assert_eq!(calls.into_inner(), report.expected);
    assert_eq!(report.tensors, Model::new().tensors.len());
    assert!(report.to_string().contains("ok: every tensor used once"));
    // And the same in shards.
    assert!(verify_memory("made", Model::new().sharded(), &|_, _| {}).unwrap().findings.is_empty());
}

#[test]
fn the_made_model_of_this_crate_is_whole() {
    let files = crate::new_model(crate::Geometry::Mini, 3);
    let report = verify_memory("mini", files, &|_, _| {}).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn values_that_are_not_finite() {
    finds(
        |m| m.get("layers.1.attn.wq_a.weight").bytes[64 * 3 + 5] = 0xFF,
        &[(Bad, Check::Nonfinite, "layers.1.attn.wq_a.weight", &["1 of 3072", "row 3, column 5", "NaN"])],
    );
    let inf = [0x80, 0x7F];
    finds(
        |m| m.get("embed.weight").bytes[..2].copy_from_slice(&inf),
        &[(Bad, Check::Nonfinite, "embed.weight", &["row 0, column 0"])],
    );
    finds(
        |m| m.get("layers.2.attn.kv_norm.weight").bytes[2..4].copy_from_slice(&inf),
        &[(Bad, Check::Nonfinite, "kv_norm", &["1 of 40"])],
    );
    finds(
        |m| m.get("layers.2.hc_attn_base").bytes[4..8].copy_from_slice(&f32::NAN.to_le_bytes()),
        &[(Bad, Check::Nonfinite, "hc_attn_base", &["column 1"])],
    );
    // 6 * 2^127 overflows.
    finds(
        |m| {
            m.get("layers.1.ffn.experts.0.w1.scale").bytes[0] = 254;
            m.get("layers.1.ffn.experts.0.w1.weight").bytes[0] = 0x77;
        },
        &[(Bad, Check::Nonfinite, "experts.0.w1.weight", &["overflow"])],
    );
}

#[test]
fn scales_out_of_range() {
    finds(
        |m| m.get("layers.1.attn.wq_a.scale").bytes[2] = 255,
        &[(Bad, Check::Scale, "layers.1.attn.wq_a.scale", &["1 of 6", "row 1, column 0", "255 is NaN"])],
    );
    finds(
        |m| m.get("layers.1.ffn.experts.0.w2.scale").bytes[0] = 255,
        &[(Bad, Check::Scale, "experts.0.w2.scale", &["NaN"])],
    );
    let with_f32 = |m: &mut Model, first: f32| {
        m.take("layers.1.attn.wq_a.scale");
        let mut bytes = 0.01f32.to_le_bytes().repeat(6);
        bytes[..4].copy_from_slice(&first.to_le_bytes());
        m.put("layers.1.attn.wq_a.scale", "F32", &[3, 2], bytes);
    };
    for bad in [-1.0, f32::NAN, f32::INFINITY] {
        finds(|m| with_f32(m, bad), &[(Bad, Check::Scale, "wq_a.scale", &["1 of 6", "positive finite"])]);
    }
    finds(|m| with_f32(m, 0.0), &[(Warning, Check::Scale, "wq_a.scale", &["scale of zero"])]);
    // An exponent byte copied as a number: 2^-7 became 120 (a known fault).
    finds(|m| with_f32(m, 120.0), &[(Warning, Check::Scale, "wq_a", &["implausibly large", "exponent bytes"])]);
    finds(
        |m| m.get("layers.1.attn.wkv.weight").bytes.fill(0),
        &[(Warning, Check::Scale, "wkv", &["all weights are zero"])],
    );
    finds(
        |m| m.get("norm.weight").bytes.fill(0),
        &[(Warning, Check::Scale, "norm.weight", &["all values of a norm are zero"])],
    );
}

/// Puts NVFP4 in the place of one expert's matrix.
fn nvfp4(m: &mut Model, name: &str, scale: u8, global: f32, input: f32) {
    let codes = m.get(&format!("{name}.weight")).shape.clone();
    m.take(&format!("{name}.scale"));
    let shape = [codes[0], codes[1] / 8];
    m.put(&format!("{name}.weight_scale"), "F8_E4M3", &shape, vec![scale; shape[0] * shape[1]]);
    m.put(&format!("{name}.weight_scale_2"), "F32", &[], global.to_le_bytes().to_vec());
    m.put(&format!("{name}.input_scale"), "F32", &[], input.to_le_bytes().to_vec());
}

#[test]
fn nvfp4_scales() {
    let e = "layers.1.ffn.experts.1";
    let both = |m: &mut Model, up: f32| {
        nvfp4(m, &format!("{e}.w1"), 0x30, 0.01, 1.0);
        nvfp4(m, &format!("{e}.w3"), 0x30, up, 1.0);
    };
    finds(|m| both(m, 0.01), &[]);
    finds(|m| both(m, 0.04), &[(Warning, Check::Scale, e, &["w1 and w3 differ", "1 of 1 experts", "4.000x"])]);
    let w2 = format!("{e}.w2");
    finds(|m| nvfp4(m, &w2, 0x7F, 0.01, 1.0), &[(Bad, Check::Scale, "w2.weight_scale", &["E4M3"])]);
    finds(|m| nvfp4(m, &w2, 0xB0, 0.01, 1.0), &[(Bad, Check::Scale, "w2.weight_scale", &["no sign"])]);
    finds(|m| nvfp4(m, &w2, 0x30, f32::NAN, 1.0), &[(Bad, Check::Scale, "w2.weight_scale_2", &["1 of 1"])]);
    finds(|m| nvfp4(m, &w2, 0x30, 0.01, f32::NAN), &[(Warning, Check::Scale, "w2.input_scale", &["1 of 1"])]);
    // The inverse of a global scale (as compressed-tensors stores it).
    finds(
        |m| nvfp4(m, &w2, 0x60, 3584.0, 1.0),
        &[(Warning, Check::Scale, "w2.weight", &["inverse", "weight_scale_2"])],
    );
}

#[test]
fn expert_ids() {
    let set = |m: &mut Model, i: usize, id: i64| {
        m.get("layers.0.ffn.gate.tid2eid").bytes[i * 8..i * 8 + 8].copy_from_slice(&id.to_le_bytes());
    };
    for id in [3, -1, i64::MAX] {
        finds(|m| set(m, 5, id), &[(Bad, Check::Ids, "tid2eid", &["0 to 2", "1 ids", &id.to_string(), "token 2"])]);
    }
    finds(|m| set(m, 1, 0), &[(Warning, Check::Ids, "tid2eid", &["twice", "1 tokens, first 0"])]);
}

#[test]
fn structure() {
    finds(|m| drop(m.take("layers.1.attn.wkv.weight")), &[(Bad, Check::Missing, "layers.1.attn.wkv", &["missing"])]);
    finds(
        |m| drop(m.take("layers.1.attn.wkv.scale")),
        &[(Bad, Check::Dtype, "layers.1.attn.wkv", &["without scales"])],
    );
    finds(
        |m| m.get("layers.1.attn.wkv.weight").shape = vec![20, 128],
        &[(Bad, Check::Shape, "layers.1.attn.wkv", &["wrong shape"])],
    );
    finds(
        |m| {
            let t = m.get("layers.0.hc_attn_fn");
            t.dtype = "BF16".to_string();
            t.bytes = t.bytes.as_chunks::<4>().0.iter().flat_map(|b| [b[2], b[3]]).collect();
        },
        &[(Warning, Check::Dtype, "hc_attn_fn", &["rounded to BF16"])],
    );
    finds(|m| m.put("mystery", "F32", &[1], vec![0; 4]), &[(Bad, Check::Unused, "mystery", &["not used"])]);
    finds(
        |m| m.put("mtp.0.head.weight", "BF16", &[1], vec![0; 2]),
        &[(Note, Check::Unused, "mtp.0.head.weight", &["copy of the shared"])],
    );
    finds(
        |m| m.put("mtp.1.norm.weight", "BF16", &[1], vec![0; 2]),
        &[(Warning, Check::Unused, "mtp.1.norm", &["num_nextn_predict_layers"])],
    );
    finds(
        |m| m.put("model.norm.weight", "BF16", &[64], vec![0; 128]),
        &[(Bad, Check::Duplicate, "model.norm.weight", &["also", "norm.weight"])],
    );
    finds(
        |m| m.config["expert_dtype"] = json!("fp8"),
        &std::array::from_fn::<_, 36, _>(|_| (Bad, Check::Config, "experts", &["fp8"] as &[&str])),
    );
    // The text shows a few of a kind.
    let mut model = Model::new();
    model.config["expert_dtype"] = json!("fp8");
    let text = run(&model).to_string();
    assert_eq!(text.lines().count(), 1 + 5 + 1 + 1, "{text}");
    assert!(text.contains("31 more of this kind"), "{text}");
    // Two faults, two findings; errors come first.
    let mut model = Model::new();
    model.get("norm.weight").bytes.fill(0);
    model.take("head.weight");
    let report = run(&model);
    assert_eq!(report.findings.iter().map(|f| f.severity).collect::<Vec<_>>(), [Bad, Warning]);
}

#[test]
fn index_files() {
    let mut files = Model::new().sharded();
    files.insert("old.safetensors".to_string(), crate::testing::file("{}", &[]).into());
    let report = verify_memory("made", files.clone(), &|_, _| {}).unwrap();
    assert_eq!(report.findings.len(), 1, "{report}");
    assert!(report.findings[0].to_string().contains("old.safetensors"));
    let index = "model.safetensors.index.json";
    let text = String::from_utf8(files[index].to_vec()).unwrap().replace("\"total_size\":", "\"total_size\":1");
    files.remove("old.safetensors");
    files.insert(index.to_string(), text.into_bytes().into());
    let report = verify_memory("made", files, &|_, _| {}).unwrap();
    assert!(report.ok());
    assert!(report.to_string().contains("total_size"), "{report}");
}

#[test]
fn the_report_is_json() {
    let mut model = Model::new();
    model.take("norm.weight");
    let v = serde_json::to_value(run(&model)).unwrap();
    let first = &v["findings"][0];
    assert_eq!(
        (&first["severity"], &first["check"], &first["tensor"]),
        (&json!("error"), &json!("missing"), &json!("norm"))
    );
    assert!(first["error"]["what"].is_string());
}
