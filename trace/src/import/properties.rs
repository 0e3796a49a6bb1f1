//! Any bytes, any cut and any changed byte of a valid file give tensors or one error with its place; what is read is
//! bounded by the file; nothing panics.

use std::sync::Arc;

use proptest::prelude::*;

use super::map::Map;
use super::{Format, read_blob};
use crate::blob::Blob;

const FILES: &[(&[u8], Format)] = &[
    (include_bytes!("../../../tests/fixtures/import/dict.pt"), Format::Torch),
    (include_bytes!("../../../tests/fixtures/import/protocol4.pt"), Format::Torch),
    (include_bytes!("../../../tests/fixtures/import/fortran.npy"), Format::Npy),
    (include_bytes!("../../../tests/fixtures/import/packed.npz"), Format::Npz),
];

/// Reads everything; checks an error's place and the sizes of what is found.
fn survive(bytes: &[u8], format: Format) -> std::result::Result<(), TestCaseError> {
    let blob = Arc::new(Blob::Held(bytes.into()));
    match read_blob(&blob, format) {
        Err(e) => prop_assert!(!e.what.is_empty()),
        Ok(contents) => {
            for (name, array) in &contents.arrays {
                // Views repeat at most 8 times beyond 64 MiB; widened elements take twice their bytes.
                let count: usize = array.shape().iter().product();
                prop_assert!(count <= (64 << 20) + 8 * bytes.len().max(1), "{name}: {count}");
                if count <= 1 << 20
                    && let Ok(read) = array.read()
                {
                    prop_assert_eq!(read.len(), count * array.dtype().size());
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600), magic in 0usize..4) {
        let starts: [&[u8]; 4] = [b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"\x80\x02", b""];
        let start = starts[magic];
        let all = [start, &bytes].concat();
        for format in [Format::Torch, Format::Npy, Format::Npz] {
            survive(&all, format)?;
        }
    }

    #[test]
    fn any_cut_is_survived(file in 0..FILES.len(), at in any::<prop::sample::Index>()) {
        let (bytes, format) = FILES[file];
        survive(&bytes[..at.index(bytes.len())], format)?;
    }

    #[test]
    fn any_changed_byte_is_survived(file in 0..FILES.len(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let (bytes, format) = FILES[file];
        let mut bytes = bytes.to_vec();
        let at = at.index(bytes.len());
        bytes[at] = to;
        survive(&bytes, format)?;
    }

    #[test]
    fn any_pickle_is_survived(ops in proptest::collection::vec(prop::sample::select(OPS.to_vec()), 0..60)) {
        let pickle = [b"\x80\x02".to_vec(), ops.concat(), b".".to_vec()].concat();
        let members: &[(&str, &[u8])] = &[("x/data.pkl", &pickle), ("x/data/0", &[0; 96])];
        survive(&super::zip::tests::stored(members), Format::Torch)?;
    }

    #[test]
    fn any_map_is_survived(text in "[a-z=\\[\\]{}\"*. \n]{0,200}") {
        if let Err(e) = Map::parse("map", &format!("format = \"karat-map/1\"\n{text}")) {
            prop_assert!(e.place.starts_with("map"));
        }
    }
}

/// Opcodes with operands that fit each other often.
const OPS: &[&[u8]] = &[
    b"(",
    b"0",
    b"1",
    b"2",
    b"N",
    b"\x88",
    b"K\x02",
    b"M\x01\x02",
    b"J\xff\xff\xff\xff",
    b"X\x01\x00\x00\x000",
    b"X\x07\x00\x00\x00storage",
    b"}",
    b"]",
    b")",
    b"t",
    b"\x85",
    b"\x86",
    b"\x87",
    b"l",
    b"d",
    b"a",
    b"e",
    b"s",
    b"u",
    b"q\x00",
    b"q\x01",
    b"h\x00",
    b"h\x01",
    b"ctorch\nFloatStorage\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch.storage\nUntypedStorage\n",
    b"ccollections\nOrderedDict\n",
    b"Q",
    b"R",
    b"b",
    b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
];

/// Every cut and every byte turned over of the smallest files, one after the other.
#[test]
fn each_byte_of_small_files_counts() {
    for (bytes, format) in &FILES[1..3] {
        for at in 0..bytes.len() {
            survive(&bytes[..at], *format).unwrap();
            let mut changed = bytes.to_vec();
            changed[at] ^= 0xff;
            survive(&changed, *format).unwrap();
        }
    }
}
