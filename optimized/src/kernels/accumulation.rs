//! How a kernel's device adds up products, as far as what it may be off follows from it.

/// What a step of a tensor core keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accumulation {
    /// Bits that are kept of an addend below the largest exponent of its step.
    pub bits: u32,
    /// Products that are added in one step.
    pub products: u32,
    /// Addends and sums are cut off; else they are rounded to nearest.
    pub truncates: bool,
    /// Where this comes from, a sentence for people; empty where nothing was looked at.
    pub note: String,
    /// Why rows that are judged by it prove nothing; empty where they do.
    pub unproven: String,
}

impl Default for Accumulation {
    /// sm_90, as it is declared: what is taken where kernels say nothing of themselves.
    fn default() -> Self {
        Self { bits: 25, products: 16, truncates: true, note: String::new(), unproven: String::new() }
    }
}
