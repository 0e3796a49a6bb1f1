//! What recall sees and what a mean KL sees: each speed patch and twenty faults, each alone on stock, on the golden model.
//! docs/sensitivity.md is what `cargo xtask sensitivity` measured; a test holds two rows to a formula of its own, another
//! the page's lists to its tables.

mod line;
mod measure;
mod page;
mod sample;
mod tests;
