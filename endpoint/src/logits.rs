//! A server's log-probabilities against golden's, as rows of a bundle.

use karat_bundle::{Finding, TapRow, TokenRow, Verdict};

use crate::scored::Top;
use crate::topk::{Position, compare, top};

/// One sequence as both sides have it.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// Scenario, or the token file's name.
    pub scenario: &'a str,
    /// Sequence id.
    pub sequence: &'a str,
    /// Its ids.
    pub ids: &'a [u32],
    /// Golden's logits `[ids, V]`, row by row, and V.
    pub golden: (&'a [f32], usize),
    /// The same of the low-precision path whose formats the server claims; `None` where f32 is claimed.
    pub stock: Option<&'a [f32]>,
    /// What the server tells: row `i` about the id behind position `i`.
    pub told: &'a [Top],
}

/// Rows of one sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    /// The gated row.
    pub taps: Vec<TapRow>,
    /// One a position.
    pub tokens: Vec<TokenRow>,
    /// What bears on the verdict beside.
    pub findings: Vec<Finding>,
}

/// A log-probability is a logit less a logarithm of a sum of such: either may be off by 1e-5 of the largest logit.
const F32: f64 = 2e-5;
/// Of the distance that the formats must cost.
const FACTOR: f64 = 4.0;
/// A most likely id that golden holds by so many standard deviations of the formats' noise (of a difference of two) is not
/// changed by them.
const SIGMAS: f64 = 4.0;

/// Compares one sequence. Golden's own distance from the low-precision path, seen through the same ids as the server's, is
/// what the formats must cost.
pub fn rows(of: &Compared<'_>) -> Rows {
    let (golden, width) = of.golden;
    let row = |logits: &'_ [f32], at: usize| logits[at * width..(at + 1) * width].to_vec();
    let positions: Vec<Position> =
        of.told.iter().enumerate().map(|(at, told)| compare(&row(golden, at), told)).collect();
    let cost: Option<Vec<Position>> = of.stock.map(|stock| {
        let one =
            |(at, told): (usize, &Top)| compare(&row(golden, at), &top(&row(stock, at), told.len(), of.ids[at + 1]));
        of.told.iter().enumerate().map(one).collect()
    });
    let n = positions.len().max(1) as f64;
    let mean = |list: &[Position]| list.iter().map(|p| p.kl).sum::<f64>() / n;
    let noise = cost.as_ref().map(|list| (list.iter().map(|p| p.mean_square).sum::<f64>() / n).sqrt());
    let mut out = Rows::default();
    let largest = |of: fn(&Position) -> f64| {
        let worse = |a: (usize, f64), b: (usize, f64)| if b.1 > a.1 || b.1.is_nan() { b } else { a };
        positions.iter().map(of).enumerate().fold((0, 0.0), worse)
    };
    let max_logit = golden.iter().map(|v| f64::from(v.abs())).fold(0.0, f64::max);
    let (gate, value, predicted, tolerance, worst) = match &cost {
        None => {
            let (at, value) = largest(|p| p.worst);
            ("max_log_prob", value, F32 * max_logit / FACTOR, F32 * max_logit, at)
        }
        Some(cost) => ("mean_kl_lower_bound", mean(&positions), mean(cost), FACTOR * mean(cost), largest(|p| p.kl).0),
    };
    out.taps.push(TapRow {
        scenario: of.scenario.to_owned(),
        sequence: of.sequence.to_owned(),
        history: "cold".to_owned(),
        phase: "prefill".to_owned(),
        patch_set: "endpoint".to_owned(),
        backend: "endpoint".to_owned(),
        layer: "head".to_owned(),
        op: "logits".to_owned(),
        tap: "logits".to_owned(),
        n: of.told.iter().map(|t| t.len() as u64).sum(),
        max_abs: Some(largest(|p| p.worst).1),
        max_abs_position: Some(worst as u64),
        nonfinite: positions.iter().filter(|p| p.kl.is_nan()).count() as u64,
        predicted: Some(predicted),
        tolerance: Some(tolerance),
        ratio_to_predicted: Some(value / predicted),
        gate: gate.to_owned(),
        value: Some(value),
        rows: positions.len() as u64,
        ..TapRow::default()
    });
    for (at, p) in positions.iter().enumerate() {
        let next = of.ids[at + 1];
        let told = of.told[at].iter().find(|(id, _)| *id == next).map(|(_, q)| *q);
        out.tokens.push(TokenRow {
            scenario: of.scenario.to_owned(),
            sequence: of.sequence.to_owned(),
            position: at as u64,
            phase: "prefill".to_owned(),
            history: "cold".to_owned(),
            kl: p.kl,
            js: f64::NAN,
            delta_logit_rms: p.mean_square.sqrt(),
            top1_golden: u64::from(p.best.0),
            top1_candidate: u64::from(p.best.1),
            margin_golden: p.margin,
            expected_flip_probability: None,
            top_k_overlap: f64::NAN,
            target_rank: None,
            stratum: "prompt".to_owned(),
            patch_set: "endpoint".to_owned(),
            target_logprob_golden: Some(crate::topk::log_probs(&row(golden, at))[next as usize]),
            target_logprob_candidate: told,
        });
    }
    let changed = |p: &&(usize, &Position)| {
        let noise = noise.unwrap_or(F32 * max_logit);
        p.1.best.0 != p.1.best.1 && p.1.margin > SIGMAS * noise * std::f64::consts::SQRT_2
    };
    let listed: Vec<(usize, &Position)> = positions.iter().enumerate().collect();
    let flips: Vec<&(usize, &Position)> = listed.iter().filter(changed).collect();
    if let Some((at, p)) = flips.first() {
        let reason = format!(
            "{}: {} most likely ids are others than golden's where the formats' noise can't have changed them, first at position \
             {at} ({} for {}, golden holds it by {:.2} nats)",
            of.sequence,
            flips.len(),
            p.best.1,
            p.best.0,
            p.margin
        );
        out.findings.push(Finding::new(Verdict::Fail, reason));
    }
    // Processed log-probabilities: renormalised over what sampling left.
    let whole = positions.iter().filter(|p| p.tail.0 > 1e-2 && p.tail.1 < 1e-5).count();
    if whole * 10 > positions.len() {
        let reason = format!(
            "{}: at {whole} of {} positions the server's few most likely ids have all the probability: its log-probabilities \
             were processed (vLLM: --logprobs-mode raw_logprobs)",
            of.sequence,
            positions.len()
        );
        out.findings.push(Finding::new(Verdict::Unproven, reason));
        // Not a distribution that could be judged.
        out.taps.clear();
        out.findings.retain(|f| f.verdict != Verdict::Fail);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 6;

    /// Three rows of logits, each id in the lead once.
    fn golden() -> Vec<f32> {
        (0..3)
            .flat_map(|r| (0..WIDTH).map(move |i| if i == r { 6.0 } else { (i as f32 * 1.7 + r as f32).sin() }))
            .collect()
    }

    fn told(logits: &[f32], ids: &[u32]) -> Vec<Top> {
        (0..2).map(|at| top(&logits[at * WIDTH..(at + 1) * WIDTH], 3, ids[at + 1])).collect()
    }

    fn compared<'a>(golden: &'a [f32], stock: Option<&'a [f32]>, told: &'a [Top]) -> Rows {
        let ids = &[0_u32, 1, 5];
        rows(&Compared { scenario: "s", sequence: "a", ids, golden: (golden, WIDTH), stock, told })
    }

    fn passes(rows: &Rows) -> bool {
        let row = &rows.taps[0];
        rows.findings.is_empty() && row.value.unwrap() <= row.tolerance.unwrap()
    }

    #[test]
    fn golden_itself_passes_as_f32_and_a_shifted_logit_does_not() {
        let golden = golden();
        let ids = [0_u32, 1, 5];
        assert!(passes(&compared(&golden, None, &told(&golden, &ids))));
        let mut other = golden.clone();
        other[WIDTH + 4] += 0.01;
        assert!(!passes(&compared(&golden, None, &told(&other, &ids))));
        // Formats that cost as much let it pass.
        let mut stock = golden.clone();
        stock[WIDTH + 4] -= 0.01;
        stock[3] += 0.01;
        assert!(passes(&compared(&golden, Some(&stock), &told(&other, &ids))));
    }

    #[test]
    fn a_changed_id_that_golden_holds_is_named_with_its_position() {
        let golden = golden();
        let mut other = golden.clone();
        other[WIDTH + 1] = 0.0;
        let mut stock = golden.clone();
        stock.iter_mut().for_each(|v| *v *= 1.001);
        let rows = compared(&golden, Some(&stock), &told(&other, &[0, 1, 5]));
        assert!(rows.findings[0].reason.contains("position 1"), "{:?}", rows.findings);
    }

    #[test]
    fn renormalised_log_probabilities_are_unproven() {
        let golden: Vec<f32> = (0..3 * WIDTH).map(|i| (i as f32).sin()).collect();
        let mut told = told(&golden, &[0, 1, 5]);
        for top in &mut told {
            let sum: f64 = top.iter().map(|(_, q)| q.exp()).sum();
            top.iter_mut().for_each(|(_, q)| *q -= sum.ln());
        }
        let rows = compared(&golden, None, &told);
        assert_eq!(rows.findings[0].verdict, Verdict::Unproven);
        assert!(rows.taps.is_empty());
    }
}
