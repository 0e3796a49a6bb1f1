//! How an MMA accumulates: the model that is declared for each architecture ([`declared`]), what it makes of operands
//! ([`MmaModel`]), the questions that find it ([`find`]), and a comparison bit by bit ([`compare`]).

mod asked;
mod compare;
mod declared;
mod evidence;
mod find;
mod form;
mod machine;
mod model;
mod standing;

pub use compare::{Class, Differing, compare};
pub use declared::{Declared, declared};
pub use evidence::{FormEvidence, MmaEvidence, digest};
pub use find::{FormFound, find};
pub use form::Form;
pub use machine::{COLUMNS, Case, Machine, ROWS, Tiles};
pub use model::{Exponent, MmaModel, Rounding};

pub use standing::{Standing, USED, standing};

/// How a model rounds, in words.
fn said(model: &MmaModel) -> &'static str {
    match (model.align, model.round) {
        (Rounding::TowardZero, Rounding::TowardZero) => "cut off toward zero",
        (Rounding::Down, Rounding::Down) => "rounded down",
        (Rounding::NearestEven, Rounding::NearestEven) => "rounded to nearest",
        _ => "rounded in two ways",
    }
}

#[cfg(test)]
mod tests;
