//! What stands in the report beside a goal that was missed: the cause, as far as it is known, and the next step.

/// (Goal, start of what it asks, cause, next step).
const KNOWN: &[(&str, &str, &str, &str)] = &[
    (
        "P5",
        "core set, f32 in memory",
        "the sums are f64: widening, nine additions and one product a pair beside three fused ones keep the vector units busy \
         about as long as memory takes",
        "the same placed differently in memory: two tensors at one offset of their pages may fight for banks",
    ),
    (
        "P5",
        "core set, ",
        "half the bytes or fewer a pair, and the same arithmetic: the vector units are the limit, not memory",
        "as for f32; then decoding straight into f64 registers instead of through a buffer",
    ),
    (
        "P5",
        "full set, f32 in memory",
        "one increment of a table in memory a pair, beside two more sums",
        "the sums of both sets in one loop where the registers hold them",
    ),
    (
        "P5",
        "core set, f32 from mapped",
        "the file is mapped anew for each comparison, and each page is a fault on first touch",
        "ask the system for the pages ahead (madvise), or map large pages",
    ),
    (
        "P2",
        "product",
        "rows of one or two K-blocks are not copied: their addresses don't fit into the registers; longer ones wait for the \
         weight",
        "see the table of products: which shape falls short",
    ),
    (
        "P1",
        "",
        "see the model table: the ratio moves with how well the peer uses this machine's threads",
        "profile golden's forward pass at this length (`cargo bench -p karat-reference` tells the loops)",
    ),
];

/// What is known about a goal.
pub(super) fn known(goal: &str, what: &str) -> Option<(&'static str, &'static str)> {
    KNOWN.iter().find(|k| k.0 == goal && what.starts_with(k.1)).map(|k| (k.2, k.3))
}
