//! The checkpoint reader on the oracle's tiny model, whose shapes and dtypes come from an independent writer.

use karat_model::checkpoint::{Dtype, Encoding};
use karat_model::{Checkpoint, config::LayerKind};

#[test]
fn tiny_v4_opens_with_its_config() {
    let c = Checkpoint::from_memory("tiny-v4", karat_tests::tiny_v4_files()).unwrap();
    let config = c.config();
    assert_eq!(config.vocab_size, 512);
    let (csa, hca) = (LayerKind::Csa { ratio: 4 }, LayerKind::Hca { ratio: 128 });
    assert_eq!(config.layers, [LayerKind::Sliding, csa, hca, csa, hca]);
    assert_eq!(config.mtp, [LayerKind::Sliding]);
    assert_eq!((config.head_dim, config.qk_rope_head_dim), (96, 32));
    assert_eq!(config.compress_rope_theta, 160000.0);
    assert_eq!(config.swiglu_limit, 2.0);
}

#[test]
fn tiny_v4_linears_have_the_encodings_of_their_storage() {
    let c = Checkpoint::from_memory("tiny-v4", karat_tests::tiny_v4_files()).unwrap();
    let wq_b = c.linear("layers.1.attn.wq_b").unwrap();
    assert_eq!((wq_b.rows, wq_b.cols), (384, 128));
    assert_eq!(wq_b.encoding, Encoding::Fp8Block { block: [128, 128] });
    assert_eq!(wq_b.scale.unwrap().shape, [3, 1]);
    let w1 = c.linear("layers.0.ffn.experts.7.w1").unwrap();
    assert_eq!((w1.rows, w1.cols, w1.encoding), (128, 128, Encoding::Mxfp4));
    assert_eq!((w1.data.dtype, w1.data.bytes.len()), (Dtype::Packed4, 128 * 64));
    let gate = c.linear("layers.1.attn.compressor.wgate").unwrap();
    assert_eq!((gate.rows, gate.cols, gate.encoding), (192, 128, Encoding::Plain));
    assert_eq!(c.tensor("layers.0.ffn.gate.tid2eid").unwrap().dtype, Dtype::I64);
    assert!(c.tensor("layers.0.ffn.gate.bias").unwrap_err().to_string().contains("missing"));
}

#[test]
fn tiny_v4_passes_verification() {
    let report = karat_model::verify::verify_memory("tiny-v4", karat_tests::tiny_v4_files(), &|_, _| {}).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    assert_eq!((report.tensors, report.bytes > 3_900_000), (508, true));
}

#[test]
fn tiny_v4_differs_from_itself_only_where_it_was_changed() {
    use karat_model::diff::diff;
    let a = Checkpoint::from_memory("a", karat_tests::tiny_v4_files()).unwrap();
    let mut files = karat_tests::tiny_v4_files();
    // The last byte of the file belongs to the last tensor: an expert's packed codes.
    let mut bytes = files["model.safetensors"].to_vec();
    *bytes.last_mut().unwrap() ^= 0x77;
    files.insert("model.safetensors".to_string(), bytes.into());
    let b = Checkpoint::from_memory("b", files).unwrap();
    assert_ne!(a.weights_sha256(), b.weights_sha256());
    let report = diff(&a, &b, &|_, _| {}).unwrap();
    assert_eq!(report.worst().len(), 1, "{report}");
    assert_eq!(report.tensors.iter().filter(|t| !t.equal_bytes).count(), 1);
}
