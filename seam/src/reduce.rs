//! Partial sums of ranks, added where ranks really are.

use std::fmt::Debug;

use crate::Result;

/// An all-reduce that exists: the devices of a host and the library that connects them. A candidate whose plan spreads
/// products over as many ranks has its partial sums added here instead of by its contract, so that the real order and the real
/// roundings are what is compared.
pub trait AllReduce: Debug + Send + Sync {
    /// What adds, with its version: for people, and part of what results follow from.
    fn name(&self) -> String;
    /// How many ranks.
    fn ranks(&self) -> usize;
    /// The sum of one partial sum a rank, all of one length. With `is_bf16` the values are bf16, and what travels is.
    ///
    /// # Errors
    /// A device failed, or the ranks hold different sums.
    fn all_reduce(&self, sums: &[Vec<f32>], is_bf16: bool) -> Result<Vec<f32>>;
}
