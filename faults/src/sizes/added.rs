//! What a fault adds at its own place: the same path with it and without it, on the same operands.

use std::collections::BTreeMap;

use karat_bundle::TapRow;
use karat_optimized::Optimized;
use karat_seam::{Block, Data, OpSpec, Path, Phase, Recorder, RowId, Tap};
use serde_json::{Value, json};

use crate::bench::{SECOND, is_expected};
use crate::kept::number_of;
use crate::{Bench, Fault};

/// What a fault changes of one tap in one phase.
#[derive(Debug, Clone)]
pub struct Change {
    /// The tap.
    pub tap: Tap,
    /// In the candidate's phase.
    pub phase: Phase,
    /// |wrong - right| / |right| over all rows of the phase; for decisions the share of rows that changed.
    pub rel_l2: f64,
    /// Rows that changed: (sequence, position of the token that the row stands for).
    pub rows: Vec<(u32, u32)>,
    /// Whether a value became NaN or infinite.
    pub is_no_number: bool,
}

/// What a fault adds where it is nearest to its tolerance, or furthest over it.
#[derive(Debug, Clone, PartialEq)]
pub struct Added {
    /// The tap.
    pub tap: String,
    /// prefill or decode.
    pub phase: String,
    /// Part of the tap that the tolerance is of: empty, or op.
    pub part: String,
    /// |wrong - right| / |right| over all rows of the phase; for decisions the share of rows that changed.
    pub rel_l2: f64,
    /// The tap's tolerance in the same unit; `None` where it has none.
    pub tolerance: Option<f64>,
    /// Rows that changed.
    pub rows: usize,
}

impl Added {
    /// `taps`: rows of the candidate with the fault, in the sequence that it changes.
    pub(crate) fn of(fault: &Fault, changes: &[Change], taps: &[&TapRow]) -> Option<Self> {
        // The op alone is wrong where the fault edits its result; of wrong files it is the first op whose result changes.
        let op = |tap: Tap| OpSpec::writer_of(tap).map(|spec| spec.op);
        let first = changes.iter().filter(|c| !c.rows.is_empty()).map(|c| c.tap).min().and_then(op);
        let is_op = |tap: Tap| match fault.taps {
            [] => first.is_some() && op(tap) == first,
            taps => taps.contains(&tap),
        };
        let tolerances = |c: &Change| -> Vec<(String, f64)> {
            let is_here = |r: &&&TapRow| {
                (r.layer == fault.layer() && r.tap == c.tap.name() && r.phase == c.phase.name())
                    && r.gate == "rel_l2"
                    && (r.part.is_empty() || (r.part == "op" && is_op(c.tap)))
            };
            taps.iter().filter(is_here).filter_map(|r| Some((r.part.clone(), r.tolerance?))).collect()
        };
        let added = |c: &Change, part: &str, tolerance| Self {
            tap: c.tap.name().to_string(),
            phase: c.phase.name().to_string(),
            part: part.to_string(),
            rel_l2: c.rel_l2,
            tolerance,
            rows: c.rows.len(),
        };
        // Where the fault edits a tap it is measured there, not at what follows from it.
        let is_own = |tap: Tap| fault.taps.is_empty() || fault.files.is_some() || fault.taps.contains(&tap);
        let is_place = |tap: Tap| is_own(tap) && is_expected(fault, tap.name());
        let here = changes.iter().filter(|c| is_place(c.tap) && !c.rows.is_empty());
        let all = here.flat_map(|c| {
            let some = tolerances(c).into_iter().map(|(part, t)| added(c, &part, Some(t)));
            some.chain(std::iter::once(added(c, "", None))).collect::<Vec<_>>()
        });
        all.max_by(|a, b| a.over().total_cmp(&b.over()).then(a.rel_l2.total_cmp(&b.rel_l2)))
    }

    /// How many tolerances it is; nothing where there is none.
    pub fn over(&self) -> f64 {
        let over = self.tolerance.map_or(0.0, |t| self.rel_l2 / t);
        if over.is_nan() { f64::INFINITY } else { over }
    }

    pub(crate) fn to_json(&self) -> Value {
        let number = |v: f64| if v.is_finite() { json!(v) } else { json!("NaN") };
        json!({
            "tap": self.tap, "phase": self.phase, "part": self.part, "rel_l2": number(self.rel_l2),
            "tolerance": self.tolerance.map(number), "rows": self.rows,
        })
    }

    pub(crate) fn of_json(v: &Value) -> Option<Self> {
        let text = |field: &str| v[field].as_str().map(str::to_string);
        Some(Self {
            tap: text("tap")?,
            phase: text("phase")?,
            part: text("part")?,
            rel_l2: number_of(&v["rel_l2"])?,
            tolerance: number_of(&v["tolerance"]),
            rows: v["rows"].as_u64()? as usize,
        })
    }
}

impl Bench {
    /// What differs between two runs of the fault's block.
    pub(crate) fn changes(&self, fault: &Fault, right: &Recorder, wrong: &Recorder, path: &Optimized) -> Vec<Change> {
        let ratio = match fault.block {
            Block::Layer(l) => self.checkpoint.config().layers[usize::from(l)].ratio().unwrap_or(1) as u32,
            _ => 1,
        };
        let mut all: BTreeMap<(Tap, Phase), Sums> = BTreeMap::new();
        for ((site, seq), wrong) in &wrong.taps {
            if fault.together && *seq != SECOND {
                continue;
            }
            let Some(right) = right.get(*site, *seq).filter(|r| r.tensor.shape == wrong.tensor.shape) else { continue };
            for (i, row) in wrong.rows.iter().enumerate() {
                let pos = if site.tap.is_per_entry() { (row.pos + 1) * ratio - 1 } else { row.pos };
                let phase = path.phase_of(RowId { pos, ..*row });
                let at = i * wrong.tensor.width()..(i + 1) * wrong.tensor.width();
                let sums = all.entry((site.tap, phase)).or_default();
                if sums.add(&right.tensor.data, &wrong.tensor.data, at) {
                    sums.rows.push((*seq, pos));
                }
            }
        }
        let change = |((tap, phase), s): ((Tap, Phase), Sums)| Change {
            tap,
            phase,
            rel_l2: match (s.is_no_number, s.decisions) {
                (true, _) => f64::NAN,
                (_, true) => s.rows.len() as f64 / s.of as f64,
                _ if s.error == 0.0 => 0.0,
                _ => (s.error / s.right).sqrt(),
            },
            rows: s.rows,
            is_no_number: s.is_no_number,
        };
        all.into_iter().map(change).collect()
    }
}

#[derive(Default)]
struct Sums {
    error: f64,
    right: f64,
    of: usize,
    rows: Vec<(u32, u32)>,
    is_no_number: bool,
    decisions: bool,
}

impl Sums {
    /// Adds a row; true when it changed.
    fn add(&mut self, right: &Data, wrong: &Data, at: std::ops::Range<usize>) -> bool {
        self.of += 1;
        match (right, wrong) {
            (Data::F32(r), Data::F32(w)) => {
                let mut changed = false;
                for (r, w) in r[at.clone()].iter().zip(&w[at]) {
                    changed |= r.to_bits() != w.to_bits();
                    match (r.is_finite(), w.is_finite()) {
                        (true, true) => {
                            self.error += (f64::from(*w) - f64::from(*r)).powi(2);
                            self.right += f64::from(*r).powi(2);
                        }
                        _ => self.is_no_number |= r.to_bits() != w.to_bits(),
                    }
                }
                changed
            }
            (Data::I64(r), Data::I64(w)) => {
                self.decisions = true;
                r[at.clone()] != w[at]
            }
            (Data::U8(r), Data::U8(w)) => {
                self.decisions = true;
                r[at.clone()] != w[at]
            }
            _ => false,
        }
    }
}
