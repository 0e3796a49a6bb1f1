//! What roundings cost in one layer, each measured once: plans are told apart by few of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use karat_diff::tolerance::quantise::{Format, cost};
use karat_optimized::{Product, Store};
use karat_seam::{Op, Tap};

use crate::rotate;

/// Which values of a tap are rounded, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rounded {
    pub(super) tap: Tap,
    pub(super) seq: u32,
    pub(super) format: Format,
    /// Values of a row.
    pub(super) width: usize,
    /// Leading values of a row that are rounded.
    pub(super) front: usize,
    /// Rotated before.
    pub(super) rotated: bool,
}

/// What rounding the operands of a mixing product depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mixed {
    pub(super) seq: u32,
    pub(super) op: Op,
    pub(super) product: Product,
    pub(super) store: Store,
}

/// Errors of an op's taps, and the rows that they were measured on; `None` where they could not be.
pub(super) type OfTaps = Option<(Vec<(Tap, f64)>, usize)>;

/// Costs so far.
#[derive(Default)]
pub(super) struct Costs {
    rounded: Mutex<Vec<(Rounded, (f64, usize))>>,
    weights: Mutex<Vec<((String, usize, Format), Option<(f64, usize)>)>>,
    mixed: Mutex<Vec<(Mixed, OfTaps)>>,
}

impl Costs {
    /// What rounding values costs, and the rows of the sample.
    pub(super) fn rounded(&self, what: Rounded, sample: impl FnOnce() -> (Vec<f32>, usize)) -> (f64, usize) {
        known(&self.rounded, what, || {
            let (mut values, rows) = sample();
            if what.rotated {
                values.chunks_exact_mut(what.width).for_each(rotate::rotated);
            }
            let round = |row: &mut [f64]| {
                let front = what.front.min(row.len());
                what.format.round(&mut row[..front]);
            };
            (cost(&values, what.width, round).unwrap_or(0.0), rows)
        })
    }

    /// What rounding a weight costs; `None` where it is not known.
    pub(super) fn weight(
        &self,
        what: (String, usize, Format),
        measure: impl FnOnce() -> Option<(f64, usize)>,
    ) -> Option<(f64, usize)> {
        known(&self.weights, what, measure)
    }

    /// What a mixing product's rounded operands cost at the taps of its op.
    pub(super) fn mixed<E>(&self, what: Mixed, measure: impl FnOnce() -> Result<OfTaps, E>) -> Result<OfTaps, E> {
        if let Some((_, found)) = held(&self.mixed).iter().find(|(known, _)| *known == what) {
            return Ok(found.clone());
        }
        let made = measure()?;
        held(&self.mixed).push((what, made.clone()));
        Ok(made)
    }
}

fn known<K: PartialEq, V: Clone>(all: &Mutex<Vec<(K, V)>>, what: K, make: impl FnOnce() -> V) -> V {
    if let Some((_, found)) = held(all).iter().find(|(known, _)| *known == what) {
        return found.clone();
    }
    let made = make();
    held(all).push((what, made.clone()));
    made
}

/// What a panic elsewhere left is whole: entries are added at once.
fn held<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}
