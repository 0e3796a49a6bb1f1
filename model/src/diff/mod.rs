//! `karat model diff A B`: do two checkpoints hold the same model? Compared tensor by tensor by decoded value, across
//! naming, sharding and encoding, and by config. What differs is told together with what it looks like: transposed
//! scales, another layer's, packed codes in another order, a rounding. Rows are decoded in parallel, a few at a time.

mod likeness;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;

use rayon::prelude::*;
use serde::Serialize;

use crate::Result;
use crate::checkpoint::{Checkpoint, Encoding, Expected, RawTensor, Role, Weight};
use crate::formats::{decode_rows, scale_at};

/// How one tensor differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorDiff {
    /// Canonical name.
    pub name: String,
    /// Logical shape in A.
    pub shape: Vec<usize>,
    /// How A stores it.
    pub stored_a: String,
    /// How B stores it.
    pub stored_b: String,
    /// The stored bytes (codes and scales) are the same.
    pub equal_bytes: bool,
    /// Values that differ.
    pub differing: usize,
    /// Largest |A - B|; infinite where one side is not finite and the other differs.
    #[serde(serialize_with = "number")]
    pub max_abs: f64,
    /// Row and column of it (a vector has row 0).
    pub at: Option<[usize; 2]>,
    /// |A - B| over |A|, both as L2 norms.
    #[serde(serialize_with = "number")]
    pub rel_l2: f64,
    /// What A's tensor would have to be taken for to give B's (transposed, another layer's, rounded, ...), where the two
    /// differ and something fits.
    pub looks_like: Option<String>,
}

/// json has no infinity and no NaN: they are written as strings, not as null.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn number<S: serde::Serializer>(value: &f64, to: S) -> std::result::Result<S::Ok, S::Error> {
    if value.is_finite() { to.serialize_f64(*value) } else { to.serialize_str(&format!("{value:?}")) }
}

impl TensorDiff {
    /// True when every decoded value is the same (-0 and 0 count as the same).
    pub fn equal(&self) -> bool {
        self.differing == 0
    }
}

/// How two checkpoints differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Folder or label of A.
    pub a: String,
    /// Folder or label of B.
    pub b: String,
    /// Config fields that differ: name, A's value, B's value.
    pub config: Vec<(String, String, String)>,
    /// Tensors of both, in canonical order.
    pub tensors: Vec<TensorDiff>,
    /// Tensors in both with different shapes: name, A's and B's shape.
    pub shapes: Vec<(String, Vec<usize>, Vec<usize>)>,
    /// Tensors that only A has.
    pub only_a: Vec<String>,
    /// Tensors that only B has.
    pub only_b: Vec<String>,
}

impl Report {
    /// True when both compute the same function: config, tensors and every decoded value are equal.
    pub fn same(&self) -> bool {
        self.config.is_empty()
            && self.shapes.is_empty()
            && self.only_a.is_empty()
            && self.only_b.is_empty()
            && self.tensors.iter().all(TensorDiff::equal)
    }

    /// Tensors whose values differ, the largest relative difference first.
    pub fn worst(&self) -> Vec<&TensorDiff> {
        let mut out: Vec<_> = self.tensors.iter().filter(|t| !t.equal()).collect();
        out.sort_by(|x, y| y.rel_l2.total_cmp(&x.rel_l2));
        out
    }
}

/// Compares two checkpoints. `progress` is called with (done, all) tensors, from several threads.
///
/// # Errors
/// A tensor that can't be read; opening both made sure that there is none.
pub fn diff(a: &Checkpoint, b: &Checkpoint, progress: crate::verify::Progress<'_>) -> Result<Report> {
    let in_b: HashMap<&str, &Expected> = b.inventory().iter().map(|e| (e.name.as_str(), e)).collect();
    let in_a: HashSet<&str> = a.inventory().iter().map(|e| e.name.as_str()).collect();
    let (mut both, mut shapes, mut only_a) = (Vec::new(), Vec::new(), Vec::new());
    for e in a.inventory() {
        match in_b.get(e.name.as_str()) {
            Some(other) if other.shape == e.shape => both.push(e),
            Some(other) => shapes.push((e.name.clone(), e.shape.clone(), other.shape.clone())),
            None => only_a.push(e.name.clone()),
        }
    }
    let done = std::sync::atomic::AtomicUsize::new(0);
    let tensors = both
        .par_iter()
        .map(|e| {
            let t = tensor(a, b, e);
            progress(done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1, both.len());
            t
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Report {
        a: a.label().to_string(),
        b: b.label().to_string(),
        config: config(a, b),
        tensors,
        shapes,
        only_a,
        only_b: b.inventory().iter().filter(|e| !in_a.contains(e.name.as_str())).map(|e| e.name.clone()).collect(),
    })
}

fn config(a: &Checkpoint, b: &Checkpoint) -> Vec<(String, String, String)> {
    let (a, b) = (a.config().facts(), b.config().facts());
    a.into_iter()
        .zip(b)
        // How experts are stored shows in each tensor; it doesn't change what they compute.
        .filter(|((name, x), (_, y))| x != y && *name != "expert_dtype" && *name != "weight_block_size")
        .map(|((name, x), (_, y))| (name.to_string(), x, y))
        .collect()
}

/// Sums over a run of values.
#[derive(Clone, Copy, Default)]
struct Sums {
    differing: usize,
    max: f64,
    at: Option<usize>,
    square: f64,
    square_a: f64,
}

impl Sums {
    fn of(a: &[f32], b: &[f32], start: usize) -> Self {
        let mut s = Self::default();
        for (i, (&x, &y)) in a.iter().zip(b).enumerate() {
            let (x, y) = (f64::from(x), f64::from(y));
            s.square_a += x * x;
            if x == y || (x.is_nan() && y.is_nan()) {
                continue;
            }
            s.differing += 1;
            let d = (x - y).abs();
            let d = if d.is_nan() { f64::INFINITY } else { d };
            s.square += d * d;
            if d > s.max {
                (s.max, s.at) = (d, Some(start + i));
            }
        }
        s
    }

    fn join(self, later: Self) -> Self {
        let (max, at) = if later.max > self.max { (later.max, later.at) } else { (self.max, self.at) };
        Self {
            differing: self.differing + later.differing,
            max,
            at,
            square: self.square + later.square,
            square_a: self.square_a + later.square_a,
        }
    }
}

fn tensor(a: &Checkpoint, b: &Checkpoint, e: &Expected) -> Result<TensorDiff> {
    let cols = e.shape.last().copied().unwrap_or(1).max(1);
    let (sums, equal_bytes, stored_a, stored_b) = if let Role::Linear(_) = e.role {
        let (x, y) = (a.linear(&e.name)?, b.linear(&e.name)?);
        let sums = (0..x.rows)
            .into_par_iter()
            .with_min_len(16)
            .map_init(
                || (vec![0.0; x.cols], vec![0.0; x.cols]),
                |(row_a, row_b), r| {
                    decode_rows(&x, r, row_a);
                    decode_rows(&y, r, row_b);
                    (r, Sums::of(row_a, row_b, r * cols))
                },
            )
            // In row order, so that the sums don't depend on the number of threads.
            .collect::<Vec<_>>()
            .into_iter()
            .fold(Sums::default(), |s, (_, row)| s.join(row));
        (sums, same_bytes(&x, &y), stored(&x), stored(&y))
    } else {
        let (x, y) = (a.tensor(&e.name)?, b.tensor(&e.name)?);
        let n = e.elements();
        let sums = if e.role == Role::Ids {
            ids(&x, &y)
        } else {
            (0..n).fold(Sums::default(), |s, i| s.join(Sums::of(&[scale_at(&x, i)], &[scale_at(&y, i)], i)))
        };
        (sums, x.dtype == y.dtype && x.bytes == y.bytes, dtype(&x).to_string(), dtype(&y).to_string())
    };
    let rel_l2 = if sums.square == 0.0 { 0.0 } else { (sums.square / sums.square_a).sqrt() };
    Ok(TensorDiff {
        name: e.name.clone(),
        shape: e.shape.clone(),
        stored_a,
        stored_b,
        equal_bytes,
        differing: sums.differing,
        max_abs: sums.max,
        at: sums.at.map(|i| [i / cols, i % cols]),
        rel_l2,
        looks_like: if sums.differing > 0 { likeness::of(a, b, e) } else { None },
    })
}

/// Ids are compared as numbers, whatever their size on disk.
fn ids(x: &RawTensor<'_>, y: &RawTensor<'_>) -> Sums {
    x.ids().into_iter().zip(y.ids()).enumerate().fold(Sums::default(), |s, (i, (p, q))| {
        let d = p.abs_diff(q) as f64;
        let at = (p != q).then_some(i);
        let square_a = (p as f64) * (p as f64);
        s.join(Sums { differing: usize::from(p != q), max: d, at, square: d * d, square_a })
    })
}

fn same_bytes(x: &Weight<'_>, y: &Weight<'_>) -> bool {
    let same = |a: &Option<RawTensor<'_>>, b: &Option<RawTensor<'_>>| match (a, b) {
        (Some(a), Some(b)) => a.dtype == b.dtype && a.bytes == b.bytes,
        (None, None) => true,
        _ => false,
    };
    x.encoding == y.encoding
        && x.data.dtype == y.data.dtype
        && x.data.bytes == y.data.bytes
        && same(&x.scale, &y.scale)
        && same(&x.global_scale, &y.global_scale)
}

/// Storage in words.
fn stored(w: &Weight<'_>) -> String {
    let scale = w.scale.as_ref().map_or("", dtype);
    match w.encoding {
        Encoding::Plain => dtype(&w.data).to_string(),
        Encoding::Fp8Block { block: [r, c] } => format!("FP8 {r}x{c} with {scale} scales"),
        Encoding::Mxfp4 => "MXFP4".to_string(),
        Encoding::Nvfp4 => "NVFP4".to_string(),
    }
}

fn dtype(t: &RawTensor<'_>) -> &'static str {
    t.dtype.name()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A {}\nB {}", self.a, self.b)?;
        for (name, x, y) in &self.config {
            writeln!(f, "config {name}: A {x}, B {y}")?;
        }
        for (name, x, y) in &self.shapes {
            writeln!(f, "shape of {name}: A {x:?}, B {y:?}")?;
        }
        for (who, names) in [("A", &self.only_a), ("B", &self.only_b)] {
            if let Some(first) = names.first() {
                writeln!(f, "only in {who}: {} tensors, first {first}", names.len())?;
            }
        }
        let worst = self.worst();
        for t in worst.iter().take(20) {
            let at = t.at.map_or(String::new(), |[r, c]| format!(" at row {r}, column {c}"));
            writeln!(
                f,
                "{}: rel-L2 {:.3e}, max {:.3e}{at}, {} of {} values ({} / {}){}",
                t.name,
                t.rel_l2,
                t.max_abs,
                t.differing,
                t.shape.iter().product::<usize>(),
                t.stored_a,
                t.stored_b,
                t.looks_like.as_ref().map_or(String::new(), |what| format!(": {what}"))
            )?;
        }
        if worst.len() > 20 {
            writeln!(f, "... and {} tensors more", worst.len() - 20)?;
        }
        let bytes = self.tensors.iter().filter(|t| t.equal_bytes).count();
        let equal = self.tensors.iter().filter(|t| t.equal()).count();
        write!(f, "{} tensors in both: {bytes} equal by byte, {equal} by value", self.tensors.len())?;
        write!(f, "{}", if self.same() { "; the same model" } else { "; NOT the same model" })
    }
}

/// Opens both folders and compares them.
///
/// # Errors
/// One of them doesn't open.
pub fn diff_folders(a: &std::path::Path, b: &std::path::Path, progress: crate::verify::Progress<'_>) -> Result<Report> {
    diff(&Checkpoint::open(a)?, &Checkpoint::open(b)?, progress)
}
