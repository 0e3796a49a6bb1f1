//! Writes one safetensors file without holding its bytes a second time.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::path::Path;

use bytemuck::cast_slice;
use karat_model::Result;
use karat_seam::{Data, Tensor};
use serde::{Serialize, Serializer};

use super::io;
use super::pieces::Pieces;

/// Bytes of a block where elements have to be turned.
const BLOCK: usize = 4 << 20;

/// A tensor as it goes into a file.
pub(crate) struct Entry<'a> {
    dtype: &'static str,
    /// Bytes of an element.
    size: usize,
    shape: Vec<usize>,
    /// Its bytes as memory has them.
    pieces: Vec<&'a [u8]>,
}

impl<'a> Entry<'a> {
    /// Of f32 values that lie in pieces.
    pub(crate) fn f32<const N: usize>(shape: [usize; N], pieces: Vec<&'a [f32]>) -> Self {
        Self { dtype: "F32", size: 4, shape: shape.into(), pieces: pieces.into_iter().map(cast_slice).collect() }
    }

    /// Of i64 values that lie in pieces.
    pub(crate) fn i64<const N: usize>(shape: [usize; N], pieces: Vec<&'a [i64]>) -> Self {
        Self { dtype: "I64", size: 8, shape: shape.into(), pieces: pieces.into_iter().map(cast_slice).collect() }
    }

    fn of(tensor: &'a Tensor) -> Self {
        let (dtype, size, bytes) = match &tensor.data {
            Data::F32(v) => ("F32", 4, cast_slice(v)),
            Data::F64(v) => ("F64", 8, cast_slice(v)),
            Data::I64(v) => ("I64", 8, cast_slice(v)),
            Data::U8(v) => ("U8", 1, &v[..]),
        };
        Self { dtype, size, shape: tensor.shape.clone(), pieces: vec![bytes] }
    }

    fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Its bytes as memory has them.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.pieces.concat()
    }
}

/// What a header says of a tensor.
#[derive(Serialize)]
struct Said<'a> {
    dtype: &'static str,
    shape: &'a [usize],
    data_offsets: [usize; 2],
}

/// A file of these tensors; nothing is written over. Returns the file, still open, for who brings it to the disk.
pub(super) fn write(path: &Path, tensors: &[(String, Pieces)]) -> Result<File> {
    // A call for each: where calls took several of a dump's tensors, it took longer.
    let entries = tensors.iter().filter_map(|(key, p)| Some((key, Entry::of(p.tensor()?)))).collect();
    write_by(path, entries, 1)
}

/// The same of small tensors that lie in many small pieces: by calls for as many as the system takes at once.
pub(crate) fn write_entries<K: Ord + Serialize>(path: &Path, entries: Vec<(K, Entry<'_>)>) -> Result<File> {
    write_by(path, entries, usize::MAX)
}

/// By calls for at most so many pieces.
fn write_by<K: Ord + Serialize>(path: &Path, mut entries: Vec<(K, Entry<'_>)>, most: usize) -> Result<File> {
    // Wide elements first: then every tensor is aligned for its element type.
    entries.sort_by(|(key, a), (other, b)| b.size.cmp(&a.size).then_with(|| key.cmp(other)));
    let mut at = 0;
    let said = entries.iter().map(|(key, entry)| {
        let first = at;
        at += entry.len();
        (key, Said { dtype: entry.dtype, shape: &entry.shape, data_offsets: [first, at] })
    });
    let mut header = Vec::new();
    let made = serde_json::Serializer::new(&mut header).collect_map(said);
    header.resize(header.len().next_multiple_of(8), b' ');
    let body = || -> std::io::Result<File> {
        made?;
        let mut out = File::create_new(path)?;
        let length = (header.len() as u64).to_le_bytes();
        let mut slices = vec![IoSlice::new(&length), IoSlice::new(&header)];
        if cfg!(target_endian = "little") {
            // Memory holds elements as the file does: no copy is made.
            slices.extend(entries.iter().flat_map(|(_, entry)| &entry.pieces).map(|piece| IoSlice::new(piece)));
            slices.chunks_mut(most).try_for_each(|slices| all(&mut out, slices))?;
            return Ok(out);
        }
        all(&mut out, &mut slices)?;
        for (_, entry) in &entries {
            entry.pieces.iter().try_for_each(|piece| turned(&mut out, piece, entry.size))?;
        }
        Ok(out)
    };
    body().map_err(|e| io("trace file can't be written", path, &e))
}

/// All bytes of all slices.
fn all(out: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> std::io::Result<()> {
    // Empty ones go: a call that writes none of some bytes is an error.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match out.write_vectored(slices) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut slices, n),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Elements whose bytes are in the other order in memory.
fn turned(out: &mut impl Write, bytes: &[u8], size: usize) -> std::io::Result<()> {
    for bytes in bytes.chunks(BLOCK) {
        let mut block = bytes.to_vec();
        block.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        out.write_all(&block)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes three bytes a call.
    struct Slow(Vec<u8>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.extend(&bytes[..bytes.len().min(3)]);
            Ok(bytes.len().min(3))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_slices_are_written_by_calls_that_take_a_few_bytes() {
        let mut out = Slow(Vec::new());
        let slices = [&b""[..], b"abcdefg", b"", b"h", b"ijk", b""];
        all(&mut out, &mut slices.map(IoSlice::new)).unwrap();
        assert_eq!(out.0, b"abcdefghijk");
        // Who takes nothing is an error, and nothing to take is none.
        let mut full = [0; 4];
        assert!(all(&mut &mut full[..], &mut [IoSlice::new(b"abcde")]).is_err());
        all(&mut &mut full[..], &mut [IoSlice::new(b""), IoSlice::new(b"")]).unwrap();
    }

    #[test]
    fn elements_are_turned_by_their_size() {
        let mut out = Vec::new();
        turned(&mut out, b"abcdefgh", 4).unwrap();
        turned(&mut out, b"abcdefgh", 8).unwrap();
        assert_eq!(out, b"dcbahgfehgfedcba");
    }
}
