//! Seeded faults after public bug reports: what an audit must find, and where.
//!
//! A fault is an entry of data in `list/`: the report's id, where it must show, and an edit of the candidate's taps
//! (through the seam's writable visitor), of its files, or of its ids; `books.rs` has faults of schedulers. `taps.tsv` says where each report must show in
//! the words of this project; it was written before any fault was audited. Nothing of this is in the shipped binary:
//! only tests and automation depend on this crate.

mod bench;
pub mod books;
pub mod catalogue;
mod edit;
mod fault;
mod faulty;
mod files;
mod kept;
mod levels;
mod list;
mod load;
#[cfg(test)]
mod long;
mod matrix;
mod outputs;
pub mod pairs;
mod placed;
mod seeded;
mod size;
pub mod sizes;

pub use bench::{Bench, CONTROL, CONTROL_OF_TWO, Found, Outcomes, accepted_patches};
pub use edit::Edit;
pub use fault::Fault;
pub use faulty::Faulty;
pub use files::Files;
pub use kept::Kept;
pub use levels::Levels;
pub use list::faults;
pub use load::Load;
pub use matrix::{matrix, rows, rows_of};
pub use outputs::Outputs;
pub use placed::{PLACED, Placed};
pub use size::Size;
