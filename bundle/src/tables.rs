//! The csv tables. Every column is defined here and nowhere else.
//!
//! Letters: R(x) golden on its own layer input, R(x') golden on the candidate's, C(x') the candidate; J = C(x')-R(x')
//! injected, H = R(x')-R(x) inherited, T = C(x')-R(x) = J + H. An empty cell means "not defined here" (a discrete tap
//! has no rel-L2; a trace without layer outputs has no R(x')).

use crate::Verdict;
use crate::schema::table;

table! {
    /// One tap of one layer, sequence, phase, patch set and part.
    TapRow = "taps.csv" {
        /// Scenario, or the token file's name.
        scenario: String,
        /// Sequence (conversation) id.
        sequence: String,
        /// How the rows came about: cold, warm, chunked, decoded, ...
        history: String,
        /// 0 for rows computed once; more for rows computed again.
        pass: u64,
        /// prefill or decode: the phase in which the candidate computed these rows.
        phase: String,
        /// stock, stock+PATCH, stock+all, or trace.
        patch_set: String,
        /// Where the candidate ran: cpu, cuda, trace.
        backend: String,
        /// Layer number; embed, head or mtp.N for the rest.
        layer: String,
        /// Op that writes the tap.
        op: String,
        /// Tap.
        tap: String,
        /// stream.N, head.N, expert.N, nope, rope, argmax; op: golden's op on the candidate's own operands; op.ulp: the same
        /// in units of the last place, where the op rounds once; empty for the whole tap.
        part: String,
        /// Elements compared.
        n: u64,
        /// |J| / |R(x')|.
        rel_l2: Option<f64>,
        /// Largest |J|.
        max_abs: Option<f64>,
        /// Position (entry index for entry taps) of the largest |J|.
        max_abs_position: Option<u64>,
        /// 99th percentile over rows of the row's own |J| / |R(x')|.
        row_p99_rel_l2: Option<f64>,
        /// Cosine of C(x') and R(x').
        cosine: Option<f64>,
        /// <R(x'),C(x')> / <R(x'),R(x')>.
        gain: Option<f64>,
        /// |C(x') - gain R(x')| / |R(x')|.
        residual: Option<f64>,
        /// 1 - 2<R(x'),C(x')> / (|R(x')|^2 + |C(x')|^2).
        calc_diff: Option<f64>,
        /// 20 log10(|R(x')| / |J|).
        snr_db: Option<f64>,
        /// 99th percentile of |J| in units of the last place of the stored type.
        ulp_p99: Option<f64>,
        /// Sum of J over sum of |J|: 0 without bias, 1 or -1 when every error has one sign.
        sign_bias: Option<f64>,
        /// Pairs in which a value is NaN or infinite; a masked score on both sides is none.
        nonfinite: u64,
        /// Candidate values at the largest magnitude of the stored type.
        saturated: u64,
        /// |T| / |R(x)|.
        total: Option<f64>,
        /// |H| / |R(x)|.
        inherited: Option<f64>,
        /// |J| / |R(x)|.
        injected: Option<f64>,
        /// <H,J> / |R(x)|^2: total^2 = inherited^2 + injected^2 + 2 cross.
        cross: Option<f64>,
        /// |H| / |x'-x|: how much golden itself amplifies what came in.
        amplification: Option<f64>,
        /// Distance of golden f32 from golden f64 on x' with the same decisions, in the gate's unit; at least what golden's tier on a GPU states of its products.
        floor: Option<f64>,
        /// Error that the tap's storage type must cost, in the gate's unit.
        predicted: Option<f64>,
        /// Largest error that passes, in the gate's unit.
        tolerance: Option<f64>,
        /// value / predicted.
        ratio_to_predicted: Option<f64>,
        /// injected of this patch set minus injected of stock; negative when the patch improves.
        added_to_stock: Option<f64>,
        /// pass, fail or unproven; empty when the row is not gated.
        verdict: Option<Verdict>,
        /// Place in op order over the whole model: smaller came first.
        order: u64,
        /// Unit of value, floor, predicted and tolerance: max_over_max, rel_l2, ulp_p99 (99th percentile of |J| in units of bf16's last
        /// place), unexplained_flips (decisions that the formats' noise cannot have changed), unexplained_rows (KV rows that are
        /// not what the conversation leaves there) or flips_added_to_stock (most likely ids changed here alone less those that
        /// stock alone changes); empty when not gated.
        gate: String,
        /// The injected error in the gate's unit.
        value: Option<f64>,
        /// Rows compared.
        rows: u64,
        /// Index within its row of the largest |J|.
        max_abs_index: Option<u64>,
        /// Moment: sum of R(x').
        sum_x: Option<f64>,
        /// Moment: sum of C(x').
        sum_y: Option<f64>,
        /// Moment: sum of R(x')^2.
        sum_xx: Option<f64>,
        /// Moment: sum of C(x')^2.
        sum_yy: Option<f64>,
        /// Moment: sum of R(x') C(x').
        sum_xy: Option<f64>,
        /// Moment: sum of J.
        sum_d: Option<f64>,
        /// Moment: sum of |J|.
        sum_abs_d: Option<f64>,
        /// Moment: sum of J^2.
        sum_dd: Option<f64>,
        /// Moment: largest |R(x')|.
        max_x: Option<f64>,
        /// Moment: sum of R(x)^2.
        sum_golden: Option<f64>,
        /// Moment: sum of T^2.
        sum_total: Option<f64>,
        /// Moment: sum of H^2.
        sum_inherited: Option<f64>,
        /// Moment: sum of H J.
        sum_cross: Option<f64>,
        /// Where the tolerance comes from: derived (1.5 times what the numeric plan's roundings cost on golden, times
        /// exp(arcosh(exp(4/effective_rows))) for chance), provisional
        /// (four one-rounding errors, or four times a patch's claim), tighter (provisional, since the derived one is
        /// looser), or raised (1.5 times the derived error and chance, four times at most, where that is more than the provisional
        /// tolerance: index scores, sums that cancel); empty when not gated, or gated by a count.
        basis: String,
        /// rel-L2 that the roundings of the numeric plan cost here, within the layer: golden with noise of their size against
        /// golden; of part op those of the op alone. Empty where nothing was derived, or no more than a bound.
        derived: Option<f64>,
        /// Rows that carry the derived error: (sum of d^2)^2 / sum of d^4. The fewer, the more chance may do; half as
        /// many where a row has one value that is free to err.
        effective_rows: Option<f64>,
        /// Distance of the same engine's rerun from this run, in the gate's unit: its own noise. Empty without a rerun.
        rerun: Option<f64>,
    }
}

table! {
    /// One rounding of the stock plan at one tap: what the derived column of taps.csv is made of.
    DerivationRow = "derivations.csv" {
        /// Scenario of the sequence that the cost was measured on; empty where it is the same for all.
        scenario: String,
        /// Sequence that the cost was measured on; empty where it is the same for all.
        sequence: String,
        /// Layer number.
        layer: String,
        /// Op that writes the tap.
        op: String,
        /// Tap.
        tap: String,
        /// What is rounded: an operand's tap, a weight, the accumulator, or the output.
        term: String,
        /// Format that it is rounded to.
        format: String,
        /// spread (over the whole row, as an operand of a product) or own (each value by itself).
        shape: String,
        /// How often.
        times: f64,
        /// rel-L2 of one rounding.
        cost: f64,
        /// measured (golden's own values were rounded), formula, or typical (no tap shows what is rounded).
        basis: String,
        /// Rows that it was measured on.
        sample_rows: u64,
        /// Place in op order over the whole model.
        order: u64,
    }
}

table! {
    /// Logits of one position under one patch set.
    TokenRow = "tokens.csv" {
        /// Scenario, or the token file's name.
        scenario: String,
        /// Sequence (conversation) id.
        sequence: String,
        /// Position whose logits these are.
        position: u64,
        /// prefill or decode: the phase in which the candidate computed the position.
        phase: String,
        /// How the row came about.
        history: String,
        /// KL(golden || candidate) over the whole vocabulary, nats.
        kl: f64,
        /// Jensen-Shannon divergence, nats.
        js: f64,
        /// RMS over the vocabulary of the logit difference.
        delta_logit_rms: f64,
        /// Golden's most likely id.
        top1_golden: u64,
        /// Candidate's most likely id.
        top1_candidate: u64,
        /// Golden's largest logit minus its second largest.
        margin_golden: f64,
        /// Probability of another most likely id under the predicted noise.
        expected_flip_probability: Option<f64>,
        /// Share of golden's top ten that is in the candidate's.
        top_k_overlap: f64,
        /// Candidate's rank (from 1) of the id that follows; empty at the last position.
        target_rank: Option<u64>,
        /// prompt or generated: where the id that follows came from.
        stratum: String,
        /// stock, stock+PATCH, stock+all, or trace.
        patch_set: String,
        /// Golden's log-probability of the id that follows.
        target_logprob_golden: Option<f64>,
        /// Candidate's log-probability of the id that follows.
        target_logprob_candidate: Option<f64>,
    }
}

table! {
    /// One changed discrete decision: the candidate's against golden's own on the same layer input.
    FlipRow = "flips.csv" {
        /// Scenario, or the token file's name.
        scenario: String,
        /// Sequence (conversation) id.
        sequence: String,
        /// How the row came about.
        history: String,
        /// Layer number; head for the most likely id.
        layer: String,
        /// expert, entry or argmax.
        kind: String,
        /// Position of the deciding row.
        position: u64,
        /// What golden chose (expert, entry or id).
        golden: i64,
        /// What the candidate chose instead.
        candidate: i64,
        /// How far apart golden's scores of the two are.
        margin: f64,
        /// Standard deviation of the score noise that the formats must cost; never the candidate's own.
        predicted_noise: Option<f64>,
        /// Probability of this flip under the predicted noise.
        expected_probability: Option<f64>,
        /// stock, stock+PATCH, stock+all, or trace.
        patch_set: String,
        /// prefill or decode.
        phase: String,
    }
}

table! {
    /// One answer that should be recalled, under one patch set.
    RecallRow = "recall.csv" {
        /// Scenario.
        scenario: String,
        /// Conversation id.
        conversation: String,
        /// Which form of the conversation: the maker of a made one, `file` for a written one.
        variant: String,
        /// How the rows came about.
        history: String,
        /// Tokens in context at the answer.
        context_tokens: u64,
        /// Where the fact stands, 0 the start and 1 the end of the context; empty when it was told in no one place.
        depth: Option<f64>,
        /// Context length modulo 4, 128, 256 and 8192, with bars between.
        length_phase: String,
        /// Bucket of golden's margin over the answer, nats: wrong, 0-0.5, 0.5-1, 1-2, 2-4 or 4+.
        margin_stratum: String,
        /// Expected answer.
        expected: String,
        /// Answer tokens that golden gets right.
        matched_golden: u64,
        /// Answer tokens that the candidate gets right.
        matched_candidate: u64,
        /// Mean KL(golden || candidate) over the answer, nats.
        answer_kl: f64,
        /// Golden's smallest margin over the answer: logit of the expected id less the largest other.
        worst_margin_golden: f64,
        /// Candidate's smallest margin over the answer.
        worst_margin_candidate: f64,
        /// Nearness to golden without the history, 0 to 1: d over d + KL from golden with the last turn only, where d is KL
        /// from golden as it is, or half of KL between the two goldens if that is less. Over 0.5 the history is lost. Empty
        /// where the two are alike or it was not measured.
        amnesia: Option<f64>,
        /// repetition, amnesia, token salad, truncated (skipped, not lost), wrong value (it reads well and is not what was
        /// told), or fine.
        symptom: String,
        /// Last layer at which golden, taking over the candidate's streams, still restores a lost answer; the number of
        /// layers when the head loses it.
        lost_at_layer: Option<u64>,
        /// Why generation ended: forced (golden's text was given), stop, or length.
        finish_reason: String,
        /// Compressed over raw size of what the candidate says in the answering turn.
        gzip_ratio: Option<f64>,
        /// Different words over words.
        unique_word_ratio: Option<f64>,
        /// Longest run of one word.
        max_word_run: Option<u64>,
        /// Times that the most repeated line stands there.
        max_line_repeat: Option<u64>,
        /// stock, stock+PATCH, stock+all, or trace.
        patch_set: String,
        /// Number of the question within its conversation.
        question: u64,
        /// Kind of question: fact, own_answer, tool_result, corrected, interrupted, tally, topic, check_digit, reasoning or
        /// recorded (the answer of an imported conversation).
        kind: String,
        /// Tokens of the expected answer.
        answer_tokens: u64,
        /// prefill or decode: the phase in which the candidate computed the answer's last token.
        phase: String,
        /// What the candidate says in place of the answer, each token after the expected ones before it.
        said: String,
    }
}

table! {
    /// One comparison of one history of one sequence: with the path's own cold run, by owner tags, or with golden.
    HistoryRow = "histories.csv" {
        /// Scenario, or the token file's name.
        scenario: String,
        /// Sequence (conversation) id.
        sequence: String,
        /// How the engine came to the final context: cold, warm, chunked, after-abort, ...
        history: String,
        /// With what: cold run (the path's own), owners (tags in the place of numbers) or golden.
        against: String,
        /// pages (rows as they are read, and after the last token), logits, mtp logits, content (KV after the last token),
        /// top ids, experts or entries.
        what: String,
        /// Rows, positions or decisions that were compared.
        compared: u64,
        /// Those of them that differ.
        differs: u64,
        /// Unit of value and tolerance: rows (that differ in a bit, or are another's), max_over_max, changed (decisions), or
        /// flips_added_to_stock (most likely ids changed here alone less those that stock's cold run alone changes).
        gate: String,
        /// The difference in the gate's unit.
        value: Option<f64>,
        /// Largest value that passes; empty where the row is reported, not judged.
        tolerance: Option<f64>,
        /// Largest difference of two numbers; infinite when one is none.
        largest: Option<f64>,
        /// Layer of the first place that differs (the farthest one, against golden); mtp.N; empty in the logits.
        layer: String,
        /// Tensor there.
        tensor: String,
        /// Page pool there.
        pool: String,
        /// Physical page.
        page: Option<u64>,
        /// Row in the page.
        page_row: Option<u64>,
        /// Position (for an entry the last of its window).
        position: Option<u64>,
        /// Element of the row.
        element: Option<u64>,
        /// What the history has there.
        found: Option<f64>,
        /// What it is compared with has there.
        expected: Option<f64>,
        /// Whose row stands there.
        owner_found: String,
        /// Whose row the reader wants.
        owner_expected: String,
        /// Which forward call reads it.
        read_by: String,
        /// The smallest history found that still differs: requests and actions.
        minimal: String,
        /// What the history never did, though it is named after it; empty when it did.
        missing: String,
        /// Forward calls of the whole history.
        calls: u64,
        /// Rows that it computed.
        rows: u64,
        /// Those of a position that was computed before.
        rows_again: u64,
        /// Positions of the final contexts whose row another request computed.
        rows_reused: u64,
        /// Rows computed in decode.
        rows_decoded: u64,
        /// pass, fail or unproven; empty when the row is not judged.
        verdict: Option<Verdict>,
    }
}

table! {
    /// One speed patch.
    PatchRow = "patches.csv" {
        /// Patch id.
        patch: String,
        /// Stock profile under it.
        profile: String,
        /// Phases in which it acts: prefill, decode, or both with a bar between.
        phases: String,
        /// What can go wrong with it.
        risk: String,
        /// rel-L2 that its descriptor claims at its own ops.
        claimed_error: f64,
        /// Largest injected rel-L2 at its own ops and phases.
        measured_error: Option<f64>,
        /// Executions in prefill.
        calls_prefill: u64,
        /// Executions in decode.
        calls_decode: u64,
        /// Most rows in one prefill execution.
        largest_prefill: u64,
        /// active, lossless (it ran, and is claimed to change no bit), inert, applied N times, or unknown.
        state: String,
        /// Measured speed-up; empty on the CPU, where a contract has none.
        speedup: Option<f64>,
        /// Mean KL of stock with this patch minus mean KL of stock, nats.
        added_kl: Option<f64>,
        /// Flips of the most likely id with this patch minus those of stock.
        added_flips: Option<i64>,
        /// Answers lost by it.
        recall_lost: Option<i64>,
        /// Verdict that the committed table expects; empty where it has no line.
        expected_verdict: Option<Verdict>,
        /// Its own verdict.
        verdict: Option<Verdict>,
    }
}
