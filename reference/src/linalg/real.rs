//! The two number types of golden: f32, and f64 for the floor.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m512};
use std::cell::RefCell;
use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

use karat_seam::{Result, Tensor, TensorMut};

use super::gemm::Buffers;
use super::simd_vector::{Pair, Square, Vector};
use super::{LANES, elementary};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A value type of the golden path. Sealed: f32 and f64 only. All functions follow the normative text of `linalg`.
pub trait Real:
    sealed::Sealed
    + Copy
    + Default
    + Debug
    + PartialEq
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// +0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Minus infinity: the score of what is not visible.
    const NEG_INFINITY: Self;
    /// Name of the mode in identities and messages.
    const MODE: &'static str;
    /// Whether this is the f64 mode.
    const IS_WIDE: bool;

    /// LANES values in AVX2 registers.
    #[cfg(target_arch = "x86_64")]
    type Avx2Panel: Vector<Self>;
    /// Half of LANES values in AVX2 registers.
    #[cfg(target_arch = "x86_64")]
    type Avx2Half: Square<Self>;
    /// LANES values in AVX-512 registers.
    #[cfg(target_arch = "x86_64")]
    type Avx512Panel: Vector<Self>;

    /// An f64 rounded once to this type.
    fn of(value: f64) -> Self;
    /// A stored value (exact).
    fn of_f32(value: f32) -> Self;
    /// The value widened to f64 (exact).
    fn wide(self) -> f64;
    /// `self * b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;

    /// e^self: libm in f64, rounded once.
    fn exp(self) -> Self {
        Self::of(libm::exp(self.wide()))
    }

    /// ln(1 + e^self), linear above 20 (spec 2.11).
    fn softplus(self) -> Self {
        if self.wide() > 20.0 { self } else { Self::of(libm::log1p(libm::exp(self.wide()))) }
    }

    /// 1 / (1 + e^-self).
    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }

    /// self / (1 + e^-self).
    #[inline(always)]
    fn silu(self) -> Self {
        self / (Self::ONE + (-self).exp())
    }

    /// True for what is neither NaN nor infinite.
    fn is_finite(self) -> bool {
        self.wide().is_finite()
    }

    /// True for a NaN.
    fn is_nan(self) -> bool {
        self.wide().is_nan()
    }

    /// The values as f32 for a backend, which serves the f32 mode only; nothing in the f64 mode.
    fn single(values: &[Self]) -> &[f32];
    /// What a backend gave.
    fn of_singles(values: Vec<f32>) -> Vec<Self>;
    /// Runs `f` with this thread's buffers of products. `f` must not multiply on its own.
    fn with_buffers<R>(f: impl FnOnce(&mut Buffers<Self>) -> R) -> R;
    /// An owned tensor of this type.
    fn tensor(shape: Vec<usize>, values: Vec<Self>) -> Tensor;
    /// The values of a tensor of this type, or an error that names `at`.
    fn values<'a>(tensor: &'a Tensor, at: &str) -> Result<&'a [Self]>;
    /// A borrowed tensor of this type for a visitor.
    fn borrow<'a>(shape: &'a [usize], values: &'a mut [Self]) -> TensorMut<'a>;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const NEG_INFINITY: Self = f32::NEG_INFINITY;
    const MODE: &'static str = "f32";
    const IS_WIDE: bool = false;
    #[cfg(target_arch = "x86_64")]
    type Avx2Panel = Pair<__m256>;
    #[cfg(target_arch = "x86_64")]
    type Avx2Half = __m256;
    #[cfg(target_arch = "x86_64")]
    type Avx512Panel = __m512;

    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn of_f32(value: f32) -> Self {
        value
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        self.mul_add(b, c)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }
    /// Without branches; the same bits as the definition.
    #[inline(always)]
    fn exp(self) -> Self {
        elementary::exp(f64::from(self)) as f32
    }
    /// Without branches; the same bits as the definition.
    #[inline(always)]
    fn softplus(self) -> Self {
        let below = elementary::log1p(elementary::exp(f64::from(self))) as f32;
        if self > 20.0 { self } else { below }
    }
    fn single(values: &[Self]) -> &[f32] {
        values
    }
    fn of_singles(values: Vec<f32>) -> Vec<Self> {
        values
    }
    fn with_buffers<R>(f: impl FnOnce(&mut Buffers<Self>) -> R) -> R {
        thread_local!(static BUFFERS: RefCell<Buffers<f32>> = RefCell::default());
        BUFFERS.with_borrow_mut(f)
    }
    fn tensor(shape: Vec<usize>, values: Vec<Self>) -> Tensor {
        Tensor::f32(shape, values)
    }
    fn values<'a>(tensor: &'a Tensor, at: &str) -> Result<&'a [Self]> {
        tensor.as_f32(at)
    }
    fn borrow<'a>(shape: &'a [usize], values: &'a mut [Self]) -> TensorMut<'a> {
        TensorMut { shape, data: karat_seam::DataMut::F32(values) }
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const NEG_INFINITY: Self = f64::NEG_INFINITY;
    const MODE: &'static str = "f64";
    const IS_WIDE: bool = true;
    #[cfg(target_arch = "x86_64")]
    type Avx2Panel = [f64; LANES];
    #[cfg(target_arch = "x86_64")]
    type Avx2Half = [f64; LANES / 2];
    #[cfg(target_arch = "x86_64")]
    type Avx512Panel = [f64; LANES];

    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn of_f32(value: f32) -> Self {
        f64::from(value)
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        self.mul_add(b, c)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }
    fn single(_: &[Self]) -> &[f32] {
        &[]
    }
    fn of_singles(values: Vec<f32>) -> Vec<Self> {
        values.into_iter().map(f64::from).collect()
    }
    fn with_buffers<R>(f: impl FnOnce(&mut Buffers<Self>) -> R) -> R {
        thread_local!(static BUFFERS: RefCell<Buffers<f64>> = RefCell::default());
        BUFFERS.with_borrow_mut(f)
    }
    fn tensor(shape: Vec<usize>, values: Vec<Self>) -> Tensor {
        Tensor::f64(shape, values)
    }
    fn values<'a>(tensor: &'a Tensor, at: &str) -> Result<&'a [Self]> {
        tensor.as_f64(at)
    }
    fn borrow<'a>(shape: &'a [usize], values: &'a mut [Self]) -> TensorMut<'a> {
        TensorMut { shape, data: karat_seam::DataMut::F64(values) }
    }
}
