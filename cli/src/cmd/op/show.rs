//! What came out, for people and as json.

use karat_audit::{Judged, OpJob, OpRow, Operands};
use karat_diff::Verdict;
use karat_model::Plain;
use serde_json::{Value, json};

use crate::output::json_number;

/// A comparison and what it is about.
pub(super) struct Shown<'a> {
    pub(super) job: &'a OpJob,
    pub(super) operands: &'a Operands,
    pub(super) judged: &'a Judged,
    pub(super) kernel: Option<&'a str>,
}

impl Shown<'_> {
    /// Exit code.
    pub(super) fn exit(&self) -> u8 {
        match self.judged.verdict {
            None | Some(Verdict::Pass | Verdict::PassAtFloor) => 0,
            Some(Verdict::Fail) => 1,
            Some(Verdict::Unproven) => 4,
        }
    }

    fn plan(&self) -> String {
        let stock = self.job.stock.name();
        if self.job.patches.is_empty() {
            stock.to_string()
        } else {
            format!("{stock} + {}", self.job.patches.join(", "))
        }
    }

    pub(super) fn text(&self) -> String {
        let (job, operands) = (self.job, self.operands);
        let (name, rows) = (job.op.spec().name, operands.positions.len());
        let source = Plain(&operands.label).to_string();
        let mut text =
            format!("op {name}, layer {} of {}, {rows} rows of {source}\n", job.layer, job.checkpoint.label());
        text.push_str(&format!("contract: {} in {}", self.plan(), job.phase.name()));
        if let Some(kernel) = self.kernel {
            text.push_str(&format!("; kernel: {}", Plain(kernel)));
        }
        text.push('\n');
        let head =
            ["result", "against", "error", "allowed", "contract", "row max", "max |d|", "ulp p99", "worst", "verdict"];
        let [a, b, c, d, e, f, g, h, i, j] = head;
        text.push_str(&format!("{a:<20} {b:<8} {c:>9} {d:>9} {e:>9} {f:>9} {g:>9} {h:>9} {i:>6}  {j}\n"));
        self.judged.rows.iter().for_each(|row| text.push_str(&line(row)));
        for note in &self.judged.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        match self.judged.verdict {
            None => text.push_str(
                "nothing is judged: give --exec CMD or --candidate FILE; the errors are the contract's own\n",
            ),
            Some(verdict) => text.push_str(&format!("verdict: {}\n", verdict.name())),
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let (job, judged) = (self.job, self.judged);
        json!({
            "op": job.op.spec().name, "layer": job.layer, "model": job.checkpoint.label(), "operands": self.operands.label,
            "rows": self.operands.positions.len(), "stock": job.stock.name(), "patches": job.patches,
            "phase": job.phase.name(), "exec": self.kernel, "results": judged.rows.iter().map(as_json).collect::<Vec<_>>(),
            "notes": judged.notes, "verdict": judged.verdict.map(Verdict::name), "exit_code": self.exit(),
        })
    }
}

fn line(row: &OpRow) -> String {
    let number = |v: Option<f64>| v.map_or_else(|| "-".to_string(), |v| format!("{v:.2e}"));
    let place = row.worst.map_or_else(|| "-".to_string(), |w| w.to_string());
    let verdict = row.verdict.map_or("not judged", Verdict::name);
    let (tap, against) = (row.tap.name(), row.against.name());
    if let Some((changed, margin)) = row.flips {
        let margin = margin.map_or_else(String::new, |m| format!(", largest margin {m:.1e}"));
        let of = format!("{changed} rows chose otherwise, {} unexplained{margin}", row.value);
        return format!("{tap:<20} {against:<8} {of}; first {place}  {verdict}\n");
    }
    let value = if row.gate == "max_over_max" { row.value } else { row.error };
    let mut out = format!(
        "{tap:<20} {against:<8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {place:>6}  {verdict}",
        format!("{value:.2e}"),
        number(row.tolerance),
        number(row.predicted),
        format!("{:.2e}", row.row_max),
        format!("{:.2e}", row.max_abs),
        number(row.ulp_p99),
    );
    if row.nonfinite > 0 {
        out.push_str(&format!("  {} not finite", row.nonfinite));
    }
    if row.gate == "max_over_max" {
        out.push_str("  (of the largest value)");
    }
    out.push('\n');
    out
}

fn as_json(row: &OpRow) -> Value {
    let number = |v: Option<f64>| v.map(json_number);
    json!({
        "result": row.tap.name(), "against": row.against.name(), "n": row.n, "rel_l2": json_number(row.error),
        "gate": row.gate, "value": json_number(row.value), "tolerance": number(row.tolerance),
        "predicted": number(row.predicted), "floor": number(row.floor), "max_abs": json_number(row.max_abs),
        "row_max_rel_l2": json_number(row.row_max), "worst": row.worst, "ulp_p99": number(row.ulp_p99),
        "nonfinite": row.nonfinite, "rows_changed": row.flips.map(|(n, _)| n),
        "largest_margin": number(row.flips.and_then(|(_, m)| m)), "verdict": row.verdict.map(Verdict::name),
    })
}
