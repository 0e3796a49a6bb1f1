//! The hot loops, each written once in plain Rust and compiled for every instruction set. The path is chosen at run
//! time; all paths give the same bits because lanes are outputs and every lane's chain of fma is the same.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use super::Real;

/// Length of a block of K: one f32 accumulator inside, f64 across.
pub const K_BLOCK: usize = 128;
/// Outputs of one packed panel.
pub const LANES: usize = 16;

/// An instruction set that the loops are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// Whatever the target has; `mul_add` may be a library call.
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512F.
    Avx512,
}

impl Isa {
    /// The fastest one of this machine.
    pub fn best() -> Self {
        *Self::available().last().expect("the scalar path is always there")
    }

    /// All that this machine can run, slowest first.
    pub fn available() -> &'static [Isa] {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                if is_x86_feature_detected!("avx512f") {
                    return &[Isa::Scalar, Isa::Avx2, Isa::Avx512];
                }
                return &[Isa::Scalar, Isa::Avx2];
            }
        }
        &[Isa::Scalar]
    }
}

/// A loop to compile for every instruction set. `run` and all that it calls must be `#[inline(always)]`.
pub(super) trait Job {
    /// The loop, on tiles of R rows.
    fn run<const R: usize>(self);
}

/// Runs a job on the instruction set.
#[inline]
pub(super) fn dispatch(isa: Isa, job: impl Job) {
    match isa {
        Isa::Scalar => job.run::<4>(),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => {
            debug_assert!(Isa::available().contains(&isa));
            // SAFETY: an `Isa` other than Scalar comes from `Isa::available`, which asked the processor.
            unsafe { avx2(job) }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => {
            debug_assert!(Isa::available().contains(&isa));
            // SAFETY: as above.
            unsafe { avx512(job) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        _ => job.run::<4>(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(job: impl Job) {
    job.run::<6>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
fn avx512(job: impl Job) {
    job.run::<12>();
}

/// The right operand of a block: K rows of LANES outputs.
pub(super) trait Panel<T>: Copy {
    /// Row k.
    fn at(&self, k: usize) -> &[T; LANES];
}

impl<T> Panel<T> for &[[T; LANES]] {
    #[inline(always)]
    fn at(&self, k: usize) -> &[T; LANES] {
        &self[k]
    }
}

/// LANES columns of rows that lie anywhere in memory (key rows).
#[derive(Clone, Copy)]
pub(super) struct Columns<'a, T> {
    pub(super) rows: &'a [&'a [T]],
    pub(super) first: usize,
}

impl<T: Copy> Panel<T> for Columns<'_, T> {
    #[inline(always)]
    fn at(&self, k: usize) -> &[T; LANES] {
        self.rows[k][self.first..self.first + LANES].try_into().expect("a slice of LANES values")
    }
}

/// `acc[r] += a[r] . b` for LANES outputs at once, by the rule for dot products.
pub(super) struct Block<'a, T, B> {
    /// Rows of K values each.
    pub(super) a: &'a [&'a [T]],
    /// K rows of LANES values.
    pub(super) b: B,
    /// K.
    pub(super) k: usize,
    /// One f64 accumulator a row and lane.
    pub(super) acc: &'a mut [[f64; LANES]],
}

impl<T: Real, B: Panel<T>> Job for Block<'_, T, B> {
    #[inline(always)]
    fn run<const R: usize>(self) {
        let Self { a, b, k, acc } = self;
        let mut k0 = 0;
        while k0 < k {
            let k1 = k.min(k0 + K_BLOCK);
            let mut r = 0;
            while r + R <= a.len() {
                tile::<T, B, R>(&a[r..], b, k0, k1, &mut acc[r..]);
                r += R;
            }
            while r + 4 <= a.len() {
                tile::<T, B, 4>(&a[r..], b, k0, k1, &mut acc[r..]);
                r += 4;
            }
            while r < a.len() {
                tile::<T, B, 1>(&a[r..], b, k0, k1, &mut acc[r..]);
                r += 1;
            }
            k0 = k1;
        }
    }
}

#[inline(always)]
fn tile<T: Real, B: Panel<T>, const R: usize>(a: &[&[T]], b: B, k0: usize, k1: usize, acc: &mut [[f64; LANES]]) {
    let n = k1 - k0;
    let mut rows: [&[T]; R] = [&[]; R];
    for r in 0..R {
        rows[r] = &a[r][k0..k1];
    }
    let mut sum = [[T::ZERO; LANES]; R];
    for i in 0..n {
        let lanes = b.at(k0 + i);
        for r in 0..R {
            let x = rows[r][i];
            for j in 0..LANES {
                sum[r][j] = x.fma(lanes[j], sum[r][j]);
            }
        }
    }
    for r in 0..R {
        for j in 0..LANES {
            acc[r][j] += sum[r][j].wide();
        }
    }
}

/// `out[r] = a[r] . b[r]` in f64, each by the rule for dot products; rows run side by side.
pub(super) struct RowDots<'a, T, F> {
    /// Length of every row.
    pub(super) k: usize,
    /// Row r of both operands.
    pub(super) row: F,
    /// One sum a row.
    pub(super) out: &'a mut [f64],
    pub(super) _type: std::marker::PhantomData<T>,
}

impl<'v, T: Real, F: Fn(usize) -> (&'v [T], &'v [T])> Job for RowDots<'_, T, F> {
    #[inline(always)]
    fn run<const R: usize>(self) {
        let mut r = 0;
        while r + 8 <= self.out.len() {
            side_by_side::<T, 8>(self.k, [0, 1, 2, 3, 4, 5, 6, 7].map(|i| (self.row)(r + i)), &mut self.out[r..]);
            r += 8;
        }
        while r < self.out.len() {
            side_by_side::<T, 1>(self.k, [(self.row)(r)], &mut self.out[r..]);
            r += 1;
        }
    }
}

#[inline(always)]
fn side_by_side<T: Real, const R: usize>(k: usize, rows: [(&[T], &[T]); R], out: &mut [f64]) {
    let mut total = [0f64; R];
    let mut k0 = 0;
    while k0 < k {
        let k1 = k.min(k0 + K_BLOCK);
        let mut sum = [T::ZERO; R];
        for i in k0..k1 {
            for r in 0..R {
                sum[r] = rows[r].0[i].fma(rows[r].1[i], sum[r]);
            }
        }
        for r in 0..R {
            total[r] += sum[r].wide();
        }
        k0 = k1;
    }
    out[..R].copy_from_slice(&total);
}

/// `out[d] = sum over slots of p[slot][d] * v[slot][d]` in f64, by the rule for dot products over slots.
pub(super) struct Slots<'a, T> {
    /// One row of weights a slot.
    pub(super) p: &'a [&'a [T]],
    /// One row of values a slot.
    pub(super) v: &'a [&'a [T]],
    /// One sum a channel.
    pub(super) out: &'a mut [f64],
    /// One block sum a channel.
    pub(super) block: &'a mut [T],
}

impl<T: Real> Job for Slots<'_, T> {
    #[inline(always)]
    fn run<const R: usize>(self) {
        let width = self.out.len();
        let block = &mut self.block[..width];
        self.out.fill(0.0);
        let mut s0 = 0;
        while s0 < self.p.len() {
            let s1 = self.p.len().min(s0 + K_BLOCK);
            block.fill(T::ZERO);
            for s in s0..s1 {
                let (p, v) = (&self.p[s][..width], &self.v[s][..width]);
                for d in 0..width {
                    block[d] = p[d].fma(v[d], block[d]);
                }
            }
            for d in 0..width {
                self.out[d] += block[d].wide();
            }
            s0 = s1;
        }
    }
}
