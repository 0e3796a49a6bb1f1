//! Every way of storing a weight that spec section 4 names, in both namings; and what doesn't fit together.

use serde_json::json;

use crate::checkpoint::{Dtype, Encoding, to_transformers};
use crate::formats::{bf16, decode_rows, e2m1, e4m3};
use crate::testing::{Model, Tensor};
use crate::{Checkpoint, checkpoint::Weight};

/// A linear's values.
fn values(w: &Weight<'_>) -> Vec<f32> {
    let mut out = vec![0.0; w.rows * w.cols];
    decode_rows(w, 0, &mut out);
    out
}

fn linear(c: &Checkpoint, name: &str) -> Vec<f32> {
    values(&c.linear(name).unwrap())
}

fn power(byte: u8) -> f32 {
    f64::from(i32::from(byte) - 127).exp2() as f32
}

#[track_caller]
fn refuses(model: &Model, words: &[&str]) {
    let message = model.refused();
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    assert!(!message.contains('\n'));
}

#[test]
fn fp8_blocks_have_partial_edges() {
    let mut model = Model::new();
    // wkv is [40,64] in blocks of 16x32: scales [3,2], the last one for 8 rows.
    let codes = model.get("layers.1.attn.wkv.weight").clone();
    let scales = model.get("layers.1.attn.wkv.scale").clone();
    assert_eq!((codes.shape.as_slice(), scales.shape.as_slice()), ([40, 64].as_slice(), [3, 2].as_slice()));
    let c = model.open().unwrap();
    let w = c.linear("layers.1.attn.wkv").unwrap();
    assert_eq!(w.encoding, Encoding::Fp8Block { block: [16, 32] });
    let got = values(&w);
    for r in 0..40 {
        for k in 0..64 {
            let want = e4m3::decode(codes.bytes[r * 64 + k]) * power(scales.bytes[r / 16 * 2 + k / 32]);
            assert_eq!(got[r * 64 + k], want, "row {r}, column {k}");
        }
    }
    // Some rows from the middle.
    let mut some = vec![0.0; 3 * 64];
    decode_rows(&w, 15, &mut some);
    assert_eq!(some, got[15 * 64..18 * 64]);
}

#[test]
fn scales_may_be_e8m0_bytes_f32_or_bf16_under_three_names() {
    let base = Model::new();
    let want = linear(&base.open().unwrap(), "layers.2.attn.wo_b");
    for name in ["scale", "weight_scale", "weight_scale_inv"] {
        for dtype in ["F8_E8M0", "U8", "F32", "BF16"] {
            let mut model = base.clone();
            let s = model.take("layers.2.attn.wo_b.scale");
            let bytes = match dtype {
                "F32" => s.bytes.iter().flat_map(|b| power(*b).to_le_bytes()).collect(),
                "BF16" => s.bytes.iter().flat_map(|b| bf16::encode(power(*b)).to_le_bytes()).collect(),
                _ => s.bytes,
            };
            model.put(&format!("layers.2.attn.wo_b.{name}"), dtype, &s.shape, bytes);
            assert_eq!(linear(&model.open().unwrap(), "layers.2.attn.wo_b"), want, "{name} {dtype}");
        }
    }
}

#[test]
fn any_linear_may_be_plain_or_fp8() {
    let mut model = Model::new();
    // A compressor weight as FP8 with a scale (Base checkpoints), wq_a decoded to BF16, an expert decoded to F32.
    model.take("layers.1.attn.compressor.wkv.weight");
    model.put("layers.1.attn.compressor.wkv.weight", "F8_E4M3", &[80, 64], vec![0x38; 80 * 64]);
    model.put("layers.1.attn.compressor.wkv.scale", "F32", &[5, 2], 0.25f32.to_le_bytes().repeat(10));
    for name in ["layers.1.attn.wq_a", "layers.1.ffn.experts.2.w3"] {
        model.take(&format!("{name}.weight"));
        model.take(&format!("{name}.scale"));
    }
    model.put("layers.1.attn.wq_a.weight", "BF16", &[48, 64], bf16::encode(0.5).to_le_bytes().repeat(48 * 64));
    model.put("layers.1.ffn.experts.2.w3.weight", "F32", &[32, 64], 0.1f32.to_le_bytes().repeat(32 * 64));
    let c = model.open().unwrap();
    assert_eq!(linear(&c, "layers.1.attn.compressor.wkv"), vec![0.25; 80 * 64]);
    assert_eq!(linear(&c, "layers.1.attn.wq_a"), vec![0.5; 48 * 64]);
    assert_eq!(linear(&c, "layers.1.ffn.experts.2.w3"), vec![0.1; 32 * 64]);
    assert_eq!(c.linear("layers.1.ffn.experts.2.w3").unwrap().encoding, Encoding::Plain);
}

#[test]
fn ids_may_be_i32_and_packed_codes_u8() {
    let mut model = Model::new();
    let t = model.get("layers.0.ffn.gate.tid2eid");
    t.dtype = "I32".to_string();
    t.bytes = t.bytes.as_chunks::<8>().0.iter().flat_map(|b| b[..4].to_vec()).collect();
    model.get("layers.0.ffn.experts.0.w1.weight").dtype = "U8".to_string();
    let c = model.open().unwrap();
    assert_eq!(c.tensor("layers.0.ffn.gate.tid2eid").unwrap().dtype, Dtype::I32);
    let same = Model::new().open().unwrap();
    assert_eq!(linear(&c, "layers.0.ffn.experts.0.w1"), linear(&same, "layers.0.ffn.experts.0.w1"));
}

/// Turns one expert matrix into NVFP4 with the given scales.
fn to_nvfp4(model: &mut Model, name: &str, scale: u8, global: f32) {
    let codes = model.get(&format!("{name}.weight")).clone();
    model.take(&format!("{name}.scale"));
    let shape = [codes.shape[0], codes.shape[1] * 2 / 16];
    model.put(&format!("{name}.weight_scale"), "F8_E4M3", &shape, vec![scale; shape[0] * shape[1]]);
    model.put(&format!("{name}.weight_scale_2"), "F32", &[], global.to_le_bytes().to_vec());
    model.put(&format!("{name}.input_scale"), "F32", &[1], 0.5f32.to_le_bytes().to_vec());
}

#[test]
fn nvfp4_multiplies_both_scales() {
    let mut model = Model::new();
    let name = "layers.1.ffn.experts.1.w2";
    to_nvfp4(&mut model, name, 0x41, 0.125);
    let codes = model.get(&format!("{name}.weight")).bytes.clone();
    let c = model.open().unwrap();
    let w = c.linear(name).unwrap();
    assert_eq!((w.rows, w.cols, w.encoding), (64, 32, Encoding::Nvfp4));
    assert_eq!(w.input_scale.as_ref().unwrap().bytes, 0.5f32.to_le_bytes());
    // 0x41 is 2.25.
    let want: Vec<f32> =
        codes.iter().flat_map(|b| [b & 15, b >> 4]).map(|code| e2m1::decode(code) * 2.25 * 0.125).collect();
    assert_eq!(values(&w), want);
}

/// The same model in transformers' naming and config spelling, experts fused.
fn in_transformers_words(model: &Model) -> Model {
    let mut out = Model { config: model.config.clone(), tensors: Vec::new() };
    let config = out.config.as_object_mut().unwrap();
    for key in ["compress_ratios", "num_hash_layers", "qk_rope_head_dim"] {
        config.remove(key);
    }
    let types = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"];
    config.insert("layer_types".to_string(), json!(types));
    config.insert("mlp_layer_types".to_string(), json!(["hash_moe", "moe", "moe"]));
    let rates = json!({"compressed_sparse_attention": 4, "heavily_compressed_attention": 128});
    config.insert("compress_rates".to_string(), rates);
    config.insert("partial_rotary_factor".to_string(), json!(0.2));
    let mut fused: Vec<Tensor> = Vec::new();
    for t in &model.tensors {
        let Some(name) = to_transformers(&t.name) else { continue };
        let name = if name.starts_with("lm_head") { name } else { format!("model.{name}") };
        if !name.contains("mlp.experts.") {
            out.put(&name, &t.dtype, &t.shape, t.bytes.clone());
            continue;
        }
        // Inventory order is w1, w2, w3 of each expert in turn, so appending gives w1 rows, then w3 rows of expert 0...
        match fused.iter_mut().find(|f| f.name == name) {
            Some(f) => f.bytes.extend(&t.bytes),
            None => fused.push(Tensor { name, ..t.clone() }),
        }
    }
    for mut f in fused {
        let rows = if f.name.contains("gate_up") { 2 * f.shape[0] } else { f.shape[0] };
        f.shape = vec![3, rows, f.shape[1]];
        out.tensors.push(f);
    }
    out
}

#[test]
fn transformers_naming_gives_the_same_weights() {
    let model = Model::new();
    let (a, b) = (model.open().unwrap(), in_transformers_words(&model).open().unwrap());
    // transformers keeps the number of MTP blocks in the config and drops their tensors.
    assert_eq!((a.config().mtp.len(), b.config().mtp.len()), (1, 0));
    assert_eq!(a.config().layers, b.config().layers);
    for e in b.inventory() {
        if e.name.contains("experts.") {
            let (x, y) = (a.linear(&e.name).unwrap(), b.linear(&e.name).unwrap());
            assert_eq!((x.rows, x.cols, x.encoding), (y.rows, y.cols, y.encoding), "{}", e.name);
            assert_eq!(values(&x), values(&y), "{}", e.name);
        } else {
            assert_eq!(a.tensor(&e.disk_name()).unwrap().bytes, b.tensor(&e.disk_name()).unwrap().bytes, "{}", e.name);
        }
    }
    // Equal parts have equal hashes whatever their names: a checkpoint without MTP in the released naming is the same.
    let mut without = Model::new();
    without.tensors.retain(|t| !t.name.starts_with("mtp."));
    without.config["num_nextn_predict_layers"] = json!(0);
    assert_eq!(without.open().unwrap().weights_sha256(), b.weights_sha256());
}

#[test]
fn fused_fp8_experts_split_only_at_a_block() {
    let mut model = Model::new();
    model.config["expert_dtype"] = json!("fp8");
    let mut fp8 = Model::of(model.config.clone());
    let fused = in_transformers_words(&fp8);
    let (a, b) = (fp8.open().unwrap(), fused.open().unwrap());
    for name in ["layers.2.ffn.experts.2.w1", "layers.2.ffn.experts.1.w3", "layers.0.ffn.experts.0.w2"] {
        assert_eq!(linear(&a, name), linear(&b, name), "{name}");
    }
    // Blocks of 64 rows span w1 and w3 (32 rows each).
    fp8.config["quantization_config"]["weight_block_size"] = json!([64, 64]);
    let fused = in_transformers_words(&Model::of(fp8.config.clone()));
    refuses(&fused, &["gate_up_proj_scale_inv", "split between w1 and w3"]);
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let w = "layers.1.attn.wq_a";
    let e = "layers.1.ffn.experts.1.w1";
    let edit = |f: &dyn Fn(&mut Model)| {
        let mut model = Model::new();
        f(&mut model);
        model
    };
    refuses(&edit(&|m| drop(m.take("layers.1.attn.wq_a.weight"))), &[w, "missing"]);
    refuses(&edit(&|m| drop(m.take("layers.1.attn.wq_a.scale"))), &[w, "without scales"]);
    refuses(&edit(&|m| drop(m.take("norm.weight"))), &["tensor norm", "missing"]);
    refuses(&edit(&|m| m.get("layers.1.attn.wq_a.scale").shape = vec![2, 3]), &[w, "wrong shape", "[3, 2]", "[2, 3]"]);
    refuses(&edit(&|m| m.get("layers.1.attn.wq_a.weight").shape = vec![64, 48]), &[w, "wrong shape"]);
    refuses(&edit(&|m| m.get("hc_head_fn").shape = vec![256, 4]), &["hc_head_fn", "transposed"]);
    refuses(
        &edit(&|m| m.get("layers.1.attn.wq_a.weight").dtype = "F8_E5M2".to_string()),
        &[w, "unsupported dtype", "F8_E5M2"],
    );
    refuses(
        &edit(&|m| m.get("layers.1.attn.wq_a.scale").dtype = "F8_E4M3".to_string()),
        &[w, "unsupported dtype", "F8_E8M0"],
    );
    refuses(&edit(&|m| m.get("norm.weight").dtype = "F16".to_string()), &["norm.weight", "unsupported dtype", "F16"]);
    refuses(
        &edit(&|m| m.put("layers.1.attn.wq_a.bias", "BF16", &[1], vec![0; 2])),
        &["wq_a.bias", "not used", "has a bias"],
    );
    refuses(&edit(&|m| m.put("layers.1.ffn.gate.tid2eid", "I64", &[1], vec![0; 8])), &["tid2eid", "num_hash_layers"]);
    refuses(&edit(&|m| m.put("layers.0.attn.compressor.ape", "F32", &[1], vec![0; 4])), &["ape", "compress_ratios"]);
    refuses(
        &edit(&|m| m.put("layers.1.attn.wq_a.weight_scale_inv", "F8_E8M0", &[3, 2], vec![1; 6])),
        &[w, "two tensors"],
    );
    refuses(&edit(&|m| m.put("layers.1.attn.wq_a.weight_scale_2", "F32", &[], vec![0; 4])), &[w, "NVFP4"]);
    refuses(
        &edit(&|m| m.put("layers.1.attn.compressor.wkv.scale", "F32", &[1, 1], vec![0; 4])),
        &["wkv.scale", "plain weight"],
    );
    refuses(&edit(&|m| m.put("model.embed_tokens.weight", "BF16", &[1], vec![0; 2])), &["two tensors", "embed.weight"]);
    refuses(
        &edit(&|m| {
            to_nvfp4(m, e, 0x30, 1.0);
            m.take(&format!("{e}.weight_scale_2"));
        }),
        &[e, "global scale"],
    );
    refuses(&edit(&|m| m.get(&format!("{e}.scale")).shape = vec![64, 1]), &[e, "MXFP4"]);
    refuses(&edit(&|m| drop(m.take(&format!("{e}.scale")))), &[e, "without scales"]);
    let several = edit(&|m| {
        m.take("norm.weight");
        m.take("head.weight");
    });
    refuses(&several, &["1 more finding", "karat model verify"]);
}

#[test]
fn expert_dtype_must_be_what_the_tensors_are() {
    let mut model = Model::new();
    model.config["expert_dtype"] = json!("fp8");
    refuses(&model, &["experts are stored in another way", "fp8", "fp4"]);
    // Left open by the config, the tensors decide.
    let mut fp8 = Model::of(model.config.clone());
    fp8.config.as_object_mut().unwrap().remove("expert_dtype");
    assert_eq!(fp8.open().unwrap().config().expert_dtype, crate::config::ExpertDtype::Fp8);
}

#[test]
fn copies_in_an_mtp_block_are_skipped_and_a_missing_block_is_not() {
    let mut model = Model::new();
    let embed = model.get("embed.weight").clone();
    for name in ["mtp.0.emb.tok_emb.weight", "mtp.0.head.weight"] {
        model.put(name, "BF16", &embed.shape, embed.bytes.clone());
    }
    let c = model.open().unwrap();
    assert_eq!(c.weights_sha256(), Model::new().open().unwrap().weights_sha256());
    model.tensors.retain(|t| !t.name.starts_with("mtp."));
    refuses(&model, &["mtp.0", "missing"]);
}
