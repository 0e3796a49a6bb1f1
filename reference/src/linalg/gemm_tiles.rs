//! Tiles of a product: R rows by P panels whose sums stay in registers, and how rows and panels are cut into them. The
//! bits don't depend on the cut: every output has a chain of its own.
#![expect(clippy::inline_always, reason = "the loops must be compiled with the features of their caller")]

use std::ops::Range;

use super::simd_chain::{Left, Panels, RowsOf, Spaced, chain, chain_ahead};
use super::simd_vector::{Machine, Vector};
use super::{K_BLOCK, LANES, Packed, Real};

/// Panels that a tile of one row takes at once.
const WIDE: usize = 6;

/// Rows of a product as tiles read them.
pub(super) trait Source<T>: Copy {
    /// Rows `r0..r0+R`, inputs `ks` (one block at most).
    fn left<const R: usize>(&self, r0: usize, ks: Range<usize>) -> impl Left<T, R>;
}

/// Rows where they lie.
#[derive(Clone, Copy)]
pub(super) struct Direct<'a, T> {
    pub(super) rows: &'a [&'a [T]],
}

impl<T: Real> Source<T> for Direct<'_, T> {
    #[inline(always)]
    fn left<const R: usize>(&self, r0: usize, ks: Range<usize>) -> impl Left<T, R> {
        RowsOf::<T, R>::new(self.rows, r0, ks)
    }
}

/// A copy `[blocks][m][K_BLOCK]` of `m` rows from input `first` on.
#[derive(Clone, Copy)]
pub(super) struct Slab<'a, T> {
    pub(super) data: &'a [T],
    pub(super) m: usize,
    pub(super) first: usize,
}

impl<T: Real> Source<T> for Slab<'_, T> {
    #[inline(always)]
    fn left<const R: usize>(&self, r0: usize, ks: Range<usize>) -> impl Left<T, R> {
        let row = (ks.start - self.first) / K_BLOCK * self.m + r0;
        Spaced::<T, R, K_BLOCK>::new(&self.data[row * K_BLOCK..], ks.len())
    }
}

/// Takes the sums of one row and panel.
pub(super) trait Sink<T> {
    fn put<V: Vector<T>>(&mut self, r: usize, p: usize, sums: V);
}

/// Writes them to their place.
pub(super) struct Place<'a, T> {
    pub(super) out: &'a mut [T],
    pub(super) stride: usize,
    pub(super) first: usize,
    pub(super) start: usize,
    pub(super) w: &'a Packed<T>,
}

impl<T: Real> Place<'_, T> {
    /// Sums in f64 `[panels][m]`, each rounded once.
    #[inline(always)]
    pub(super) fn round(&mut self, sums: &[[f64; LANES]], m: usize, panels: Range<usize>) {
        for (i, p) in panels.enumerate() {
            let (width, column) = (self.w.width(p), self.first + i * LANES);
            for (r, sums) in sums[i * m..(i + 1) * m].iter().enumerate() {
                let row = &mut self.out[r * self.stride + column..][..width];
                for j in 0..width {
                    row[j] = T::of(sums[j]);
                }
            }
        }
    }
}

impl<T: Real> Sink<T> for Place<'_, T> {
    #[inline(always)]
    fn put<V: Vector<T>>(&mut self, r: usize, p: usize, sums: V) {
        let row = &mut self.out[r * self.stride + self.first + (p - self.start) * LANES..];
        let width = self.w.width(p);
        if width >= V::LEN {
            sums.store(row);
        } else {
            let mut lanes = [T::ZERO; LANES];
            sums.store(&mut lanes);
            row[..width].copy_from_slice(&lanes[..width]);
        }
    }
}

/// Adds them to f64 accumulators.
pub(super) struct Add<'a> {
    pub(super) sums: &'a mut [[f64; LANES]],
    pub(super) m: usize,
    pub(super) start: usize,
}

impl<T: Real> Sink<T> for Add<'_> {
    #[inline(always)]
    fn put<V: Vector<T>>(&mut self, r: usize, p: usize, sums: V) {
        let total = &mut self.sums[(p - self.start) * self.m + r];
        let mut lanes = [T::ZERO; LANES];
        sums.store(&mut lanes);
        for j in 0..V::LEN {
            total[j] += lanes[j].wide();
        }
    }
}

/// `m` rows times panels one by one.
#[inline(always)]
fn few<T: Real, M: Machine, const R: usize, const H: usize>(
    x: impl Source<T>,
    m: usize,
    w: &Packed<T>,
    panels: Range<usize>,
    ks: Range<usize>,
    sink: &mut impl Sink<T>,
) {
    for p in panels {
        let mut r = 0;
        // The f64 mode and the plain loops of this machine need no speed: every shape of tile costs seconds of compiling.
        if M::IS_FAST && !T::IS_WIDE {
            if w.width(p) <= LANES / 2 {
                while r + H <= m {
                    tile::<T, M::Half<T>, H, 1>(x, r, w, p, &ks, sink);
                    r += H;
                }
            } else {
                while r + R <= m {
                    tile::<T, M::Panel<T>, R, 1>(x, r, w, p, &ks, sink);
                    r += R;
                }
            }
            while r + 4 <= m {
                tile::<T, M::Panel<T>, 4, 1>(x, r, w, p, &ks, sink);
                r += 4;
            }
        }
        while r < m {
            tile::<T, M::Panel<T>, 1, 1>(x, r, w, p, &ks, sink);
            r += 1;
        }
    }
}

/// `m` rows times panels, inputs `ks` (at most two blocks), tile by tile. While a panel is used the next one is fetched;
/// behind the last one come inputs `next..` of the first.
#[inline(always)]
pub(super) fn sweep<T: Real, M: Machine, const R: usize, const H: usize, const P: usize>(
    x: impl Source<T>,
    m: usize,
    w: &Packed<T>,
    panels: Range<usize>,
    ks: Range<usize>,
    next: usize,
    sink: &mut impl Sink<T>,
) {
    if !M::IS_FAST || T::IS_WIDE || panels.len() == 1 {
        few::<T, M, R, H>(x, m, w, panels, ks, sink);
        return;
    }
    // A last panel of few outputs takes half a register, unless it has a neighbour in a tile of two.
    let half =
        panels.end == w.panels() && w.width(panels.end - 1) <= LANES / 2 && (P == 1 || !panels.len().is_multiple_of(P));
    let whole = panels.start..panels.end - usize::from(half);
    let main = m / R * R;
    let mut p = whole.start;
    while p + P <= whole.end {
        let (then, from) = if p + P < whole.end { (p + P, ks.start) } else { (whole.start, next) };
        for (i, r) in (0..main).step_by(R).enumerate() {
            // Each tile fetches a quarter of a panel.
            let (then, from) = (then + (i / 4).min(P - 1), from + i % 4 * (ks.len() / 4));
            let ahead = &raw const w.panel(then.min(whole.end - 1))[from.min(w.k() - 1)];
            tile_ahead::<T, M::Panel<T>, R, P>(x, r, w, p, &ks, Some(ahead), sink);
        }
        p += P;
    }
    if P > 1 {
        for p in p..whole.end {
            for r in (0..main).step_by(R) {
                tile::<T, M::Panel<T>, R, 1>(x, r, w, p, &ks, sink);
            }
        }
    }
    rest::<T, M, P>(x, main..m, w, whole.clone(), &ks, sink);
    if half {
        let mut r = 0;
        while r + H <= m {
            tile::<T, M::Half<T>, H, 1>(x, r, w, whole.end, &ks, sink);
            r += H;
        }
        while r < m {
            tile::<T, M::Panel<T>, 1, 1>(x, r, w, whole.end, &ks, sink);
            r += 1;
        }
    }
}

/// Fewer rows than a tile has: wider tiles of fewer rows.
#[inline(always)]
fn rest<T: Real, M: Machine, const P: usize>(
    x: impl Source<T>,
    rows: Range<usize>,
    w: &Packed<T>,
    panels: Range<usize>,
    ks: &Range<usize>,
    sink: &mut impl Sink<T>,
) {
    let mut r = rows.start;
    while r + 4 <= rows.end {
        let mut p = panels.start;
        if P > 1 {
            while p + 3 <= panels.end {
                tile::<T, M::Panel<T>, 4, 3>(x, r, w, p, ks, sink);
                p += 3;
            }
        }
        for p in p..panels.end {
            tile::<T, M::Panel<T>, 4, 1>(x, r, w, p, ks, sink);
        }
        r += 4;
    }
    while r + 2 <= rows.end {
        let mut p = panels.start;
        if P > 1 {
            while p + WIDE <= panels.end {
                tile::<T, M::Panel<T>, 2, WIDE>(x, r, w, p, ks, sink);
                p += WIDE;
            }
        } else {
            while p + WIDE / 2 <= panels.end {
                tile::<T, M::Panel<T>, 2, { WIDE / 2 }>(x, r, w, p, ks, sink);
                p += WIDE / 2;
            }
        }
        for p in p..panels.end {
            tile::<T, M::Panel<T>, 2, 1>(x, r, w, p, ks, sink);
        }
        r += 2;
    }
    if r < rows.end {
        let mut p = panels.start;
        while p + WIDE <= panels.end {
            tile::<T, M::Panel<T>, 1, WIDE>(x, r, w, p, ks, sink);
            p += WIDE;
        }
        for p in p..panels.end {
            tile::<T, M::Panel<T>, 1, 1>(x, r, w, p, ks, sink);
        }
    }
}

#[inline(always)]
fn tile<T: Real, V: Vector<T>, const R: usize, const P: usize>(
    x: impl Source<T>,
    r0: usize,
    w: &Packed<T>,
    p0: usize,
    ks: &Range<usize>,
    sink: &mut impl Sink<T>,
) {
    tile_ahead::<T, V, R, P>(x, r0, w, p0, ks, None, sink);
}

/// One tile; fetches lines of what comes next on the way. Two blocks need no f64: the sum of two f32 is the same whether
/// it is rounded at once or by way of f64 (53 >= 2 * 24 + 2 bits), and adding +0.0 turns a -0.0 into +0.0 as the f64
/// accumulator does.
#[inline(always)]
fn tile_ahead<T: Real, V: Vector<T>, const R: usize, const P: usize>(
    x: impl Source<T>,
    r0: usize,
    w: &Packed<T>,
    p0: usize,
    ks: &Range<usize>,
    ahead: Option<*const [T; LANES]>,
    sink: &mut impl Sink<T>,
) {
    debug_assert!(ks.len() <= 2 * K_BLOCK, "f32 is enough for two blocks only");
    let cut = ks.end.min(ks.start + K_BLOCK);
    let mut sums = block::<T, V, R, P>(x, r0, w, p0, ks.start..cut, ahead);
    let zero = V::splat(T::ZERO);
    for r in 0..R {
        for p in 0..P {
            sums[r][p] = sums[r][p].add(zero);
        }
    }
    if cut < ks.end {
        let ahead = ahead.map(|ahead| ahead.wrapping_add(K_BLOCK / 4));
        let second = block::<T, V, R, P>(x, r0, w, p0, cut..ks.end, ahead);
        for r in 0..R {
            for p in 0..P {
                sums[r][p] = sums[r][p].add(second[r][p]);
            }
        }
    }
    for r in 0..R {
        for p in 0..P {
            sink.put(r0 + r, p0 + p, sums[r][p]);
        }
    }
}

/// One block of a tile's sums.
#[inline(always)]
fn block<T: Real, V: Vector<T>, const R: usize, const P: usize>(
    x: impl Source<T>,
    r0: usize,
    w: &Packed<T>,
    p0: usize,
    ks: Range<usize>,
    ahead: Option<*const [T; LANES]>,
) -> [[V; P]; R] {
    let a = x.left::<R>(r0, ks.clone());
    let b = Panels::<T, P>::new(w, p0, ks.clone());
    match ahead {
        Some(ahead) => chain_ahead::<T, V, R, P>(a, b, ks.len(), ahead),
        None => chain::<T, V, R, P>(a, b, 0..ks.len()),
    }
}
