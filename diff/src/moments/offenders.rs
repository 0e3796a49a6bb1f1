//! The elements that are worst off.

use std::sync::atomic::{AtomicU64, Ordering};

use super::At;
use crate::values::Element;

/// One pair of values that are far apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offender {
    /// Where.
    pub at: At,
    /// Golden's value.
    pub x: f64,
    /// The candidate's.
    pub y: f64,
}

impl Offender {
    /// |y - x|.
    pub fn distance(&self) -> f64 {
        (self.y - self.x).abs()
    }

    /// Larger distance first, then the earlier place.
    fn is_before(&self, other: &Self) -> bool {
        let (a, b) = (self.distance(), other.distance());
        a > b || (a == b && self.at < other.at)
    }
}

/// A distance that at least as many pairs as are wanted reach, anywhere: what lies under it is nobody's business. Which
/// thread raises it when changes only how much is looked at, never what is found.
#[derive(Debug)]
pub(crate) struct Bar {
    wanted: usize,
    bits: AtomicU64,
}

impl Bar {
    pub(crate) fn new(wanted: usize) -> Self {
        Self { wanted, bits: AtomicU64::new(0) }
    }

    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }
}

/// The worst pairs that one unit of work saw, worst first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Worst(Vec<Offender>);

impl Worst {
    /// True when a chunk with this largest distance may hold one of them. Elements come in order: one that ties with the
    /// last of a full list comes after it.
    #[inline]
    pub(super) fn admits(&self, most: f64, bar: &Bar) -> bool {
        if bar.wanted == 0 || self.0.get(bar.wanted - 1).is_some_and(|last| most <= last.distance()) {
            return false;
        }
        // Magnitudes are ordered as their bits are.
        most.to_bits() >= bar.bits.load(Ordering::Relaxed)
    }

    /// Looks at a chunk, values that are not finite set to zero.
    #[cold]
    pub(super) fn offer<X: Element, Y: Element>(&mut self, x: &[X], y: &[Y], at: impl Fn(usize) -> At, bar: &Bar) {
        for (i, (x, y)) in x.iter().zip(y).enumerate() {
            let (x, y) = (x.wide(), y.wide());
            let distance = (y - x).abs();
            if distance == 0.0 || !self.admits(distance, bar) {
                continue;
            }
            self.insert(Offender { at: at(i), x, y }, bar.wanted);
            if let Some(last) = self.0.get(bar.wanted - 1) {
                bar.bits.fetch_max(last.distance().to_bits(), Ordering::Relaxed);
            }
        }
    }

    /// Adds those of other elements.
    pub(crate) fn merge(&mut self, other: &Self, wanted: usize) {
        for offender in &other.0 {
            self.insert(*offender, wanted);
        }
    }

    pub(crate) fn into_vec(self) -> Vec<Offender> {
        self.0
    }

    fn insert(&mut self, new: Offender, wanted: usize) {
        let place = self.0.partition_point(|old| old.is_before(&new));
        if place < wanted {
            self.0.insert(place, new);
            self.0.truncate(wanted);
        }
    }
}
