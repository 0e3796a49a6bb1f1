//! Rows of `histories.csv` and `tokens.csv` of one history.

use karat_bundle::{HistoryRow, TokenRow, Verdict};
use karat_optimized::serving::{Misplaced, Part, Script};
use karat_seam::{Phase, SpanKind};

use super::compare::{Difference, Same};
use super::golden::FromGolden;
use super::{Checked, OfSequence};
use crate::Job;

/// The largest difference from golden of a path that rounds nothing, over the tensor's largest value.
const CONTROL: f64 = 1e-5;

/// What the rows of one history have in common.
pub(super) struct Of<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) history: &'a str,
    pub(super) checked: &'a Checked,
    pub(super) missing: String,
    pub(super) minimal: Option<&'a Script>,
    /// True for a path that rounds nothing.
    pub(super) is_control: bool,
    /// Layers of the model; MTP blocks follow.
    pub(super) layers: usize,
}

impl Of<'_> {
    /// Every comparison of every sequence. Verdicts are the judge's.
    pub(super) fn rows(&self) -> Vec<HistoryRow> {
        let mut out = Vec::new();
        for (seq, of) in self.checked.sequences.iter().enumerate() {
            out.push(self.same(seq, of, "pages", &of.pages));
            out.push(self.same(seq, of, "logits", &of.logits));
            out.extend(of.mtp.as_ref().map(|mtp| self.same(seq, of, "mtp logits", mtp)));
            out.push(self.owners(seq, of));
            if let Some(golden) = &of.golden {
                out.extend(self.golden(seq, of, golden));
            }
        }
        // A row of somebody else's request is misplaced all the same.
        let of_company = self.checked.misplaced.as_ref().is_some_and(|m| self.is_company(m.seq));
        if let Some(first) = self.checked.sequences.first().filter(|_| of_company) {
            let company = OfSequence { name: "company".into(), ..first.clone() };
            out.push(self.owners(usize::MAX, &company));
        }
        out
    }

    fn is_company(&self, seq: u32) -> bool {
        seq as usize >= self.checked.sequences.len()
    }

    fn row(&self, seq: usize, of: &OfSequence, against: &str, what: &str) -> HistoryRow {
        let facts = &self.checked.facts;
        HistoryRow {
            scenario: self.job.inputs.scenarios.get(seq).cloned().unwrap_or_default(),
            sequence: of.name.clone(),
            history: self.history.to_string(),
            against: against.to_string(),
            what: what.to_string(),
            missing: self.missing.clone(),
            minimal: self.minimal.map(told).unwrap_or_default(),
            calls: facts.calls as u64,
            rows: facts.rows as u64,
            rows_again: facts.again as u64,
            rows_reused: facts.reused as u64,
            rows_decoded: facts.decoded as u64,
            ..HistoryRow::default()
        }
    }

    fn same(&self, seq: usize, of: &OfSequence, what: &str, same: &Same) -> HistoryRow {
        let row = HistoryRow {
            compared: same.compared,
            differs: same.differs,
            gate: "rows".into(),
            value: Some(same.differs as f64),
            tolerance: Some(0.0),
            largest: Some(same.largest),
            ..self.row(seq, of, "cold run", what)
        };
        match &same.first {
            Some(first) => self.placed(row, first),
            None => row,
        }
    }

    fn layer(&self, layer: u16) -> String {
        match usize::from(layer).checked_sub(self.layers) {
            Some(i) => format!("mtp.{i}"),
            None => layer.to_string(),
        }
    }

    fn placed(&self, row: HistoryRow, at: &Difference) -> HistoryRow {
        let (element, found, expected) = at.element;
        HistoryRow {
            layer: at.layer.map(|l| self.layer(l)).unwrap_or_default(),
            tensor: at.part.map_or("", Part::name).into(),
            pool: at.part.map_or("", |p| p.pool().name()).into(),
            page: at.at.map(|(page, _)| u64::from(page)),
            page_row: at.at.map(|(_, row)| row as u64),
            position: Some(at.position as u64),
            element: Some(element as u64),
            found: Some(f64::from(found)),
            expected: Some(f64::from(expected)),
            read_by: at.reader(),
            ..row
        }
    }

    fn owners(&self, seq: usize, of: &OfSequence) -> HistoryRow {
        let its = |m: &&Misplaced| m.seq as usize == seq || (seq == usize::MAX && self.is_company(m.seq));
        let row = HistoryRow {
            compared: of.pages.compared,
            gate: "rows".into(),
            value: Some(0.0),
            tolerance: Some(0.0),
            ..self.row(seq, of, "owners", "pages")
        };
        let Some(m) = self.checked.misplaced.as_ref().filter(its) else { return row };
        let stale = m.seen.0 != m.seen.1;
        let found = match (stale, m.at) {
            (true, _) => format!("metadata of {} tokens", m.seen.1),
            (false, None) => "no page in the table".to_string(),
            (false, Some(_)) => m.found.to_string(),
        };
        let expected = match stale {
            true => format!("{} tokens in the cache", m.seen.0),
            false => format!("sequence {}, position {}, layer {}", m.seq, m.pos, m.layer),
        };
        HistoryRow {
            differs: 1,
            value: Some(1.0),
            layer: self.layer(m.layer),
            tensor: m.part.name().into(),
            pool: m.part.pool().name().into(),
            page: m.at.map(|(page, _)| u64::from(page)),
            page_row: m.at.map(|(_, row)| row as u64),
            position: Some(m.pos as u64),
            owner_found: found,
            owner_expected: expected,
            ..row
        }
    }

    fn golden(&self, seq: usize, of: &OfSequence, golden: &FromGolden) -> Vec<HistoryRow> {
        let positions = of.logits.compared;
        let row = |what: &str| self.row(seq, of, "golden", what);
        let far = |what: &str, value: f64| HistoryRow {
            compared: positions,
            differs: u64::from(value > 0.0),
            gate: "max_over_max".into(),
            value: Some(value),
            tolerance: self.is_control.then_some(CONTROL),
            ..row(what)
        };
        let changed = |what: &str, n: usize| HistoryRow {
            compared: positions,
            differs: n as u64,
            gate: "changed".into(),
            value: Some(n as f64),
            tolerance: self.is_control.then_some(0.0),
            ..row(what)
        };
        let mut out = vec![far("logits", golden.logits)];
        out.extend(golden.mtp.map(|mtp| far("mtp logits", mtp)));
        out.push(HistoryRow { tensor: golden.content_at.clone(), ..far("content", golden.content) });
        out.push(match of.added.filter(|_| !self.is_control) {
            None => changed("top ids", golden.top),
            Some(added) => HistoryRow {
                gate: "flips_added_to_stock".into(),
                value: Some(added.value()),
                tolerance: Some(added.tolerance()),
                position: added.impossible.map(|(_, position)| position as u64),
                ..changed("top ids", golden.top)
            },
        });
        out.push(changed("experts", golden.decisions.0));
        out.push(changed("entries", golden.decisions.1));
        out
    }

    /// Logits of every position against golden's.
    pub(super) fn tokens(&self, patch_set: &str) -> Vec<TokenRow> {
        let mut out = Vec::new();
        for (seq, of) in self.checked.sequences.iter().enumerate() {
            let sequence = &self.job.inputs.requests.seqs[seq];
            let spans = sequence.spans();
            for (pos, (phase, p)) in (0u32..).zip(&of.positions) {
                let generated =
                    |s: &karat_seam::Span| s.kind == SpanKind::Generated && s.start <= pos + 1 && pos + 1 < s.end;
                let stratum = match pos as usize + 1 == sequence.ids.len() {
                    true => "end",
                    false if spans.iter().any(generated) => "generated",
                    false => "prompt",
                };
                out.push(TokenRow {
                    scenario: self.job.inputs.scenarios.get(seq).cloned().unwrap_or_default(),
                    sequence: of.name.clone(),
                    position: u64::from(pos),
                    phase: Phase::name(*phase).to_string(),
                    history: self.history.to_string(),
                    kl: p.kl,
                    js: p.js,
                    delta_logit_rms: p.delta_logit_rms,
                    top1_golden: u64::from(p.top1_golden),
                    top1_candidate: u64::from(p.top1_candidate),
                    margin_golden: p.margin_golden,
                    expected_flip_probability: None,
                    top_k_overlap: p.top_k_overlap,
                    target_rank: p.target_rank.map(u64::from),
                    stratum: stratum.to_string(),
                    patch_set: patch_set.to_string(),
                    target_logprob_golden: p.target_log_prob_golden,
                    target_logprob_candidate: p.target_log_prob,
                });
            }
        }
        out
    }
}

/// A history in words: lengths of its requests, and what happens to them.
pub(super) fn told(script: &Script) -> String {
    let works = script.works.iter().map(|w| w.ids.len().to_string()).collect::<Vec<_>>().join(", ");
    format!("requests of {works} tokens; {:?}", script.actions)
}

/// Fail before unproven before pass, over some rows.
pub(super) fn worst<'a>(rows: impl IntoIterator<Item = &'a HistoryRow>) -> Verdict {
    rows.into_iter().filter_map(|row| row.verdict).min().unwrap_or(Verdict::Unproven)
}
