//! Owned and borrowed tensors: a shape and a flat row-major vector. No views, no strides, no arithmetic.

use crate::{Error, Result, copied};

/// Flat row-major values.
#[derive(Debug, PartialEq)]
pub enum Data {
    /// Golden and candidate values (a bf16 storage point holds bf16 values in f32).
    F32(Vec<f32>),
    /// Values of the f64 mode, which measures the floor.
    F64(Vec<f64>),
    /// Indices: experts, positions, token ids.
    I64(Vec<i64>),
    /// Masks (0 or 1) and raw codes.
    U8(Vec<u8>),
}

impl Clone for Data {
    fn clone(&self) -> Self {
        match self {
            Self::F32(v) => Self::F32(copied(v)),
            Self::F64(v) => Self::F64(copied(v)),
            Self::I64(v) => Self::I64(copied(v)),
            Self::U8(v) => Self::U8(copied(v)),
        }
    }
}

impl Data {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::U8(v) => v.len(),
        }
    }

    /// True when there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of the element type as error messages print it.
    pub fn dtype(&self) -> &'static str {
        match self {
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::I64(_) => "i64",
            Self::U8(_) => "u8",
        }
    }
}

/// A tensor: `shape` and `data.len() == shape.iter().product()`.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Extent of each axis, outermost first. Axis 0 is the row (token, entry or state row).
    pub shape: Vec<usize>,
    /// Row-major values.
    pub data: Data,
}

impl Tensor {
    /// A tensor of f32 values. Panics when the length does not fit the shape: that is a bug, never an input.
    pub fn f32(shape: impl Into<Vec<usize>>, values: Vec<f32>) -> Self {
        Self::new(shape.into(), Data::F32(values))
    }

    /// A tensor of f64 values.
    pub fn f64(shape: impl Into<Vec<usize>>, values: Vec<f64>) -> Self {
        Self::new(shape.into(), Data::F64(values))
    }

    /// A tensor of indices.
    pub fn i64(shape: impl Into<Vec<usize>>, values: Vec<i64>) -> Self {
        Self::new(shape.into(), Data::I64(values))
    }

    /// A tensor of masks or codes.
    pub fn u8(shape: impl Into<Vec<usize>>, values: Vec<u8>) -> Self {
        Self::new(shape.into(), Data::U8(values))
    }

    /// A tensor of any element type.
    pub fn new(shape: Vec<usize>, data: Data) -> Self {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "shape {shape:?} against {} values", data.len());
        Self { shape, data }
    }

    /// Rows: the extent of axis 0 (1 for a scalar).
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Elements in one row.
    pub fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// The values as f32, or an error that names `at`.
    pub fn as_f32(&self, at: &str) -> Result<&[f32]> {
        match &self.data {
            Data::F32(v) => Ok(v),
            other => Err(Error::Dtype { at: at.into(), expected: "f32", found: other.dtype() }),
        }
    }

    /// The values as f64, or an error that names `at`.
    pub fn as_f64(&self, at: &str) -> Result<&[f64]> {
        match &self.data {
            Data::F64(v) => Ok(v),
            other => Err(Error::Dtype { at: at.into(), expected: "f64", found: other.dtype() }),
        }
    }

    /// The values as i64, or an error that names `at`.
    pub fn as_i64(&self, at: &str) -> Result<&[i64]> {
        match &self.data {
            Data::I64(v) => Ok(v),
            other => Err(Error::Dtype { at: at.into(), expected: "i64", found: other.dtype() }),
        }
    }

    /// The values as bytes, or an error that names `at`.
    pub fn as_u8(&self, at: &str) -> Result<&[u8]> {
        match &self.data {
            Data::U8(v) => Ok(v),
            other => Err(Error::Dtype { at: at.into(), expected: "u8", found: other.dtype() }),
        }
    }

    /// Borrows the tensor for a visitor.
    pub fn as_mut(&mut self) -> TensorMut<'_> {
        let data = match &mut self.data {
            Data::F32(v) => DataMut::F32(v),
            Data::F64(v) => DataMut::F64(v),
            Data::I64(v) => DataMut::I64(v),
            Data::U8(v) => DataMut::U8(v),
        };
        TensorMut { shape: &self.shape, data }
    }
}

/// Borrowed values that a visitor may change.
#[derive(Debug)]
pub enum DataMut<'a> {
    /// See [`Data::F32`].
    F32(&'a mut [f32]),
    /// See [`Data::F64`].
    F64(&'a mut [f64]),
    /// See [`Data::I64`].
    I64(&'a mut [i64]),
    /// See [`Data::U8`].
    U8(&'a mut [u8]),
}

/// A borrowed tensor as a visitor sees it.
#[derive(Debug)]
pub struct TensorMut<'a> {
    /// Extent of each axis.
    pub shape: &'a [usize],
    /// Row-major values.
    pub data: DataMut<'a>,
}

impl<'a> TensorMut<'a> {
    /// Borrows f32 values with their shape.
    pub fn f32(shape: &'a [usize], values: &'a mut [f32]) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        Self { shape, data: DataMut::F32(values) }
    }

    /// A copy of what the visitor sees.
    pub fn to_tensor(&self) -> Tensor {
        let data = match &self.data {
            DataMut::F32(v) => Data::F32(copied(v)),
            DataMut::F64(v) => Data::F64(copied(v)),
            DataMut::I64(v) => Data::I64(copied(v)),
            DataMut::U8(v) => Data::U8(copied(v)),
        };
        Tensor::new(self.shape.to_vec(), data)
    }
}
