//! Some f64 values at a time: four, or the eight lanes of every sum at once. All implementations round every operation
//! alike, so they give the same bits.

#![expect(clippy::inline_always, reason = "only inlined code takes the instruction set of its caller in simd.rs")]

#[cfg(target_arch = "x86_64")]
mod simd;
#[cfg(target_arch = "x86_64")]
mod simd_512;

#[cfg(target_arch = "x86_64")]
pub(crate) use simd::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use simd_512::Avx512;

/// Lanes of every sum: element i of a run goes to lane i mod 8.
pub(crate) const LANES: usize = 8;
/// Offset of [`Quad::keys`].
pub(crate) const KEY_ZERO: i32 = 128;
const SIGN: u64 = 1 << 63;

/// Four lanes (`half` says which of the eight) or all eight (`half` is 0). Nothing is fused but [`Quad::plus_exact`].
pub(crate) trait Quad: Copy {
    /// Halves of the eight lanes: 2, or 1 where one register holds them all.
    const HALVES: usize;
    /// As many of a value.
    fn splat(value: f64) -> Self;
    /// Values of these lanes.
    fn load(values: &[f64; LANES], half: usize) -> Self;
    /// Values of these lanes, exactly.
    fn widen(values: &[f32; LANES], half: usize) -> Self;
    /// Writes the values to their lanes.
    fn store(self, to: &mut [f64; LANES], half: usize);
    /// Sums.
    fn add(self, other: Self) -> Self;
    /// Differences.
    fn sub(self, other: Self) -> Self;
    /// Products.
    fn mul(self, other: Self) -> Self;
    /// `self + a * b` where the product is exact in f64, as it is of two f32 values: fused or not, the bits are the same.
    fn plus_exact(self, a: Self, b: Self) -> Self;
    /// Magnitudes.
    fn abs(self) -> Self;
    /// The larger of two numbers, neither NaN.
    fn larger(self, other: Self) -> Self;
    /// The sign flipped where `other`'s is set.
    fn signed_by(self, other: Self) -> Self;
    /// Whether any lane equals `value`.
    fn holds(self, value: f64) -> bool;
    /// For |d| = `self` and |x| = `other`, with e the exponent of d less that of x, and r = floor(log2(|d|/|x|)) (which
    /// is e or e - 1): e + r + [`KEY_ZERO`], held to 0..=255. Both numbers can be told from it. d = 0 gives 0 wherever
    /// x is a normal number. Written to their lanes of `to`.
    fn keys(self, other: Self, to: &mut [u8; LANES], half: usize);

    /// Says that these values will be read soon.
    #[inline(always)]
    fn fetch<T>(_: &[T]) {}

    /// The sum of all lanes, of both halves where there are two, in the order that all sums of this crate have:
    /// ((0+4)+(2+6)) + ((1+5)+(3+7)).
    #[inline(always)]
    fn join(halves: [Self; 2]) -> f64 {
        let v = lanes(halves);
        let (a, b, c, d) = (v[0] + v[4], v[1] + v[5], v[2] + v[6], v[3] + v[7]);
        (a + c) + (b + d)
    }

    /// The largest of all lanes, and no less than 0.
    #[inline(always)]
    fn largest(halves: [Self; 2]) -> f64 {
        lanes(halves).into_iter().fold(0.0, |a: f64, b| if b > a { b } else { a })
    }
}

#[inline(always)]
fn lanes<Q: Quad>(halves: [Q; 2]) -> [f64; LANES] {
    let mut out = [0.0; LANES];
    for half in 0..Q::HALVES {
        halves[half].store(&mut out, half);
    }
    out
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
    const HALVES: usize = 2;

    #[inline(always)]
    fn splat(value: f64) -> Self {
        Self([value; 4])
    }

    #[inline(always)]
    fn load(values: &[f64; LANES], half: usize) -> Self {
        Self(values.as_chunks().0[half])
    }

    #[inline(always)]
    fn widen(values: &[f32; LANES], half: usize) -> Self {
        Self(values.as_chunks::<4>().0[half].map(f64::from))
    }

    #[inline(always)]
    fn store(self, to: &mut [f64; LANES], half: usize) {
        to.as_chunks_mut().0[half] = self.0;
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
    fn plus_exact(self, a: Self, b: Self) -> Self {
        self.add(a.mul(b))
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
    fn holds(self, value: f64) -> bool {
        self.0.contains(&value)
    }

    #[inline(always)]
    fn keys(self, other: Self, to: &mut [u8; LANES], half: usize) {
        let to = &mut to.as_chunks_mut::<4>().0[half];
        for ((key, d), x) in to.iter_mut().zip(self.0).zip(other.0) {
            let (d, x) = (d.to_bits() & !SIGN, x.to_bits() & !SIGN);
            // The difference of two positive bit patterns, less the 52 bits of mantissa, is the exponent of the
            // quotient: exactly, and without a division.
            let r = (d.wrapping_sub(x) >> 32) as i32 >> 20;
            let e = (d >> 52) as i32 - (x >> 52) as i32;
            *key = (e + r + KEY_ZERO).clamp(0, 255) as u8;
        }
    }
}

#[cfg(test)]
mod tests;
