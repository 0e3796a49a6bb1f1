//! Partial sums of ranks and splits, and who adds them.

use std::sync::{Arc, Mutex, PoisonError};

use karat_seam::{AllReduce, Error, Result};

use crate::arith::round_rows;
use crate::plan::{Order, Parts, Store};

/// Adds the partial sums of ranks: the contract, or a real all-reduce of as many ranks.
#[derive(Debug, Default)]
pub(crate) struct Adder {
    real: Option<Arc<dyn AllReduce>>,
    /// The first error that it had. From then on the contract adds, so that values stay values, and the path refuses its result.
    failed: Mutex<Option<Error>>,
}

impl Adder {
    pub(crate) fn new(real: Arc<dyn AllReduce>) -> Self {
        Self { real: Some(real), failed: Mutex::default() }
    }

    /// The real one that adds under these rules; none: the contract does.
    pub(crate) fn real(&self, parts: Parts) -> Option<&Arc<dyn AllReduce>> {
        self.real.as_ref().filter(|real| parts.count > 1 && real.ranks() == parts.count)
    }

    /// The sum of one partial sum a rank, not yet stored.
    pub(crate) fn add(&self, parts: Parts, mut sums: Vec<Vec<f32>>) -> Vec<f32> {
        let Some(real) = self.real(parts) else { return add_parts(parts, sums) };
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_none() {
            sums.iter_mut().for_each(|sum| round_rows(parts.store.rounds(), sum));
            match real.all_reduce(&sums, parts.store == Store::Bf16) {
                Ok(total) => return total,
                Err(error) => *failed = Some(error),
            }
        }
        add_parts(parts, sums)
    }

    /// What ran, unless the all-reduce failed.
    pub(crate) fn checked<R>(&self, done: Result<R>) -> Result<R> {
        match self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => done,
        }
    }
}

/// Partial sums, stored and added in order.
pub(crate) fn add_parts(parts: Parts, mut sums: Vec<Vec<f32>>) -> Vec<f32> {
    if parts.count > 1 {
        sums.iter_mut().for_each(|sum| round_rows(parts.store.rounds(), sum));
    }
    let n = sums.first().map_or(0, Vec::len);
    let mut total = vec![0.0; n];
    let chunks = match parts.order {
        Order::Ascending => 1,
        Order::Ring => sums.len(),
    };
    for chunk in 0..chunks {
        let range = chunk * n / chunks..(chunk + 1) * n / chunks;
        let first = if parts.order == Order::Ring { chunk + 1 } else { 0 };
        let mut around = (0..sums.len()).map(|i| &sums[(first + i) % sums.len()][range.clone()]);
        let total = &mut total[range.clone()];
        if let Some(sum) = around.next() {
            total.copy_from_slice(sum);
        }
        for part in around {
            total.iter_mut().zip(part).for_each(|(t, p)| *t += p);
            round_rows(parts.store.rounds(), total);
        }
    }
    total
}

#[cfg(test)]
mod tests;
