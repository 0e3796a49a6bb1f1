//! What stands in the report beside a goal that was missed: the cause, as far as it is known, and the next step.

/// (Goal, part of what it asks, cause, next step); the first that fits.
const KNOWN: &[(&str, &str, &str, &str)] = &[
    (
        "P5",
        "core set, f32 in memory",
        "a core waits for memory about as long as it adds (f64 sums: widening, nine additions, one product and three fused ones a \
         pair), and the two overlap only in part",
        "the same with two chunks in flight; then reading ahead by the system's large pages",
    ),
    (
        "P5",
        "core set, e4m3",
        "a quarter of the bytes a pair and the same arithmetic, after a decoding that costs as much again",
        "a table of all pairs of codes: 65,536 counts tell every sum, but in another order, so it would be a new version of the bits",
    ),
    (
        "P5",
        "core set, ",
        "half the bytes or fewer a pair, and the same arithmetic: the vector units are the limit, not memory",
        "as for f32; then decoding straight into f64 registers instead of through a buffer",
    ),
    (
        "P5",
        "full set, ",
        "a second loop over each chunk: two more sums, a key of two exponents, and one increment of a table in memory a pair",
        "the sums of both sets in one loop where the registers hold them; keys counted by sorting networks of sixteen",
    ),
    (
        "P5",
        "core set, f32 from mapped",
        "the file is mapped anew for each comparison, and each page is a fault on first touch",
        "ask the system for the pages ahead (madvise), or map large pages",
    ),
    (
        "P2",
        "times torch.mm",
        "where torch's library takes AVX-512 it is at nine tenths of the ceiling itself; the goal is from a machine where it \
         doesn't and is at four tenths",
        "the share of the ceiling is what can be won",
    ),
    (
        "P2",
        "share of FMA peak",
        "few rows pay for the copy of each group's sums and the start of tasks; the ceiling is the best of the whole run, and \
         the processor's clock beside long products is lower",
        "see the table of products: which shape falls short",
    ),
    (
        "P1",
        "logits rows, median",
        "a near-tie that falls the other way reaches every later row: see the columns of the same decisions",
        "nothing in golden: the row's own error is the one with the same decisions",
    ),
    (
        "P1",
        "times transformers' speed",
        "half of the pass is products with 256 inputs or fewer; weighted sums, softmax and stream mixing are a fifth, and buffers \
         that each op takes and clears anew a tenth",
        "ops that write into kept buffers; the stream mixing of sixteen rows in one sweep",
    ),
];

/// What is known about a goal.
pub(super) fn known(goal: &str, what: &str) -> Option<(&'static str, &'static str)> {
    KNOWN.iter().find(|k| k.0 == goal && what.contains(k.1)).map(|k| (k.2, k.3))
}
