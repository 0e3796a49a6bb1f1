//! Reports of a bundle: for people (html, markdown), for continuous integration (JUnit, GitHub), for spreadsheets (csv);
//! and what moved between two bundles.
//!
//! Every report is a pure function of the bundle: no clock, no file, no network. Names in a bundle come from other
//! people's files, so each format has one place that makes them harmless (`text`, and the escaping of `maud` in html).
//! Every number that is printed is a cell of the bundle, or carries the question to the tables that it answers
//! (`number`), so that a test asks it again.

mod csv;
mod facts;
mod github;
mod html;
mod junit;
mod markdown;
mod moved;
mod number;
mod plot;
mod text;

pub use csv::csv;
pub use github::{Kind, annotations, step_summary};
pub use html::html;
pub use junit::junit;
pub use markdown::markdown;
pub use moved::{Moved, moved};
pub use text::{clean, clean_lines};

#[cfg(test)]
mod tests;
