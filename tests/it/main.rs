//! One binary of cross-crate tests. Each module says what it proves and where the right values come from.

mod checkpoint;
mod clean_candidate;
mod decoders_equal;
mod encoding;
mod golden_invariants;
mod optimized_invariants;
mod oracle_golden;
mod oracle_stock;
mod seam_contract;
