//! Faults that live in a checkpoint's bytes, in the trained golden model: found without a forward pass, by statistics alone
//! where nothing else is known, and by name where the original is at hand. The right model has no finding.

use std::collections::BTreeMap;
use std::sync::Arc;

use karat_faults::Files;
use karat_model::Checkpoint;
use karat_model::diff::diff;
use karat_model::formats::bf16;
use karat_model::verify::{Report, verify_memory};

fn verify(files: BTreeMap<String, Arc<[u8]>>) -> Report {
    verify_memory("made", files, &|_, _| {}).unwrap()
}

fn copy(files: &mut Files, from: &str, to: &str) {
    let bytes = files.bytes(from).to_vec();
    files.bytes(to).copy_from_slice(&bytes);
}

fn exchange(files: &mut Files, a: &str, b: &str) {
    let (old_a, old_b) = (files.bytes(a).to_vec(), files.bytes(b).to_vec());
    files.bytes(a).copy_from_slice(&old_b);
    files.bytes(b).copy_from_slice(&old_a);
}

/// One fault of a loader in each layer.
fn damage(files: &mut Files) {
    for expert in 0..5 {
        for part in ["weight", "scale"] {
            let name = |w: &str| format!("layers.1.ffn.experts.{expert}.{w}.{part}");
            exchange(files, &name("w1"), &name("w3"));
        }
    }
    files.experts(2, "w1.weight", |bytes, _| bytes.iter_mut().for_each(|b| *b = b.rotate_left(4)));
    copy(files, "layers.0.ffn.gate.tid2eid", "layers.2.ffn.gate.tid2eid");
    copy(files, "layers.4.ffn.experts.0.w3.scale", "layers.3.ffn.experts.0.w3.scale");
    // Stored in halves: column j in the low nibble of byte j of a block, column j + 16 in the high one.
    files.experts(4, "w2.weight", |bytes, _| {
        for block in bytes.as_chunks_mut::<16>().0 {
            let old = *block;
            let code = |c: usize| if c.is_multiple_of(2) { old[c / 2] & 15 } else { old[c / 2] >> 4 };
            block.iter_mut().enumerate().for_each(|(j, b)| *b = code(j) | code(j + 16) << 4);
        }
    });
    files.experts(5, "w3.scale", |bytes, _| bytes.iter_mut().for_each(|b| *b -= 2));
    let transposed = |bytes: &mut [u8], shape: &[usize]| {
        let (rows, cols, old) = (shape[0], shape[1], bytes.to_vec());
        (0..bytes.len()).for_each(|i| bytes[i] = old[i % rows * cols + i / rows]);
    };
    files.experts(6, "w2.scale", transposed);
    let rounded: Vec<f32> = files.f32s("layers.6.hc_attn_fn").into_iter().map(bf16::round).collect();
    files.put_f32s("layers.6.hc_attn_fn", &rounded);
}

#[test]
fn faults_in_the_bytes_of_a_trained_model_are_found_before_any_forward_pass() {
    let right = karat_golden::files();
    let clean = verify(right.clone());
    assert!(clean.findings.is_empty(), "{clean}");

    let mut files = Files::of(&right);
    damage(&mut files);
    let wrong = files.into_files();
    let report = verify(wrong.clone());
    let shown = report.to_string();
    let wanted = [
        ("layers.1.ffn", "gate and up look exchanged"),
        ("layers.2.ffn.experts.*.w1", "the two codes of every byte exchanged"),
        ("layers.2.ffn.gate.tid2eid", "the same bytes as another tensor"),
        ("layers.3.ffn.experts.0.w3", "scales are not those of their codes"),
        ("layers.3.ffn.experts.0.w3.scale", "the same bytes as another tensor"),
        ("layers.4.ffn.experts.*.w2", "halves of a block taken for pairs"),
        ("layers.5.ffn", "up projections have another level than gates"),
        ("layers.6.ffn.experts.0.w2", "scales are not those of their codes"),
        ("layers.6.hc_attn_fn", "all values are BF16 values"),
    ];
    for (tensor, words) in wanted {
        let told = report.findings.iter().any(|f| {
            let text = f.to_string();
            text.contains(tensor) && text.contains(words)
        });
        assert!(told, "{tensor}: {words}: {shown}");
    }
    // The transposed scales are told of each of the five experts, the rest once; nothing else is said.
    assert_eq!(report.findings.len(), wanted.len() + 4, "{shown}");
    assert!(report.ok(), "the forward pass is defined: these are warnings");

    let open = |files| Checkpoint::from_memory("made", files).unwrap();
    let against = diff(&open(right), &open(wrong), &|_, _| {}).unwrap();
    let looks = |name: &str| {
        let found = against.tensors.iter().find(|t| t.name == name).and_then(|t| t.looks_like.clone());
        found.unwrap_or_else(|| panic!("{name} looks like nothing: {against}"))
    };
    assert_eq!(looks("layers.1.ffn.experts.3.w1"), "it is layers.1.ffn.experts.3.w3");
    assert_eq!(looks("layers.2.ffn.experts.4.w1"), "the two codes of every byte are exchanged");
    assert_eq!(looks("layers.2.ffn.gate.tid2eid"), "it is layers.0.ffn.gate.tid2eid");
    assert_eq!(looks("layers.3.ffn.experts.0.w3"), "its scales are those of layers.4.ffn.experts.0.w3");
    assert!(looks("layers.4.ffn.experts.1.w2").contains("in halves where pairs were"));
    assert_eq!(looks("layers.5.ffn.experts.2.w3"), "its scales are 0.25 times as large");
    assert_eq!(looks("layers.6.ffn.experts.0.w2"), "its scales are transposed");
    assert_eq!(looks("layers.6.hc_attn_fn"), "it is rounded to BF16");
}
