use std::path::PathBuf;

use super::*;
use crate::TensorFile;
use crate::dumps::open_any;

/// A file that torch wrote (`xtask/oracle/import_fixtures.py`).
fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/import").join(name)
}

fn refused(name: &str) -> String {
    open_any(&fixture(name)).err().unwrap().to_string()
}

#[test]
fn tensors_are_those_that_torch_saved() {
    let expected = TensorFile::open(&fixture("expected.safetensors")).unwrap();
    let found = open_any(&fixture("dict.pt")).unwrap();
    let mut seen = 0;
    for name in expected.names() {
        assert_eq!(found.tensor(name).unwrap(), expected.tensor(name).unwrap(), "{name}");
        assert_eq!(found.dtype(name).unwrap(), expected.dtype(name).unwrap(), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 17);
    let same = |name: &str, of: &str| assert_eq!(found.tensor(name).unwrap(), expected.tensor(of).unwrap(), "{name}");
    same("parameter", "plain");
    same("nested.0", "scalar");
    same("nested.1.0", "ids");
    same("ordered.a", "mask");
    assert_eq!(found.unread(), [("complex".to_string(), "element type torch.complex64".to_string())]);
    assert_eq!(found.names().count(), 17 + 7);
}

#[test]
fn narrow_integers_and_e5m2_are_widened() {
    let found = open_any(&fixture("dict.pt")).unwrap();
    assert_eq!(found.tensor("u16").unwrap().as_i64("u16").unwrap(), [0, 65535]);
    assert_eq!(found.tensor("i16").unwrap().as_i64("i16").unwrap(), [-32768, 32767]);
    // E5M2 has two bits of mantissa: each value is within an eighth of the f32 one, and a multiple of a quarter of its
    // power of two.
    let (e5m2, plain) = (found.tensor("e5m2").unwrap(), found.tensor("plain").unwrap());
    for (code, value) in e5m2.as_f32("e5m2").unwrap().iter().zip(plain.as_f32("plain").unwrap()) {
        assert!((code - value).abs() <= value.abs() / 8.0 + 1e-5, "{code} for {value}");
    }
}

#[test]
fn other_protocols_bare_tensors_and_state_dicts_are_read() {
    let expected = TensorFile::open(&fixture("expected.safetensors")).unwrap();
    let four = open_any(&fixture("protocol4.pt")).unwrap();
    assert_eq!(four.tensor("b").unwrap(), expected.tensor("turned").unwrap());
    let bare = open_any(&fixture("bare.pt")).unwrap();
    assert_eq!(bare.tensor("value").unwrap(), expected.tensor("bf16").unwrap());
    let state = open_any(&fixture("state.pt")).unwrap();
    assert_eq!((state.shape("weight"), state.shape("bias")), (Some(&[3, 2][..]), Some(&[3][..])));
}

#[test]
fn anything_else_is_refused_by_name() {
    let text = refused("foreign.pt");
    assert!(text.contains("global that is not read: found __main__.Foreign") && text.contains("pickle byte"), "{text}");
    let text = refused("legacy.pt");
    assert!(text.contains("torch before 1.6") && text.contains("save it again"), "{text}");
}

/// An archive with this pickle and one storage of 24 floats.
fn archive(pickle: &[u8], order: &[u8]) -> Arc<Blob> {
    let members: &[(&str, &[u8])] = &[("x/data.pkl", pickle), ("x/byteorder", order), ("x/data/0", &[0; 96])];
    Arc::new(Blob::Held(crate::import::zip::tests::stored(members).into()))
}

/// A bare tensor of this shape, these steps and this start.
fn bare(shape: [u8; 2], strides: [u8; 2], offset: u8) -> Vec<u8> {
    let mut p = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x18tQ".to_vec();
    p.extend([b'K', offset, b'K', shape[0], b'K', shape[1], 0x86, b'K', strides[0], b'K', strides[1], 0x86]);
    p.extend(b"\x89ccollections\nOrderedDict\n)RtR.");
    p
}

#[test]
fn views_stay_within_their_storage() {
    let open = |p: &[u8]| read(&archive(p, b"little")).map(|c| c.arrays["value"].shape().to_vec());
    assert_eq!(open(&bare([4, 6], [6, 1], 0)).unwrap(), [4, 6]);
    assert_eq!(open(&bare([6, 4], [1, 6], 0)).unwrap(), [6, 4]);
    for (shape, strides, offset) in
        [([4, 6], [6, 1], 1), ([4, 7], [6, 1], 0), ([5, 6], [6, 1], 0), ([1, 1], [1, 1], 24)]
    {
        let text = open(&bare(shape, strides, offset)).unwrap_err().to_string();
        assert!(text.contains("tensor value: tensor reaches beyond its storage"), "{text}");
    }
}

#[test]
fn big_endian_files_are_refused() {
    let text = read(&archive(&bare([4, 6], [6, 1], 0), b"big")).err().unwrap().to_string();
    assert!(text.contains("big-endian"), "{text}");
}

#[test]
fn lists_that_hold_each_other_many_times_end() {
    // l1 = [t, t], l2 = [l1, l1], ...: 2^40 names of one tensor.
    let tensor = bare([4, 6], [6, 1], 0);
    let mut p = tensor[..tensor.len() - 1].to_vec();
    p.extend([b'q', 0]);
    for _ in 0..40 {
        p.extend([b'0', b']', b'q', 1, b'(', b'h', 0, b'h', 0, b'e', b'q', 0]);
    }
    p.push(b'.');
    let text = read(&archive(&p, b"little")).err().unwrap().to_string();
    assert!(text.contains("nested too deep or repeated too often"), "{text}");
    // And a list that holds itself.
    let text = read(&archive(b"\x80\x02]q\x00h\x00a.", b"little")).err().unwrap().to_string();
    assert!(text.contains("nested too deep"), "{text}");
}
