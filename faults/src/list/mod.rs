//! Every fault, family by family.

mod act;
mod attn;
mod batch;
mod comp;
mod det;
mod enc;
mod index;
mod mhc;
mod quant;
mod rope;
mod route;
mod state;
mod two;

use crate::Fault;

/// Every fault, in the order of the families.
pub fn faults() -> Vec<&'static Fault> {
    let all: [&'static [Fault]; 13] = [
        route::FAULTS,
        act::FAULTS,
        quant::FAULTS,
        mhc::FAULTS,
        rope::FAULTS,
        index::FAULTS,
        comp::FAULTS,
        attn::FAULTS,
        state::FAULTS,
        batch::FAULTS,
        det::FAULTS,
        enc::FAULTS,
        two::FAULTS,
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
