//! Index keys in the forms in which the phases score them.

use karat_seam::{Phase, Tap};

use super::{Resident, Taps};
use crate::ops::index::{Vectors, prepare, quantise};
use crate::plan::{IndexFormat, IndexRule, Numerics};
use crate::quant::hadamard;

/// All keys of one sequence so far, once for each different rule of the plan: a kernel that reads another cache format
/// in decode finds its own codes, made from the same unquantised key.
#[derive(Debug, Clone)]
pub(crate) struct IndexKeys {
    forms: Vec<(IndexRule, Vectors)>,
    di: usize,
}

impl IndexKeys {
    pub(crate) fn new(layer: &Resident<'_>) -> Self {
        let rules = layer.path.resolved.distinct(|r| r.index);
        let forms = rules.into_iter().map(|r| (r, Vectors::default())).collect();
        Self { forms, di: layer.config().index_head_dim }
    }

    /// Keys so far.
    pub(crate) fn len(&self) -> usize {
        self.forms[0].1.values.len() / self.di
    }

    /// Adds keys `[n,di]` that are roped and stored but neither rotated nor quantised.
    pub(crate) fn push(&mut self, rules: &Numerics, roped: &[f32]) {
        for (rule, keys) in &mut self.forms {
            keys.extend(&prepare(rule, rules.store, self.di, roped.to_vec()));
        }
    }

    /// Values of one key in all forms, as a page holds them: each form's values, then its scale where it has one.
    pub(crate) fn row_width(&self) -> usize {
        self.forms.iter().map(|(rule, _)| self.di + usize::from(has_scale(rule))).sum()
    }

    /// Key `i` as a page holds it.
    pub(crate) fn row(&self, i: usize) -> Vec<f32> {
        let mut out = Vec::with_capacity(self.row_width());
        for (rule, keys) in &self.forms {
            out.extend_from_slice(&keys.values[i * self.di..(i + 1) * self.di]);
            if has_scale(rule) {
                out.push(keys.scales[i]);
            }
        }
        out
    }

    /// Adds a key as a page holds it.
    pub(crate) fn push_row(&mut self, mut row: &[f32]) {
        for (rule, keys) in &mut self.forms {
            let (values, rest) = row.split_at(self.di);
            keys.values.extend_from_slice(values);
            row = rest;
            if has_scale(rule) {
                keys.scales.push(row[0]);
                row = &row[1..];
            }
        }
    }

    /// The form that a rule scores.
    pub(crate) fn form(&self, rule: &IndexRule) -> &Vectors {
        &self.forms.iter().find(|(r, _)| r == rule).expect("a form for each rule of the plan").1
    }

    /// Shows the keys from `first` on as the emitting phase scores them; what a visitor changed replaces every form.
    pub(crate) fn show(&mut self, taps: &mut Taps<'_>, rule: &IndexRule, first: usize) -> karat_seam::Result<()> {
        let rows = super::attention::entry_rows(taps.rows, first, self.len());
        if rows.is_empty() {
            return Ok(());
        }
        let mut values = self.form(rule).from(first, self.di).dequantised(self.di);
        if taps.changed(Tap::AttnIndexK, &rows, &mut values)? {
            self.replace(rule, first, &values);
        }
        Ok(())
    }

    /// Replaces keys from `first` on by values as a tap of `rule` shows them.
    pub(crate) fn replace(&mut self, rule: &IndexRule, first: usize, values: &[f32]) {
        let (di, n) = (self.di, values.len() / self.di);
        for (to, keys) in &mut self.forms {
            let new = convert(rule, to, di, values);
            keys.values[first * di..(first + n) * di].copy_from_slice(&new.values);
            if !keys.scales.is_empty() {
                keys.scales[first..first + n].copy_from_slice(&new.scales);
            }
        }
    }
}

/// True where a key's codes come with a scale of their own.
fn has_scale(rule: &IndexRule) -> bool {
    matches!(rule.format, IndexFormat::Fp8 { .. })
}

/// Vectors as `to` scores them, from values as a tap of `from` shows them.
pub(crate) fn convert(from: &IndexRule, to: &IndexRule, di: usize, values: &[f32]) -> Vectors {
    let mut values = values.to_vec();
    let coded = matches!(to.format, IndexFormat::Fp8 { .. });
    if from == to && !coded {
        return Vectors { values, scales: Vec::new() };
    }
    if from.hadamard != to.hadamard {
        values.chunks_exact_mut(di).for_each(hadamard);
    }
    quantise(to, di, values)
}

impl Resident<'_> {
    /// Rule of the phase in which an entry was emitted, by the position of its last token.
    pub(crate) fn index_rule(&self, phase: Phase) -> &IndexRule {
        &self.rules(phase).index
    }
}
