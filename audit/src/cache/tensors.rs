//! Tensors, streams and what a visitor recorded, as bytes.

use std::collections::BTreeMap;

use karat_seam::{Block, Data, Recorded, Recorder, RowId, Site, Streams, Tap, Tensor};

use super::{Reader, Writer};

/// Streams between two blocks.
pub(crate) fn write_streams(streams: &Streams) -> Vec<u8> {
    let mut to = Writer::default();
    rows(&mut to, &streams.rows);
    write_tensor(&mut to, &streams.data);
    to.0
}

pub(crate) fn read_streams(bytes: &[u8]) -> Option<Streams> {
    let mut from = Reader::new(bytes);
    let rows = read_rows(&mut from)?;
    let data = read_tensor(&mut from)?;
    (from.is_done() && data.rows() == rows.len()).then(|| Streams { rows: rows.into(), data })
}

/// All taps of a block.
pub(crate) fn write_recorder(seen: &Recorder) -> Vec<u8> {
    let mut to = Writer::default();
    to.u64(seen.taps.len() as u64);
    for ((site, seq), recorded) in &seen.taps {
        let (kind, index) = match site.block {
            Block::Embed => (0, 0),
            Block::Layer(l) => (1, l),
            Block::Head => (2, 0),
            Block::Mtp(i) => (3, i),
        };
        to.byte(kind);
        to.u32(u32::from(index));
        to.text(site.tap.name());
        to.u32(*seq);
        rows(&mut to, &recorded.rows);
        write_tensor(&mut to, &recorded.tensor);
    }
    to.0
}

pub(crate) fn read_recorder(bytes: &[u8]) -> Option<Recorder> {
    let mut from = Reader::new(bytes);
    let mut taps = BTreeMap::new();
    for _ in 0..from.count(1)? {
        let kind = from.byte()?;
        let index = u16::try_from(from.u32()?).ok()?;
        let block = match kind {
            0 => Block::Embed,
            1 => Block::Layer(index),
            2 => Block::Head,
            3 => Block::Mtp(index),
            _ => return None,
        };
        let tap = Tap::from_name(from.text()?)?;
        let seq = from.u32()?;
        let rows = read_rows(&mut from)?;
        let tensor = read_tensor(&mut from)?;
        taps.insert((Site { block, tap }, seq), Recorded { rows, tensor });
    }
    let mut seen = Recorder::all();
    seen.taps = taps;
    from.is_done().then_some(seen)
}

fn rows(to: &mut Writer, rows: &[RowId]) {
    to.u64(rows.len() as u64);
    for row in rows {
        [row.seq, row.pos, row.pass].into_iter().for_each(|v| to.u32(v));
    }
}

fn read_rows(from: &mut Reader<'_>) -> Option<Vec<RowId>> {
    let n = from.count(12)?;
    (0..n).map(|_| Some(RowId { seq: from.u32()?, pos: from.u32()?, pass: from.u32()? })).collect()
}

/// Half of every f32 is zero where values are bf16: only the other half is kept then.
fn is_bf16(values: &[f32]) -> bool {
    values.iter().fold(0, |low, v| low | (v.to_bits() & 0xffff)) == 0
}

pub(crate) fn write_tensor(to: &mut Writer, tensor: &Tensor) {
    to.u64(tensor.shape.len() as u64);
    tensor.shape.iter().for_each(|n| to.u64(*n as u64));
    let out = &mut to.0;
    match &tensor.data {
        Data::F32(v) if is_bf16(v) => {
            out.push(b'h');
            out.extend(v.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()));
        }
        Data::F32(v) => {
            out.push(b'f');
            out.extend(v.iter().flat_map(|v| v.to_le_bytes()));
        }
        Data::F64(v) => {
            out.push(b'd');
            out.extend(v.iter().flat_map(|v| v.to_le_bytes()));
        }
        Data::I64(v) => {
            out.push(b'i');
            out.extend(v.iter().flat_map(|v| v.to_le_bytes()));
        }
        Data::U8(v) => {
            out.push(b'u');
            out.extend_from_slice(v);
        }
    }
}

pub(crate) fn read_tensor(from: &mut Reader<'_>) -> Option<Tensor> {
    let rank = from.count(8)?;
    let shape: Vec<usize> = (0..rank).map(|_| usize::try_from(from.u64()?).ok()).collect::<Option<_>>()?;
    let n = shape.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent))?;
    fn values<const N: usize, T>(from: &mut Reader<'_>, n: usize, of: impl Fn([u8; N]) -> T) -> Option<Vec<T>> {
        let bytes = from.take(n.checked_mul(N)?)?;
        Some(bytes.as_chunks::<N>().0.iter().map(|b| of(*b)).collect())
    }
    let data = match from.byte()? {
        b'h' => Data::F32(values(from, n, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))?),
        b'f' => Data::F32(values(from, n, f32::from_le_bytes)?),
        b'd' => Data::F64(values(from, n, f64::from_le_bytes)?),
        b'i' => Data::I64(values(from, n, i64::from_le_bytes)?),
        b'u' => Data::U8(from.take(n)?.to_vec()),
        _ => return None,
    };
    Some(Tensor::new(shape, data))
}
