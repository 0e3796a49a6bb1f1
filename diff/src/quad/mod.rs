//! Four f64 values at a time. Both implementations round every operation alike, so they give the same bits.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd.rs")]

#[cfg(target_arch = "x86_64")]
mod simd;

#[cfg(target_arch = "x86_64")]
pub(crate) use simd::Avx2;

/// Offset of [`Quad::keys`].
pub(crate) const KEY_ZERO: i32 = 128;
const SIGN: u64 = 1 << 63;

/// Four f64 values. No operation is fused.
pub(crate) trait Quad: Copy {
    /// Four of a value.
    fn splat(value: f64) -> Self;
    /// Four values.
    fn load(values: &[f64; 4]) -> Self;
    /// Four values, exactly.
    fn widen(values: &[f32; 4]) -> Self;
    /// The values.
    fn array(self) -> [f64; 4];
    /// Sums.
    fn add(self, other: Self) -> Self;
    /// Differences.
    fn sub(self, other: Self) -> Self;
    /// Products.
    fn mul(self, other: Self) -> Self;
    /// Magnitudes.
    fn abs(self) -> Self;
    /// The larger of two numbers, neither NaN.
    fn larger(self, other: Self) -> Self;
    /// The sign flipped where `other`'s is set.
    fn signed_by(self, other: Self) -> Self;
    /// For |d| = `self` and |x| = `other`, with e the exponent of d less that of x, and r = floor(log2(|d|/|x|)) (which
    /// is e or e - 1): e + r + [`KEY_ZERO`], held to 0..=255. Both numbers can be told from it. d = 0 gives 0 wherever
    /// x is a normal number.
    fn keys(self, other: Self) -> [i32; 4];

    /// Says that these values will be read soon.
    #[inline(always)]
    fn fetch<T>(_: &[T]) {}

    /// The sum of lanes 0 to 3 (`self`) and 4 to 7 (`high`), in the order that all sums of this crate have:
    /// ((0+4)+(2+6)) + ((1+5)+(3+7)).
    #[inline(always)]
    fn join(self, high: Self) -> f64 {
        let v = self.add(high).array();
        (v[0] + v[2]) + (v[1] + v[3])
    }
}

/// Plain code for every processor.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f64; 4]);

impl Plain {
    #[inline(always)]
    fn each(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        let (a, b) = (self.0, other.0);
        Self([f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])])
    }
}

impl Quad for Plain {
    #[inline(always)]
    fn splat(value: f64) -> Self {
        Self([value; 4])
    }

    #[inline(always)]
    fn load(values: &[f64; 4]) -> Self {
        Self(*values)
    }

    #[inline(always)]
    fn widen(values: &[f32; 4]) -> Self {
        Self(values.map(f64::from))
    }

    #[inline(always)]
    fn array(self) -> [f64; 4] {
        self.0
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.each(other, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.each(other, |a, b| a * b)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        self.each(self, |a, _| a.abs())
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        self.each(other, |a, b| if b > a { b } else { a })
    }

    #[inline(always)]
    fn signed_by(self, other: Self) -> Self {
        self.each(other, |a, b| f64::from_bits(a.to_bits() ^ (b.to_bits() & SIGN)))
    }

    #[inline(always)]
    fn keys(self, other: Self) -> [i32; 4] {
        let mut keys = [0; 4];
        for ((key, d), x) in keys.iter_mut().zip(self.0).zip(other.0) {
            let (d, x) = (d.to_bits() & !SIGN, x.to_bits() & !SIGN);
            // The difference of two positive bit patterns, less the 52 bits of mantissa, is the exponent of the
            // quotient: exactly, and without a division.
            let r = (d.wrapping_sub(x) >> 32) as i32 >> 20;
            let e = (d >> 52) as i32 - (x >> 52) as i32;
            *key = (e + r + KEY_ZERO).clamp(0, 255);
        }
        keys
    }
}

#[cfg(test)]
mod tests;
