//! One binary of cross-crate tests. Each module says what it proves and where the right values come from.

#![expect(clippy::print_stdout, reason = "the distances of a run are for people")]
#![expect(clippy::manual_midpoint, reason = "two nibbles a byte is no midpoint")]
#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "a NaN must count as worse")]

mod ablate;
mod ablations;
mod audit_runs;
mod broken_inputs;
mod broken_inputs_random;
mod card;
mod checkpoint;
mod clean_candidate;
mod contract_speed;
mod control_equals_golden;
mod decoders_equal;
mod disagreements;
mod docs;
mod encoding;
mod examination;
mod expected_verdicts;
mod golden_invariants;
mod golden_model;
mod golden_transformers;
mod histories;
mod isolate;
mod load_audit;
mod mtp;
mod noise_beside;
mod nvfp4;
mod optimized_drive;
mod optimized_invariants;
mod optimized_ops;
mod optimized_patches;
mod oracle_golden;
mod oracle_stock;
mod oracle_trace;
mod outputs_alone;
mod patch_predictions;
mod recall;
mod sampled;
mod seam_contract;
mod seeded_faults;
mod sensitivity;
mod story;
mod strata;
mod weight_pass;
