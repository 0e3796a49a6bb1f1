//! The made model: the released format, the shape rules, the same bytes for a seed.

use std::collections::HashSet;

use safetensors::{Dtype, SafeTensors};

use super::{BOS, EOS, Experts, Geometry, new_model, new_model_with, write_model};
use crate::checkpoint::Encoding;
use crate::config::LayerKind;
use crate::prompt::{Encoder, Tokenizer, sha256_hex};
use crate::{Checkpoint, ErrorKind};

const GEOMETRIES: [Geometry; 2] = [Geometry::Default, Geometry::Mini];

#[test]
fn a_seed_gives_the_same_bytes_for_ever() {
    for geometry in GEOMETRIES {
        let once = new_model(geometry, 8);
        assert_eq!(once, new_model(geometry, 8));
        let other = new_model(geometry, 9);
        assert_ne!(once["model.safetensors"], other["model.safetensors"]);
        for same in ["config.json", "tokenizer.json", "encoding.json"] {
            assert_eq!(once[same], other[same]);
        }
    }
    // Pinned: caches and bundles name models by these sums, so a change of one needs an entry in the changelog.
    let sum = |geometry| sha256_hex(&new_model(geometry, 1)["model.safetensors"]);
    assert_eq!(sum(Geometry::Default), "09bb6f54b1a9998a65fff8add0621c1d27ab798890b4bf87d689914dd8e99383");
    assert_eq!(sum(Geometry::Mini), "88b19c4da73e9eb6bd8a272280eab50fc97f986c3bcb7273e3eec265292eb984");
}

#[test]
fn tensors_have_the_released_dtypes_and_shapes() {
    let files = new_model(Geometry::Default, 1);
    let tensors = SafeTensors::deserialize(&files["model.safetensors"]).unwrap();
    // Spec section 4's table at D 128, R 128, hd 96, H 4, I 128, window rows by ratio.
    let expected: [(&str, Dtype, &[usize]); 22] = [
        ("embed.weight", Dtype::BF16, &[512, 128]),
        ("head.weight", Dtype::BF16, &[512, 128]),
        ("hc_head_fn", Dtype::F32, &[4, 512]),
        ("layers.0.hc_attn_fn", Dtype::F32, &[24, 512]),
        ("layers.0.hc_ffn_scale", Dtype::F32, &[3]),
        ("layers.0.attn.attn_sink", Dtype::F32, &[4]),
        ("layers.0.attn.wq_b.weight", Dtype::F8_E4M3, &[384, 128]),
        ("layers.0.attn.wq_b.scale", Dtype::F8_E8M0, &[3, 1]),
        ("layers.0.attn.wo_a.weight", Dtype::F8_E4M3, &[128, 192]),
        ("layers.0.attn.wo_a.scale", Dtype::F8_E8M0, &[1, 2]),
        ("layers.0.ffn.gate.tid2eid", Dtype::I64, &[512, 3]),
        ("layers.1.attn.compressor.ape", Dtype::F32, &[4, 192]),
        ("layers.1.attn.compressor.wkv.weight", Dtype::BF16, &[192, 128]),
        ("layers.1.attn.indexer.weights_proj.weight", Dtype::BF16, &[16, 128]),
        ("layers.1.attn.indexer.compressor.ape", Dtype::F32, &[4, 128]),
        ("layers.1.attn.indexer.compressor.norm.weight", Dtype::BF16, &[64]),
        ("layers.2.attn.compressor.ape", Dtype::F32, &[128, 96]),
        ("layers.2.ffn.gate.bias", Dtype::F32, &[8]),
        ("layers.5.ffn.experts.7.w2.weight", Dtype::I8, &[128, 64]),
        ("layers.5.ffn.experts.7.w2.scale", Dtype::F8_E8M0, &[128, 4]),
        ("mtp.0.e_proj.weight", Dtype::F8_E4M3, &[128, 128]),
        ("mtp.0.hc_head_base", Dtype::F32, &[4]),
    ];
    for (name, dtype, shape) in expected {
        let view = tensors.tensor(name).unwrap();
        assert_eq!((view.dtype(), view.shape()), (dtype, shape), "{name}");
    }
    let names: HashSet<&str> = tensors.names().into_iter().collect();
    for absent in [
        "layers.0.attn.compressor.ape",
        "layers.2.attn.indexer.wq_b.weight",
        "layers.2.ffn.gate.tid2eid",
        "layers.0.ffn.gate.bias",
        "mtp.0.ffn.gate.tid2eid",
    ] {
        assert!(!names.contains(absent), "{absent}");
    }
}

#[test]
fn values_are_finite_and_spread_as_a_model_needs() {
    for geometry in GEOMETRIES {
        let files = new_model(geometry, 3);
        let tensors = SafeTensors::deserialize(&files["model.safetensors"]).unwrap();
        for (name, view) in tensors.tensors() {
            match view.dtype() {
                Dtype::F32 => {
                    assert!(view.data().chunks_exact(4).all(|b| f32::from_le_bytes(b.try_into().unwrap()).is_finite()));
                }
                Dtype::F8_E4M3 => assert!(view.data().iter().all(|b| b & 0x7f != 0x7f), "{name}: a NaN code"),
                Dtype::F8_E8M0 => assert!(view.data().iter().all(|&b| (100..140).contains(&b)), "{name}: a wild scale"),
                Dtype::I64 => {
                    for row in view.data().chunks_exact(8 * 3) {
                        let experts: HashSet<i64> =
                            row.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect();
                        assert!(experts.len() == 3 && experts.iter().all(|e| (0..8).contains(e)), "{name}");
                    }
                }
                _ => {}
            }
        }
        // A gain of 1/sqrt(128): standard deviation 0.0884 within the error of 128*128 samples.
        let gate = tensors.tensor("layers.1.ffn.gate.weight").unwrap();
        let values: Vec<f64> = gate
            .data()
            .chunks_exact(2)
            .map(|b| f64::from(half::bf16::from_le_bytes(b.try_into().unwrap()).to_f32()))
            .collect();
        let deviation = (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt();
        assert!((deviation * 128_f64.sqrt() - 1.0).abs() < 0.1, "{deviation}");
    }
}

#[test]
fn scales_differ_between_blocks() {
    let files = new_model(Geometry::Default, 1);
    let tensors = SafeTensors::deserialize(&files["model.safetensors"]).unwrap();
    let distinct: HashSet<u8> =
        (0..6).flat_map(|l| tensors.tensor(&format!("layers.{l}.attn.wq_b.scale")).unwrap().data().to_vec()).collect();
    assert!(distinct.len() > 1, "{distinct:?}");
    let rows: HashSet<u8> = tensors.tensor("layers.0.ffn.experts.0.w1.scale").unwrap().data().iter().copied().collect();
    assert!(rows.len() > 1, "{rows:?}");
}

#[test]
fn writing_is_whole_and_never_overwrites() {
    let files = new_model(Geometry::Mini, 1);
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("made");
    write_model(&dir, &files).unwrap();
    for (name, bytes) in &files {
        assert_eq!(&*std::fs::read(dir.join(name)).unwrap(), &**bytes, "{name}");
    }
    let refused = write_model(&dir, &files).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Usage);
    assert!(refused.to_string().contains("made"), "{refused}");
    // Only the model is left: no temporary folder.
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 1);
    std::fs::create_dir(parent.path().join("empty")).unwrap();
    write_model(&parent.path().join("empty"), &files).unwrap();
}

#[test]
fn a_made_model_opens_as_a_checkpoint() {
    let kinds = |geometry| {
        let checkpoint = Checkpoint::from_memory("made", new_model(geometry, 1)).unwrap();
        let encoder = Encoder::of(&checkpoint).unwrap();
        assert_eq!(encoder.texts().origin, "karat");
        let tokenizer = Tokenizer::of(&checkpoint).unwrap();
        assert_eq!(tokenizer.len(), checkpoint.config().vocab_size);
        let config = checkpoint.config();
        assert_eq!((config.bos_token_id, config.eos_token_id), (BOS, EOS));
        // Spec section 4's rules for tiny configs.
        for multiple_of_128 in
            [config.hidden_size, config.q_lora_rank, config.o_groups * config.o_lora_rank, config.moe_intermediate_size]
        {
            assert_eq!(multiple_of_128 % 128, 0);
        }
        assert_eq!(config.nope_head_dim() % 64, 0);
        assert!(config.index_head_dim.is_power_of_two() && config.index_head_dim.is_multiple_of(32));
        assert!(config.index_n_heads >= 16 && config.num_attention_heads.is_multiple_of(config.o_groups));
        (config.sliding_window, config.index_topk, config.layers.clone(), config.mtp.clone())
    };
    let (sliding, csa, hca) = (LayerKind::Sliding, LayerKind::Csa { ratio: 4 }, |ratio| LayerKind::Hca { ratio });
    assert_eq!(kinds(Geometry::Default), (128, 16, vec![sliding, csa, hca(128), csa, hca(128), csa], vec![sliding]));
    assert_eq!(kinds(Geometry::Mini), (16, 8, vec![sliding, csa, hca(16), csa], vec![sliding]));
}

/// The other format stores the same values: everything but the experts has the same bytes, and what the two formats lose
/// is what one rounding of each costs (9.5e-2 and 1.2e-1 of random values).
#[test]
fn nvfp4_experts_are_the_same_values_in_the_other_format() {
    let (a, b) = (new_model(Geometry::Mini, 4), new_model_with(Geometry::Mini, 4, Experts::Nvfp4));
    let (a, b) = (SafeTensors::deserialize(&a["model.safetensors"]).unwrap(), b["model.safetensors"].clone());
    let tensors = SafeTensors::deserialize(&b).unwrap();
    for (name, view) in a.tensors().iter().filter(|(name, _)| !name.contains(".experts.")) {
        assert_eq!(view.data(), tensors.tensor(name).unwrap().data(), "{name}");
    }
    let files = new_model_with(Geometry::Mini, 4, Experts::Nvfp4);
    let checkpoint = Checkpoint::from_memory("made", files).unwrap();
    for at in ["layers.1.ffn.experts.2", "mtp.0.ffn.experts.0"] {
        let of = |which: &str| checkpoint.linear(&format!("{at}.{which}")).unwrap();
        assert!(["w1", "w2", "w3"].iter().all(|w| of(w).encoding == Encoding::Nvfp4), "{at}");
        let global = |which: &str| of(which).global_scale.unwrap().bytes.to_vec();
        assert_eq!(global("w1"), global("w3"));
        assert_ne!(global("w1"), global("w2"));
    }
    let report = crate::verify::verify_memory("made", new_model_with(Geometry::Mini, 4, Experts::Nvfp4), &|_, _| ());
    assert!(report.unwrap().ok());
}
