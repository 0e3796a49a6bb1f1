//! Every value of one tensor: finite, in range, plausible.

use super::grid;
use super::numbers::{self, Numbers};
use crate::Error;
use crate::checkpoint::store::{Id, Store};
use crate::checkpoint::{Check, Dtype, Encoding, Expected, Finding, RawTensor, Role, Severity, Weight, structure};
use crate::formats::scale_at;

/// Weights of trained models stay far below this; a scale used the wrong way round doesn't.
const PLAUSIBLE: f64 = 1e4;

/// What one tensor's bytes say.
pub(super) struct Scan {
    pub(super) findings: Vec<Finding>,
    pub(super) name: String,
    /// NVFP4's global scale.
    global: Option<f32>,
    /// Statistics of a linear.
    pub(super) numbers: Option<Numbers>,
}

/// Running facts about values.
#[derive(Clone, Copy, Default)]
pub(super) struct Facts {
    bad: usize,
    first_bad: Option<usize>,
    max: f64,
    nonzero: bool,
}

impl Facts {
    pub(super) fn of(values: &[f32], start: usize) -> Self {
        let mut facts = Self::default();
        for (i, v) in values.iter().enumerate() {
            if v.is_finite() {
                facts.max = facts.max.max(f64::from(v.abs()));
                facts.nonzero |= *v != 0.0;
            } else {
                facts.bad += 1;
                facts.first_bad.get_or_insert(start + i);
            }
        }
        facts
    }

    pub(super) fn join(self, later: Self) -> Self {
        Self {
            bad: self.bad + later.bad,
            first_bad: [self.first_bad, later.first_bad].into_iter().flatten().min(),
            max: self.max.max(later.max),
            nonzero: self.nonzero || later.nonzero,
        }
    }
}

/// Scans one expected tensor. What is missing or misshapen was reported already and is left out here.
pub(super) fn tensor(store: &Store, e: &Expected) -> Scan {
    let mut scan = Scan { findings: Vec::new(), name: e.name.clone(), global: None, numbers: None };
    match e.role {
        Role::Linear(_) => {
            if let Ok((w, ids)) = store.linear(&e.name)
                && [w.rows, w.cols] == e.shape[..]
            {
                linear(store, &mut scan, &w, &ids);
            }
        }
        Role::Norm | Role::Parameter => {
            if let Ok((t, id)) = store.tensor(&e.name)
                && t.shape == e.shape
                && matches!(t.dtype, Dtype::Bf16 | Dtype::F32)
            {
                values(store, &mut scan, &t, id, e.role);
            }
        }
        Role::Ids => {
            if let Ok((t, id)) = store.tensor(&e.name)
                && t.shape == e.shape
                && matches!(t.dtype, Dtype::I64 | Dtype::I32)
            {
                ids(store, &mut scan, &t, id);
            }
        }
    }
    scan
}

fn add(scan: &mut Scan, severity: Severity, check: Check, error: Error) {
    scan.findings.push(Finding::new(severity, check, &scan.name, error));
}

/// Position of element `i` of a matrix as people count: row and column.
fn place(i: usize, cols: usize) -> String {
    format!("row {}, column {}", i / cols, i % cols)
}

fn linear(store: &Store, scan: &mut Scan, w: &Weight<'_>, parts: &[Id]) {
    scan.global = w.global_scale.as_ref().map(|g| scale_at(g, 0));
    let scales_ok = scales(store, scan, w, parts);
    let (facts, numbers) = numbers::of(w, is_of_experts(&scan.name));
    let at = store.place(parts[0]);
    // A bad scale spoils its whole block: reported once, as the scale that it is.
    if let Some(first) = facts.first_bad
        && scales_ok
    {
        let hint = match w.encoding {
            Encoding::Plain => "the file is damaged, or a conversion overflowed",
            Encoding::Fp8Block { .. } => "E4M3 has no infinity: 0x7F and 0xFF are NaN; the file is damaged",
            Encoding::Mxfp4 | Encoding::Nvfp4 => "codes times scales overflow f32: the scales are damaged",
        };
        let error = Error::input("weights that are not finite")
            .at(&at)
            .found(format!("{} of {}, first at {}", facts.bad, w.rows * w.cols, place(first, w.cols)))
            .hint(hint);
        add(scan, Severity::Error, Check::Nonfinite, error);
    } else if !facts.nonzero && scales_ok {
        let error = Error::input("all weights are zero").at(&at).hint("was the tensor ever written?");
        add(scan, Severity::Warning, Check::Scale, error);
    } else if facts.max > PLAUSIBLE {
        let hint = match w.encoding {
            Encoding::Plain => "was the tensor decoded without its scales?",
            Encoding::Nvfp4 => "is weight_scale_2 stored as its inverse (compressed-tensors does)?",
            _ => "are the scales stored as their inverse, or exponent bytes copied as numbers?",
        };
        let error = Error::input("implausibly large weights")
            .at(&at)
            .expected(format!("at most {PLAUSIBLE:e}"))
            .found(format!("{:e}", facts.max))
            .hint(hint);
        add(scan, Severity::Warning, Check::Scale, error);
    }
    let zero_rows = numbers.rows.iter().filter(|e| **e == 0.0).count();
    if facts.first_bad.is_none() && scan.findings.is_empty() {
        if zero_rows > 0 {
            let first = numbers.rows.iter().position(|e| *e == 0.0).unwrap_or_default();
            let error = Error::input("rows of zeros")
                .at(&at)
                .found(format!("{zero_rows} of {}, first {first}", w.rows))
                .hint("was a part of a fused tensor never written?");
            add(scan, Severity::Warning, Check::Numbers, error);
        }
        if let Some(error) = grid::coarse(&w.data) {
            add(scan, Severity::Warning, Check::Numbers, error.at(&at));
        }
        scan.numbers = Some(numbers);
    }
}

/// The matrices whose columns and rows are compared with each other's.
fn is_of_experts(name: &str) -> bool {
    name.contains(".ffn.experts.") || name.contains(".ffn.shared_experts.")
}

/// Checks block scales and scalars; false when one of them is not a positive finite number.
fn scales(store: &Store, scan: &mut Scan, w: &Weight<'_>, parts: &[Id]) -> bool {
    let mut ok = true;
    let all = [("scale", &w.scale), ("weight_scale_2", &w.global_scale), ("input_scale", &w.input_scale)];
    // The parts that exist, in the order in which the reader lists them after the values.
    let present = all.into_iter().filter_map(|(what, t)| t.as_ref().map(|t| (what, t)));
    for ((what, t), &id) in present.zip(&parts[1..]) {
        let n = t.shape.iter().product::<usize>();
        let cols = t.shape.last().copied().unwrap_or(1).max(1);
        let (mut bad, mut zero) = ((0, None), (0, None));
        for i in 0..n {
            let s = scale_at(t, i);
            let seen = match s {
                0.0 => &mut zero,
                s if s.is_finite() && s > 0.0 => continue,
                _ => &mut bad,
            };
            seen.0 += 1;
            seen.1.get_or_insert((i, s));
        }
        if let (count, Some((first, value))) = bad {
            // Golden never reads NVFP4's activation scale.
            let harmless = what == "input_scale";
            ok &= harmless;
            let hint = match t.dtype {
                Dtype::F8E8M0 => "E8M0 byte 255 is NaN: the file is damaged",
                Dtype::F8E4M3 => "E4M3 0x7F and 0xFF are NaN, and a scale has no sign: were codes and scales swapped?",
                _ => "the file is damaged, or the scale was computed from an empty block",
            };
            let error = Error::input("scale that is not a positive finite number")
                .at(store.place(id))
                .found(format!("{count} of {n}, first {value} at {}", place(first, cols)))
                .hint(hint);
            add(scan, if harmless { Severity::Warning } else { Severity::Error }, Check::Scale, error);
        }
        if let (count, Some((first, _))) = zero {
            let error = Error::input("scale of zero")
                .at(store.place(id))
                .found(format!("{count} of {n}, first at {}", place(first, cols)))
                .hint("its weights all become zero: did an all-zero block give it, or an underflow?");
            add(scan, Severity::Warning, Check::Scale, error);
        }
    }
    ok
}

/// A norm's weight or an F32 parameter.
fn values(store: &Store, scan: &mut Scan, t: &RawTensor<'_>, id: Id, role: Role) {
    let n = t.shape.iter().product::<usize>();
    let mut facts = Facts::default();
    for i in 0..n {
        facts = facts.join(Facts::of(&[scale_at(t, i)], i));
    }
    let cols = t.shape.last().copied().unwrap_or(1).max(1);
    if let Some(first) = facts.first_bad {
        let error = Error::input("values that are not finite")
            .at(store.place(id))
            .found(format!("{} of {n}, first at {}", facts.bad, place(first, cols)))
            .hint("the file is damaged, or a conversion overflowed");
        add(scan, Severity::Error, Check::Nonfinite, error);
    } else if role == Role::Norm && !facts.nonzero {
        let error =
            Error::input("all values of a norm are zero").at(store.place(id)).hint("was the tensor ever written?");
        add(scan, Severity::Warning, Check::Scale, error);
    }
    if let Some(error) = grid::coarse(t) {
        add(scan, Severity::Warning, Check::Numbers, error.at(store.place(id)));
    }
    if role == Role::Parameter && t.dtype == Dtype::Bf16 {
        let error = Error::input("parameter was rounded to BF16")
            .at(store.place(id))
            .expected("F32, as released")
            .hint("mHC, sinks, position biases and router bias are kept in F32: use the original checkpoint");
        add(scan, Severity::Warning, Check::Dtype, error);
    }
}

/// Expert ids by token: in range, and no expert twice for one token.
fn ids(store: &Store, scan: &mut Scan, t: &RawTensor<'_>, id: Id) {
    if let Err(error) = structure::ids_in_range(store, t, id) {
        add(scan, Severity::Error, Check::Ids, error);
    }
    let (k, all) = (store.config.num_experts_per_tok, t.ids());
    let twice = |row: &[i64]| (1..row.len()).any(|i| row[..i].contains(&row[i]));
    let tokens = all.chunks_exact(k).filter(|row| twice(row)).count();
    if tokens > 0 {
        let first = all.chunks_exact(k).position(twice).unwrap_or_default();
        let error = Error::input("one expert twice for a token")
            .at(store.place(id))
            .found(format!("{tokens} tokens, first {first}"))
            .hint("the expert then counts twice, which no other router does");
        add(scan, Severity::Warning, Check::Ids, error);
    }
}

/// Whether something was said about a tensor already.
pub(super) fn is_known(scan: &Scan) -> bool {
    scan.findings.iter().any(|f| f.severity != Severity::Note)
}

/// NVFP4: some engines fuse w1 and w3 and use one global scale for both (spec 4): a bug site where they differ.
pub(super) fn gate_and_up(scans: &[Scan]) -> Option<Finding> {
    let (mut pairs, mut differ, mut worst) = (0usize, 0usize, (1.0f64, String::new()));
    let mut gate = None;
    for scan in scans {
        // The inventory lists w1, w2, w3 of an expert in a row.
        match scan.name.rsplit_once('.') {
            Some((prefix, "w1")) => gate = scan.global.map(|g| (prefix, g)),
            Some((prefix, "w3")) => {
                let (Some((other, g)), Some(u)) = (gate, scan.global) else { continue };
                if other != prefix {
                    continue;
                }
                pairs += 1;
                if g.to_bits() != u.to_bits() {
                    differ += 1;
                    let ratio = f64::from(g) / f64::from(u);
                    let ratio = if ratio < 1.0 { 1.0 / ratio } else { ratio };
                    if ratio >= worst.0 {
                        worst = (ratio, prefix.to_string());
                    }
                }
            }
            _ => {}
        }
    }
    (differ > 0).then(|| {
        let error = Error::input("weight_scale_2 of w1 and w3 differ")
            .at(&worst.1)
            .found(format!("{differ} of {pairs} experts, by up to {:.3}x", worst.0))
            .hint("legal, but engines that fuse both matrices and keep one scale get w3 wrong: compare their w3");
        Finding::new(Severity::Warning, Check::Scale, &worst.1, error)
    })
}
