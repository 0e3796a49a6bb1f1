//! One binary of cross-crate tests. Each module says what it proves and where the right values come from.

mod audit_runs;
mod broken_inputs;
mod broken_inputs_random;
mod checkpoint;
mod clean_candidate;
mod control_equals_golden;
mod decoders_equal;
mod docs;
mod encoding;
mod golden_invariants;
mod golden_model;
mod optimized_drive;
mod optimized_invariants;
mod optimized_ops;
mod optimized_patches;
mod oracle_golden;
mod oracle_stock;
mod oracle_trace;
mod seam_contract;
