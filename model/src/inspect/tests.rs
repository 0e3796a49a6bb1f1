//! Numbers counted by hand for the small model of `crate::testing`.

use super::*;
use crate::testing::Model;

#[test]
fn a_small_model_in_numbers() {
    let mut files = Model::new().sharded();
    files.insert("tokenizer.json".to_string(), b"{}".as_slice().into());
    let c = Checkpoint::from_memory("made", files).unwrap();
    let s = inspect(&c).unwrap();
    // D 64, H 2, hd 40, R 48, G 2, o 16, E 3, K 2, I 32, V 24, hc 4, Hi 2, di 16.
    let hc = 2 * (24 * 256 + 24 + 3);
    let attention = 2 + 48 * 64 + 48 + 80 * 48 + 40 * 64 + 40 + 32 * 40 + 64 * 32;
    let csa = (4 * 80 + 2 * 80 * 64 + 40) + 32 * 48 + 2 * 64 + (4 * 32 + 2 * 32 * 64 + 16);
    let hca = 128 * 40 + 2 * 40 * 64 + 40;
    let expert = 3 * 32 * 64;
    let block = 2 * 64 + hc + attention + 3 * 64 + expert * (3 + 1);
    let head = 4 * 256 + 4 + 1;
    // Layer 0 has expert ids, the others a bias of 3.
    let all = 2 * 24 * 64 + 64 + head + 3 * block + csa + hca + 2 * 3;
    assert_eq!(s.parameters, all);
    assert_eq!(s.active_parameters, all - 3 * expert);
    assert_eq!(s.mtp_parameters, block + 3 + 2 * 64 * 64 + 3 * 64 + head);
    let layers = [
        ("sliding, hash routing", vec![0]),
        ("CSA ratio 4, scored routing", vec![1]),
        ("HCA ratio 128, scored routing", vec![2]),
        ("MTP, sliding, scored routing", vec![3]),
    ];
    assert_eq!(s.layers, layers.map(|(n, l)| (n.to_string(), l)));
    let model = Model::new();
    assert_eq!(s.tensors, model.tensors.len());
    assert_eq!(s.bytes, model.tensors.iter().map(|t| t.bytes.len() as u64).sum::<u64>());
    assert_eq!(s.dtypes["I64"], (1, 24 * 2 * 8));
    assert_eq!(s.dtypes["I8"], (4 * 3 * 3, 4 * 3 * expert / 2));
    assert_eq!(s.shards.len(), 2);
    assert_eq!(s.side_files, [("tokenizer.json".to_string(), true), ("encoding.json".to_string(), false)]);
    let text = s.to_string();
    for words in ["1 CSA ratio 4, scored routing: 1", "swiglu_limit 2", "tokenizer.json yes, encoding.json no"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn lists_of_layers_are_short() {
    assert_eq!(ranges(&[]), "");
    assert_eq!(ranges(&[0, 1, 3, 4, 5, 9]), "0-1,3-5,9");
}
