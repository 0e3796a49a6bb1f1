//! `karat diff A B`: no model, no golden: B against A, tensor by tensor.

mod compare;
mod criteria;
mod pattern;

use karat_diff::Offender;
use karat_trace::dumps::{Dump, Pairs, open_any, pair, pair_mapped};
use karat_trace::import::map::Map;
use serde_json::json;

use crate::args::{Diff, Globals};
use crate::failure::{Failure, Result};
use crate::later::refuse_given;
use crate::output;
use crate::output::json_number;
use compare::{Compared, Kind, one};
use criteria::Criteria;
use pattern::Pattern;

/// What the exit code depends on.
struct Rules {
    filter: Option<Pattern>,
    criteria: Option<Criteria>,
    skipped: Option<Pattern>,
    failed: Option<Pattern>,
}

impl Rules {
    fn new(args: &Diff) -> Result<Self> {
        let pattern = |text: &Option<String>| text.as_deref().map(Pattern::new).transpose();
        Ok(Self {
            filter: pattern(&args.filter)?,
            criteria: Criteria::new(&args.threshold)?,
            skipped: pattern(&args.allow_skipped_pattern)?,
            failed: pattern(&args.allow_failed_pattern)?,
        })
    }

    fn looks_at(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|p| p.is_in(name))
    }
}

/// What is not compared: names of one side alone, and what can't be read.
struct Skipped {
    only_a: Vec<String>,
    only_b: Vec<String>,
    /// Side, name, reason.
    unread: Vec<(&'static str, String, String)>,
}

impl Skipped {
    fn new(pairs: &Pairs, a: &Dump, b: &Dump, rules: &Rules) -> Self {
        let kept = |names: &[String]| names.iter().filter(|n| rules.looks_at(n)).cloned().collect();
        let unread = |side: &'static str, dump: &Dump| -> Vec<_> {
            let some = dump.unread().iter().filter(|(name, _)| rules.looks_at(name));
            some.map(|(name, why)| (side, name.clone(), why.clone())).collect()
        };
        Self {
            only_a: kept(&pairs.only_a),
            only_b: kept(&pairs.only_b),
            unread: [unread("A", a), unread("B", b)].concat(),
        }
    }

    /// The first name that may not be left out.
    fn forbidden(&self, rules: &Rules) -> Option<&str> {
        let allowed = rules.skipped.as_ref()?;
        let names = self.only_a.iter().chain(&self.only_b).chain(self.unread.iter().map(|(_, name, _)| name));
        names.map(String::as_str).find(|name| !allowed.fits(name))
    }
}

pub(crate) fn run(args: &Diff, globals: Globals) -> Result<u8> {
    refuse_given(&[("karat diff --out", args.out.is_some())])?;
    let rules = Rules::new(args)?;
    let map = args.map.as_deref().map(Map::open).transpose()?;
    let (a, b) = (open_any(&args.a)?, open_any(&args.b)?);
    let pairs = match &map {
        Some(map) => pair_mapped(&a, &b, map)?,
        None => pair(&a, &b)?,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(globals.threads()).build();
    let pool = pool.map_err(|e| Failure::usage(format!("threads cannot be started: {e}")))?;
    let mut compared = Vec::new();
    for matched in pairs.matched.iter().filter(|m| rules.looks_at(&m.name)) {
        let mut found = pool.install(|| one(&a, &b, matched))?;
        found.judge(rules.criteria.as_ref(), rules.failed.as_ref())?;
        compared.push(found);
    }
    compared.sort_by(|x, y| y.size().total_cmp(&x.size()).then_with(|| x.name.cmp(&y.name)));
    let differing = compared.iter().filter(|c| c.size() != 0.0).count();
    let failing = compared.iter().filter(|c| c.fails).count();
    let skipped = Skipped::new(&pairs, &a, &b, &rules);
    let forbidden = skipped.forbidden(&rules);
    // Nothing in common is no agreement.
    let exit = if compared.is_empty() { 4 } else { u8::from(failing > 0 || forbidden.is_some()) };
    let shown = if args.top == 0 { compared.len() } else { args.top.min(compared.len()) };
    if globals.json {
        let tensors: Vec<_> = compared.iter().map(as_json).collect();
        let unread: Vec<_> =
            skipped.unread.iter().map(|(side, name, why)| json!({"side": side, "name": name, "why": why})).collect();
        output::json(&json!({
            "a": a.label(), "b": b.label(), "exit_code": exit, "compared": compared.len(), "differing": differing,
            "failing": failing, "only_a": skipped.only_a, "only_b": skipped.only_b, "unread": unread,
            "maps": pairs.maps, "not_allowed_to_be_skipped": forbidden, "tensors": tensors,
        }));
        return Ok(exit);
    }
    let mut text = format!("{} of {} tensors differ\n", differing, compared.len());
    if compared.is_empty() {
        text = "unproven: no tensor has the same name on both sides\n".to_string();
    } else if rules.criteria.is_some() || rules.failed.is_some() {
        text = format!("{differing} of {} tensors differ, {failing} of them fail\n", compared.len());
    }
    for (side, map) in ["A", "B"].iter().zip(pairs.maps) {
        if let Some(map) = map {
            text.push_str(&format!("names of {side} read by the built-in map {map}\n"));
        }
    }
    let everything = args.top == 0;
    for (side, names) in [("A", &skipped.only_a), ("B", &skipped.only_b)] {
        if let Some(first) = names.first() {
            text.push_str(&format!("only {side} has {} tensors, for example {first}\n", names.len()));
        }
        for name in names.iter().filter(|_| everything) {
            text.push_str(&format!("  only {side}: {name}\n"));
        }
    }
    for (side, name, why) in skipped.unread.iter().take(if everything { usize::MAX } else { 3 }) {
        text.push_str(&format!("not read of {side}: {name} ({why})\n"));
    }
    if skipped.unread.len() > 3 && !everything {
        text.push_str(&format!("not read: {} more; --top 0 shows all\n", skipped.unread.len() - 3));
    }
    if let (Some(name), Some(pattern)) = (forbidden, &rules.skipped) {
        text.push_str(&format!(
            "fail: {name} is not compared, and doesn't fit --allow-skipped-pattern {}\n",
            pattern.text()
        ));
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

fn line(c: &Compared) -> String {
    let name = shorten(&c.name, 44);
    match &c.kind {
        Kind::Numbers { metrics: m, rows, .. } => {
            let mut bad = if m.nonfinite > 0 { format!("  {} not finite", m.nonfinite) } else { String::new() };
            if c.passes_though_different() {
                bad.push_str("  allowed");
            }
            let (r, p, d) = (m.rel_l2, rows.rel_l2_p99, m.max_abs);
            format!("{name:<44} {r:>9.2e} {p:>9.2e} {d:>9.2e} {:>9.6}{bad}\n", m.cosine)
        }
        Kind::Codes { differing, of } => format!("{name:<44} {differing} of {of} integers differ\n"),
        Kind::Shapes { other } => format!("{name:<44} shapes differ: {:?} and {other:?}\n", c.shape),
        Kind::Problem { what } => format!("{name:<44} {what}\n"),
    }
}

/// The end of a long name: that is where names differ.
fn shorten(name: &str, width: usize) -> String {
    let n = name.chars().count();
    if n <= width { name.to_string() } else { format!("..{}", name.chars().skip(n - width + 2).collect::<String>()) }
}

fn as_json(c: &Compared) -> serde_json::Value {
    let mut out = of_kind(c);
    if let Some(object) = out.as_object_mut() {
        object.insert("fails".into(), c.fails.into());
        if let Some((a, b)) = &c.sources {
            object.insert("of_a".into(), json!(a));
            object.insert("of_b".into(), json!(b));
        }
    }
    out
}

fn of_kind(c: &Compared) -> serde_json::Value {
    match &c.kind {
        Kind::Numbers { metrics: m, rows, worst, mean_abs } => {
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
                "calc_diff": json_number(m.calc_diff), "mean_abs": json_number(*mean_abs), "snr_db": json_number(m.snr_db),
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
        Kind::Problem { what } => json!({"name": c.name, "shape": c.shape, "problem": what}),
    }
}
