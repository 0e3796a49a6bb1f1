//! Golden's second tier on a device: a product whose weight is exact in bf16 runs on the tensor cores, its activations as three
//! bf16 terms. Everything else keeps golden's bits: weights that are not exact, K that is no multiple of 8 or very long, rows
//! whose terms are not exact, sums that overflow.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use karat_model::{Error, Result};
use karat_reference::backend::Kept;
use serde::{Deserialize, Serialize};

use super::accumulator::{LONGEST, STEP, accumulator, stated};
use super::run::{Desk, Found, Piece, Runner, Step, Values};

/// Which arithmetic golden's products have on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tier {
    /// Golden's own: the bits of a CPU.
    #[default]
    Bits,
    /// Those whose weight is exact in bf16 on the tensor cores, within [`stated`] of exact.
    ExactSplit,
}

/// Which products ran how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// Products on the tensor cores.
    pub split: u64,
    /// Their rows.
    pub rows: u64,
    /// Those of these rows that golden's arithmetic computed, some outputs or all: terms that are not exact, or sums that are not finite.
    pub rows_redone: u64,
    /// Products in golden's arithmetic because the weight is not exact in bf16.
    pub inexact: u64,
    /// Products in golden's arithmetic for their sizes.
    pub sizes: u64,
    /// Weights that were looked at, those of them that are not exact, and their values that are not.
    pub weights: [u64; 3],
}

/// A weight that is held, and its rows in bf16 if they are exact.
type Narrowed<M> = (Weak<dyn Any + Send + Sync>, Option<Arc<M>>);

/// The tier of one device.
#[derive(Debug)]
pub(super) struct Split<R: Runner> {
    arch: String,
    /// Digest of its image.
    image: String,
    /// By the address of what is kept of a weight.
    narrowed: Mutex<BTreeMap<usize, Narrowed<R::Memory>>>,
    taken: Arc<Mutex<Taken>>,
}

/// Places of the pieces of a product: x, terms, w in bf16, w in panels, marked rows, rows that were done again, y.
pub(super) const PIECES: [usize; 7] = [0, 1, 2, 3, 4, 5, 6];

/// Whether the tier takes these sizes.
fn takes((s, n, k): (usize, usize, usize)) -> bool {
    k.is_multiple_of(8) && (1..=LONGEST).contains(&k) && (1..=1 << 30).contains(&s) && (1..=1 << 30).contains(&n)
}

fn step(kernel: &'static str, threads: usize, p: &[usize], n: &[usize]) -> Step {
    Step { kernel, threads, p: p.to_vec(), n: n.to_vec(), f: Vec::new() }
}

/// The kernels of a product whose operands have these places, in the order of [`PIECES`]. A block of 256 threads has 64 rows and
/// 128 columns of outputs.
pub(super) fn steps((s, n, k): (usize, usize, usize), places: [usize; 7]) -> [Step; 4] {
    let [x, terms, w, panels, marks, redone, y] = places;
    [
        step("golden_split_clear", s, &[marks, redone], &[s]),
        step("golden_split_terms", s * k / 2, &[x, terms, marks], &[s, k]),
        step("golden_split_product", s.div_ceil(64) * n.div_ceil(128) * 256, &[terms, w, y], &[s, n, k]),
        step("golden_split_rest", s * n, &[x, panels, marks, redone, y], &[s, n, k]),
    ]
}

fn lock<T>(it: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R: Runner> Split<R> {
    /// What its results follow from.
    pub(super) fn identity(&self) -> String {
        format!("exact-split {} within {:e}", self.image, self.stated())
    }

    /// The stated bound on this chip.
    pub(super) fn stated(&self) -> f64 {
        stated(&self.arch)
    }
}

impl<R: Runner> Desk<R> {
    /// The same on the exact-split tier, all ranks; `image` is the digest of its kernels.
    pub(super) fn exact_split(mut self, arch: &str, image: &str) -> Self {
        let taken: Arc<Mutex<Taken>> = Arc::default();
        let new = || {
            Arc::new(Split { arch: arch.into(), image: image.into(), narrowed: Mutex::default(), taken: taken.clone() })
        };
        self.others.iter_mut().for_each(|desk| desk.split = Some(new()));
        self.split = Some(new());
        self
    }

    /// Which products ran how; `None` on the tier of bits.
    pub(super) fn taken(&self) -> Option<Taken> {
        self.split.as_ref().map(|split| *lock(&split.taken))
    }

    /// `x w^T` on the tensor cores: x `[s,k]`, w the weight that `kept` keeps, its panels at `at`. `None`: in golden's arithmetic.
    pub(super) fn split_product(
        &self,
        x: &[f32],
        size: (usize, usize, usize),
        (kept, at): (&Kept, u64),
    ) -> Result<Option<Vec<f32>>> {
        let (s, n, k) = size;
        let Some(w) = self.split_weight(size, (kept, at))? else { return Ok(None) };
        let pieces = [
            Piece::In(Values::F32(x)),
            Piece::Room(6 * s * k),
            Piece::Held(self.runner.at(&w)),
            Piece::Held(at),
            Piece::Room(4 * s),
            Piece::U32(s),
            Piece::F32(s * n),
        ];
        // SAFETY: `linear` checked x and the panels against these sizes; the rest has the sizes that the kernels' heads name.
        let mut found = unsafe { self.run(&pieces, &steps(size, PIECES)) }?.into_iter();
        let (Some(Found::U32(redone)), Some(Found::F32(y))) = (found.next(), found.next()) else {
            return Err(Error::input("a device gave no product"));
        };
        self.count_split(s, &redone);
        Ok(Some(y))
    }

    /// A weight's rows in bf16 if a product of these sizes is one for the tensor cores; notes it if it is not.
    pub(super) fn split_weight(
        &self,
        size: (usize, usize, usize),
        (kept, at): (&Kept, u64),
    ) -> Result<Option<Arc<R::Memory>>> {
        let Some(split) = &self.split else { return Ok(None) };
        if !takes(size) {
            lock(&split.taken).sizes += 1;
            return Ok(None);
        }
        let w = self.narrowed(split, (kept, at), (size.1, size.2))?;
        if w.is_none() {
            lock(&split.taken).inexact += 1;
        }
        Ok(w)
    }

    /// Notes a product of `s` rows and which of them golden's arithmetic computed.
    pub(super) fn count_split(&self, s: usize, redone: &[u32]) {
        let Some(split) = &self.split else { return };
        let mut taken = lock(&split.taken);
        taken.split += 1;
        taken.rows += s as u64;
        taken.rows_redone += redone.iter().filter(|row| **row != 0).count() as u64;
    }

    /// The rows `[n,k]` of a weight in bf16, made at its first use and kept as long as it; `None` if a value is not exact.
    fn narrowed(
        &self,
        split: &Split<R>,
        (kept, at): (&Kept, u64),
        (n, k): (usize, usize),
    ) -> Result<Option<Arc<R::Memory>>> {
        let key = Arc::as_ptr(kept).cast::<()>() as usize;
        let mut all = lock(&split.narrowed);
        // An address is another weight's only after the one before it is gone.
        all.retain(|_, (weight, _)| weight.strong_count() > 0);
        if let Some((_, narrowed)) = all.get(&key) {
            return Ok(narrowed.clone());
        }
        let memory = self.runner.alloc(2 * n * k)?;
        let chunks = k.div_ceil(STEP);
        let pieces = [Piece::Held(at), Piece::Held(self.runner.at(&memory)), Piece::Room(n * chunks), Piece::U32(n)];
        let steps = [
            step("golden_split_narrow", n.div_ceil(16) * 16 * chunks, &[0, 1, 2], &[n, k]),
            step("golden_split_count", n, &[2, 3], &[n, chunks]),
        ];
        // SAFETY: `linear` checked the panels against n and k; `takes` saw to it that k is even.
        let Some(Found::U32(lost)) = unsafe { self.run(&pieces, &steps) }?.into_iter().next() else {
            return Err(Error::input("a device gave no counts"));
        };
        let lost: u64 = lost.iter().map(|n| u64::from(*n)).sum();
        let narrowed = (lost == 0).then(|| Arc::new(memory));
        all.insert(key, (Arc::downgrade(kept), narrowed.clone()));
        drop(all);
        let weights = &mut lock(&split.taken).weights;
        *weights = [weights[0] + 1, weights[1] + u64::from(lost > 0), weights[2] + lost];
        Ok(narrowed)
    }

    /// One product of a weight that nobody keeps: panels `[ceil(n/16)][k][16]`. For measurements.
    pub(super) fn product(&self, x: &[f32], panels: &[f32], (n, k): (usize, usize)) -> Result<Vec<f32>> {
        let s = x.len() / k.max(1);
        if k == 0 || x.len() != s * k || panels.len() != n.div_ceil(16) * k * 16 {
            return Err(Error::input("x and panels do not fit the sizes of a product").found(format!("{n} x {k}")));
        }
        let memory = self.runner.alloc(size_of_val(panels))?;
        self.runner.write(&memory, 0, Values::F32(panels))?;
        let at = self.runner.at(&memory);
        let kept: Kept = Arc::new(memory);
        if let Some(y) = self.split_product(x, (s, n, k), (&kept, at))? {
            return Ok(y);
        }
        let pieces = [Piece::In(Values::F32(x)), Piece::Held(at), Piece::F32(s * n)];
        // SAFETY: as just checked.
        match unsafe { self.run(&pieces, &[super::ops::product([0, 1, 2], [s, n, k])]) }?.into_iter().next() {
            Some(Found::F32(y)) => Ok(y),
            _ => Err(Error::input("a device gave no product")),
        }
    }
}

impl Taken {
    /// What was added to an earlier one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            split: self.split - before.split,
            rows: self.rows - before.rows,
            rows_redone: self.rows_redone - before.rows_redone,
            inexact: self.inexact - before.inexact,
            sizes: self.sizes - before.sizes,
            weights: [0, 1, 2].map(|i| self.weights[i] - before.weights[i]),
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        let Self { split, rows, rows_redone, inexact, sizes, weights } = self;
        format!(
            "{split} products of {rows} rows on the tensor cores ({rows_redone} rows of them, {inexact} products whose weight is \
             not exact in bf16 and {sizes} of other sizes kept golden's arithmetic; {} of {} weights are exact)",
            weights[0] - weights[1],
            weights[0]
        )
    }
}

/// Whether the tier's bound on a chip follows from what was probed there, in words.
pub(super) fn known(arch: &str) -> &'static str {
    if accumulator(arch).is_some() {
        "as this chip's tensor cores were probed to add"
    } else {
        "declared, not probed on this chip"
    }
}
