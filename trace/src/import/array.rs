//! A tensor of a dump as a view: where its bytes are and in which steps its axes go through them.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::Read as _;
use std::ops::Range;
use std::sync::Arc;

use flate2::read::DeflateDecoder;
use karat_model::{Error, Result};

use super::Element;
use crate::Dtype;
use crate::blob::Blob;

/// Most axes that are read.
const MAX_RANK: usize = 16;
/// A view may repeat its bytes (an expanded tensor has steps of 0). Beyond this many bytes it may be this many times as
/// large as what the file holds of it, so that a few bytes can't ask for all of memory.
const FREE: usize = 64 << 20;
const REPEATS: usize = 8;

/// Bytes of a storage.
#[derive(Clone)]
pub(crate) enum Bytes {
    /// As they lie in the file.
    Plain { blob: Arc<Blob>, range: Range<usize> },
    /// A deflated member of an archive: `len` bytes come out, of which the first `skip` are a header.
    Deflated { blob: Arc<Blob>, range: Range<usize>, len: usize, skip: usize },
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain { range, .. } => range.len(),
            Self::Deflated { len, skip, .. } => len.saturating_sub(*skip),
        }
    }

    /// The bytes: borrowed from the map, or inflated (never more than the archive says, which is bounded when opened).
    pub(crate) fn read(&self) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Plain { blob, range } => Ok(Cow::Borrowed(blob.bytes().get(range.clone()).unwrap_or_default())),
            Self::Deflated { blob, range, len, skip } => {
                let packed = blob.bytes().get(range.clone()).unwrap_or_default();
                let out = inflate(packed, *len)?;
                if out.len() != *len {
                    let error = Error::input("compressed member ends early");
                    return Err(error.expected(format!("{len} bytes")).found(out.len()));
                }
                Ok(Cow::Owned(out.get(*skip..).unwrap_or_default().to_vec()))
            }
        }
    }
}

/// At most the first `limit` bytes of a deflated text.
pub(crate) fn inflate(packed: &[u8], limit: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut decoder = DeflateDecoder::new(packed).take(limit as u64);
    decoder.read_to_end(&mut out).map_err(|e| Error::input("compressed member can't be unpacked").found(e))?;
    Ok(out)
}

/// A tensor of a dump: nothing is copied before [`Array::read`], and of a dense one nothing then either.
#[derive(Clone)]
pub struct Array {
    bytes: Bytes,
    element: Element,
    shape: Vec<usize>,
    /// Elements from one index of an axis to the next.
    strides: Vec<usize>,
    /// Element at which the view starts.
    offset: usize,
}

impl Array {
    /// A view of `bytes`. Errors (input): a shape that overflows; elements beyond the bytes; a view that repeats a few
    /// bytes into more than it is worth.
    pub(crate) fn new(
        bytes: Bytes,
        element: Element,
        shape: Vec<usize>,
        strides: Vec<usize>,
        offset: usize,
    ) -> Result<Self> {
        let fail = |what: &str| Error::input(what).found(format!("shape {shape:?}"));
        if shape.len() > MAX_RANK || shape.len() != strides.len() {
            return Err(
                fail("tensor has too many axes, or another number of steps").expected(format!("at most {MAX_RANK}"))
            );
        }
        let size = element.size();
        let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        // Widened elements take at most four times their bytes; everything below stays under usize.
        let Some(wanted) = count.and_then(|n| n.checked_mul(size)).filter(|n| *n <= usize::MAX / 8) else {
            return Err(fail("shape overflows"));
        };
        if wanted > 0 {
            let last =
                shape.iter().zip(&strides).try_fold(offset, |at, (d, s)| at.checked_add((d - 1).checked_mul(*s)?));
            let end = last.and_then(|last| last.checked_add(1)?.checked_mul(size));
            if end.is_none_or(|end| end > bytes.len()) {
                let held = format!("elements within {} bytes", bytes.len());
                let found = format!("shape {shape:?}, steps {strides:?}, start {offset}, {size} bytes an element");
                return Err(Error::input("tensor reaches beyond its storage").expected(held).found(found));
            }
            if wanted > FREE && wanted / REPEATS > bytes.len() {
                let found = format!("shape {shape:?} over {} bytes", bytes.len());
                return Err(Error::input("tensor repeats its storage too often")
                    .found(found)
                    .hint("save it contiguous"));
            }
        }
        Ok(Self { bytes, element, shape, strides, offset })
    }

    /// A row-major tensor that fills bytes of a file.
    pub(crate) fn dense(blob: &Arc<Blob>, range: Range<usize>, element: Element, shape: Vec<usize>) -> Result<Self> {
        let strides = row_major(&shape);
        Self::new(Bytes::Plain { blob: Arc::clone(blob), range }, element, shape, strides, 0)
    }

    /// A row-major tensor in memory. Errors: bytes that don't fit the shape.
    pub(crate) fn held(dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self> {
        let range = 0..bytes.len();
        Self::dense(&Arc::new(Blob::Held(bytes.into())), range, Element::Stored(dtype), shape)
    }

    /// Element type of what [`Array::read`] gives.
    pub fn dtype(&self) -> Dtype {
        self.element.dtype()
    }

    /// Extent of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Little-endian elements in row-major order: borrowed where they lie so in the file.
    pub fn read(&self) -> Result<Cow<'_, [u8]>> {
        let all = self.bytes.read()?;
        let size = self.element.size();
        let count: usize = self.shape.iter().product();
        let dense = if self.is_dense() {
            let range = self.offset * size..(self.offset + count) * size;
            match all {
                Cow::Borrowed(all) => Cow::Borrowed(all.get(range).unwrap_or_default()),
                Cow::Owned(all) if range == (0..all.len()) => Cow::Owned(all),
                Cow::Owned(all) => Cow::Owned(all.get(range).unwrap_or_default().to_vec()),
            }
        } else {
            Cow::Owned(self.gather(&all, count))
        };
        Ok(self.element.widen(dense))
    }

    /// True when the elements lie one after the other, without a gap and in order.
    fn is_dense(&self) -> bool {
        let axes = || self.shape.iter().zip(row_major(&self.shape)).zip(&self.strides);
        self.shape.contains(&0) || axes().all(|((extent, dense), stride)| *extent == 1 || dense == *stride)
    }

    fn gather(&self, all: &[u8], count: usize) -> Vec<u8> {
        match self.element.size() {
            1 => self.gather_of::<1>(all, count),
            2 => self.gather_of::<2>(all, count),
            4 => self.gather_of::<4>(all, count),
            _ => self.gather_of::<8>(all, count),
        }
    }

    /// Walks all axes but the last as an odometer and copies the last.
    fn gather_of<const N: usize>(&self, all: &[u8], count: usize) -> Vec<u8> {
        let elements = all.as_chunks::<N>().0;
        let mut out: Vec<[u8; N]> = Vec::with_capacity(count);
        let (Some((&inner, outer)), Some((&step, steps))) = (self.shape.split_last(), self.strides.split_last()) else {
            return all.get(self.offset * N..(self.offset + 1) * N).unwrap_or_default().to_vec();
        };
        let mut at = vec![0; outer.len()];
        let mut start = self.offset;
        loop {
            if step == 1 {
                out.extend_from_slice(elements.get(start..start + inner).unwrap_or_default());
            } else {
                out.extend((0..inner).filter_map(|i| elements.get(start + i * step)));
            }
            // The next index of the outer axes; all of them wrapped means done.
            let mut axis = outer.len();
            loop {
                if axis == 0 {
                    return out.into_flattened();
                }
                axis -= 1;
                at[axis] += 1;
                start += steps[axis];
                if at[axis] < outer[axis] {
                    break;
                }
                start -= steps[axis] * outer[axis];
                at[axis] = 0;
            }
        }
    }

    /// The axes in another order. `order` must name each once.
    pub(crate) fn permuted(&self, order: &[usize]) -> Result<Self> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if sorted != (0..self.shape.len()).collect::<Vec<_>>() {
            return Err(
                Error::input("axes can't be put in this order").expected(format!("each of {} once", self.shape.len()))
            );
        }
        let pick = |v: &[usize]| order.iter().map(|&axis| v[axis]).collect::<Vec<_>>();
        Ok(Self { shape: pick(&self.shape), strides: pick(&self.strides), ..self.clone() })
    }

    /// Indices `range` of an axis. Errors: beyond the extent.
    pub(crate) fn cut(&self, axis: usize, range: Range<usize>) -> Result<Self> {
        match self.shape.get(axis) {
            Some(&extent) if range.start <= range.end && range.end <= extent => {
                let mut out = self.clone();
                // An empty view starts nowhere.
                out.offset = if range.is_empty() { 0 } else { out.offset + range.start * out.strides[axis] };
                out.shape[axis] = range.len();
                Ok(out)
            }
            extent => {
                let error = Error::input("part of an axis that isn't there")
                    .expected(format!("within {}", extent.unwrap_or(&0)));
                Err(error.found(format!("{}..{} of axis {axis}", range.start, range.end)))
            }
        }
    }

    /// Leaves an axis of one index out. Errors: a longer one.
    pub(crate) fn without(&self, axis: usize) -> Result<Self> {
        if self.shape.get(axis) != Some(&1) {
            let error = Error::input("only an axis of extent 1 can be left out").at(format!("axis {axis}"));
            return Err(error.found(format!("shape {:?}", self.shape)));
        }
        let mut out = self.clone();
        out.shape.remove(axis);
        out.strides.remove(axis);
        Ok(out)
    }

    /// Without all axes of extent 1.
    pub fn squeezed(&self) -> Self {
        let mut out = self.clone();
        let kept = |axis: &usize| self.shape[*axis] != 1;
        out.shape = (0..self.shape.len()).filter(kept).map(|axis| self.shape[axis]).collect();
        out.strides = (0..self.shape.len()).filter(kept).map(|axis| self.strides[axis]).collect();
        out
    }
}

/// Steps of a row-major tensor. An extent of 0 counts as 1: nothing is read then.
pub(crate) fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}
