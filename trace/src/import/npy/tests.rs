use std::path::PathBuf;

use super::*;
use crate::dumps::{Dump, open_any};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/import").join(name)
}

#[test]
fn arrays_are_those_that_numpy_saved() {
    let expected = open_any(&fixture("expected.safetensors")).unwrap();
    let is = |dump: &Dump, name: &str, of: &str| {
        assert_eq!(dump.tensor(name).unwrap(), expected.tensor(of).unwrap(), "{name}");
    };
    is(&open_any(&fixture("c.npy")).unwrap(), "value", "plain");
    is(&open_any(&fixture("fortran.npy")).unwrap(), "value", "plain");
    let stored = open_any(&fixture("stored.npz")).unwrap();
    is(&stored, "plain", "plain");
    is(&stored, "ids", "ids");
    let packed = open_any(&fixture("packed.npz")).unwrap();
    is(&packed, "plain", "plain");
    is(&packed, "half", "half");
    let text = open_any(&fixture("big.npy")).err().unwrap().to_string();
    assert!(text.contains("big-endian"), "{text}");
}

fn file(header: &str, data: usize) -> Arc<Blob> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(vec![0; data]);
    Arc::new(Blob::Held(bytes.into()))
}

#[test]
fn headers_are_read_as_nothing_more_than_they_are() {
    let read = |header: &str, data: usize| read(&file(header, data)).map(|c| (c.arrays.len(), c.unread.len()));
    let of = |descr: &str, shape: &str| format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    assert_eq!(read(&of("'<f4'", "(2, 3)"), 24).unwrap(), (1, 0));
    assert_eq!(read(&of("'<f4'", "()"), 4).unwrap(), (1, 0));
    assert_eq!(read(&of("'<c8'", "(2,)"), 16).unwrap(), (0, 1));
    for (header, data, expected) in [
        (of("'<f4'", "(2, 3)"), 20, "don't fit"),
        (of("'<f4'", "(2, 3)"), 28, "don't fit"),
        (of("'<f4'", "(4294967296, 4294967296, 4)"), 8, "don't fit"),
        (of("'<f4'", "(-1,)"), 8, "isn't read"),
        (of("'|O'", "(2,)"), 16, "Python objects"),
        (of("'>f4'", "(2,)"), 8, "big-endian"),
        (of("[('a', '<f4')]", "(2,)"), 8, "isn't read"),
        ("{'descr': '<f4', 'fortran_order': __import__('os'), 'shape': (2,)}".into(), 8, "isn't read"),
        ("{'descr': '<f4', 'shape': (2,)}".into(), 8, "isn't read"),
    ] {
        let text = read(&header, data).err().unwrap().to_string();
        assert!(text.contains(expected), "{header}: {text}");
    }
}
