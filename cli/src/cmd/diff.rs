//! `karat diff A B`: no model, no golden: B against A, tensor by tensor.

use karat_diff::{Code, Grid, Metrics, Offender, RowMetrics, View, discrete, measure_views};
use karat_trace::dumps::{Dump, open_any, pair};
use serde_json::json;

use crate::args::{Diff, Globals};
use crate::failure::{Failure, Result};
use crate::later::refuse_given;
use crate::output;
use crate::output::json_number;

/// How one tensor differs.
struct Compared {
    name: String,
    shape: Vec<usize>,
    kind: Kind,
}

enum Kind {
    Numbers { metrics: Box<Metrics>, rows: RowMetrics, worst: Vec<Offender> },
    Codes { differing: u64, of: usize },
    Shapes { other: Vec<usize> },
}

impl Compared {
    /// Larger is worse.
    fn size(&self) -> f64 {
        match &self.kind {
            Kind::Numbers { metrics, .. } if metrics.nonfinite > 0 => f64::INFINITY,
            Kind::Numbers { metrics, .. } => metrics.rel_l2,
            Kind::Codes { differing, of } => *differing as f64 / (*of).max(1) as f64,
            Kind::Shapes { .. } => f64::INFINITY,
        }
    }
}

pub(crate) fn run(args: &Diff, globals: Globals) -> Result<u8> {
    refuse_given(&[("karat diff --map", args.map.is_some()), ("karat diff --out", args.out.is_some())])?;
    let (a, b) = (open_any(&args.a)?, open_any(&args.b)?);
    let pairs = pair(&a, &b);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(globals.threads()).build();
    let pool = pool.map_err(|e| Failure::usage(format!("threads cannot be started: {e}")))?;
    let mut compared = Vec::new();
    for (name, _) in &pairs.matched {
        compared.push(pool.install(|| one(&a, &b, name))?);
    }
    compared.sort_by(|x, y| y.size().total_cmp(&x.size()).then_with(|| x.name.cmp(&y.name)));
    let differing = compared.iter().filter(|c| c.size() != 0.0).count();
    // Nothing in common is no agreement.
    let exit = if compared.is_empty() { 4 } else { u8::from(differing > 0) };
    let shown = if args.top == 0 { compared.len() } else { args.top.min(compared.len()) };
    if globals.json {
        let tensors: Vec<_> = compared.iter().map(as_json).collect();
        output::json(&json!({
            "a": a.label(), "b": b.label(), "exit_code": exit, "compared": compared.len(), "differing": differing,
            "only_a": pairs.only_a, "only_b": pairs.only_b, "tensors": tensors,
        }));
        return Ok(exit);
    }
    let mut text = format!("{} of {} tensors differ\n", differing, compared.len());
    if compared.is_empty() {
        text = "unproven: no tensor has the same name on both sides\n".to_string();
    }
    for (side, names) in [("A", &pairs.only_a), ("B", &pairs.only_b)] {
        if let Some(first) = names.first() {
            text.push_str(&format!("only {side} has {} tensors, for example {first}\n", names.len()));
        }
    }
    if shown > 0 {
        text.push_str(&format!("{:<44} {:>9} {:>9} {:>9} {:>9}\n", "tensor", "rel-L2", "row p99", "max |d|", "cosine"));
    }
    for c in &compared[..shown] {
        text.push_str(&line(c));
    }
    if shown < compared.len() {
        text.push_str(&format!("{} more; --top 0 shows all\n", compared.len() - shown));
    }
    output::stdout(&text);
    Ok(exit)
}

/// Worst values that are named.
const WORST: usize = 5;

/// Compares one tensor. Numbers are read where the mapped files have them; ulp are those of B's element type.
fn one(a: &Dump, b: &Dump, name: &str) -> Result<Compared> {
    let (x, y) = (a.raw(name)?, b.raw(name)?);
    let shape = x.shape.to_vec();
    let kind = if x.shape != y.shape {
        Kind::Shapes { other: y.shape.to_vec() }
    } else if let (Some(of_x), Some(of_y)) = (Code::named(x.dtype.name()), Code::named(y.dtype.name())) {
        let x = View::stored(name, x.shape, of_x, x.bytes)?;
        let y = View::stored(name, y.shape, of_y, y.bytes)?;
        let measured = measure_views(name, x, y, of_y.storage(), WORST, &Grid::of_view(&x))?;
        let rows = RowMetrics::of(&measured.rows);
        Kind::Numbers { metrics: Box::new(Metrics::of(&measured.total)), rows, worst: measured.offenders }
    } else {
        let (x, y) = (a.tensor(name)?, b.tensor(name)?);
        if x.data.dtype() != y.data.dtype() {
            let error = karat_model::Error::input("the two sides have different element types").at(name);
            return Err(error.expected(x.data.dtype()).found(y.data.dtype()).into());
        }
        let (differing, _) = discrete::codes(name, &x, &y)?;
        Kind::Codes { differing, of: x.data.len() }
    };
    Ok(Compared { name: name.to_string(), shape, kind })
}

fn line(c: &Compared) -> String {
    let name = shorten(&c.name, 44);
    match &c.kind {
        Kind::Numbers { metrics: m, rows, .. } => {
            let bad = if m.nonfinite > 0 { format!("  {} not finite", m.nonfinite) } else { String::new() };
            let (r, p, d) = (m.rel_l2, rows.rel_l2_p99, m.max_abs);
            format!("{name:<44} {r:>9.2e} {p:>9.2e} {d:>9.2e} {:>9.6}{bad}\n", m.cosine)
        }
        Kind::Codes { differing, of } => format!("{name:<44} {differing} of {of} integers differ\n"),
        Kind::Shapes { other } => format!("{name:<44} shapes differ: {:?} and {other:?}\n", c.shape),
    }
}

/// The end of a long name: that is where names differ.
fn shorten(name: &str, width: usize) -> String {
    let n = name.chars().count();
    if n <= width { name.to_string() } else { format!("..{}", name.chars().skip(n - width + 2).collect::<String>()) }
}

fn as_json(c: &Compared) -> serde_json::Value {
    match &c.kind {
        Kind::Numbers { metrics: m, rows, worst } => {
            let place = |o: &Offender| json!({"row": o.at.row, "column": o.at.column, "a": json_number(o.x), "b": json_number(o.y)});
            let worst: Vec<_> = worst.iter().map(place).collect();
            let peak = rows.max_abs_over_rms_at;
            json!({
                "name": c.name, "shape": c.shape, "n": m.n, "rel_l2": json_number(m.rel_l2),
                "row_p99_rel_l2": json_number(rows.rel_l2_p99), "row_max_rel_l2": json_number(rows.rel_l2_max),
                "worst_row": rows.worst, "max_abs": json_number(m.max_abs),
                "max_abs_row": m.max_abs_at.map(|a| a.row), "max_abs_column": m.max_abs_at.map(|a| a.column),
                "max_abs_over_row_rms": json_number(rows.max_abs_over_rms),
                "max_abs_over_row_rms_row": peak.map(|a| a.row), "max_abs_over_row_rms_column": peak.map(|a| a.column),
                "cosine": json_number(m.cosine), "gain": json_number(m.gain), "residual": json_number(m.residual),
                "calc_diff": json_number(m.calc_diff), "snr_db": json_number(m.snr_db),
                "ulp_p99": m.ulp_p99.map(json_number), "sign_bias": json_number(m.sign_bias),
                "outward_bias": json_number(m.outward_bias), "saturated": m.saturated, "zero_lost": m.zero_lost,
                "zero_gained": m.zero_gained, "nonfinite": m.nonfinite, "nonfinite_rows": rows.nonfinite,
                "first_nonfinite_row": rows.first_nonfinite, "worst": worst,
            })
        }
        Kind::Codes { differing, of } => {
            json!({"name": c.name, "shape": c.shape, "n": of, "differing": differing})
        }
        Kind::Shapes { other } => json!({"name": c.name, "shape": c.shape, "other_shape": other}),
    }
}
