//! One tensor of both sides, compared.

use std::borrow::Cow;

use karat_diff::{Code, Grid, Metrics, Offender, RowMetrics, View, discrete, measure_views};
use karat_trace::dumps::{Dump, Held, Matched, Origin};
use karat_trace::import::map::Recipe;

use super::criteria::{Criteria, Distance};
use super::pattern::Pattern;
use crate::failure::Result;

/// How one tensor differs.
pub(super) struct Compared {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) kind: Kind,
    /// Names of what it was made of on either side, where a map made it.
    pub(super) sources: Option<(Vec<String>, Vec<String>)>,
    /// It counts against the exit code.
    pub(super) fails: bool,
}

pub(super) enum Kind {
    Numbers {
        metrics: Box<Metrics>,
        rows: RowMetrics,
        worst: Vec<Offender>,
        mean_abs: f64,
    },
    Codes {
        differing: u64,
        of: usize,
    },
    Shapes {
        other: Vec<usize>,
    },
    /// The tensor can't be made as the map says, or its shards contradict each other.
    Problem {
        what: String,
    },
}

impl Compared {
    /// Larger is worse.
    pub(super) fn size(&self) -> f64 {
        match &self.kind {
            Kind::Numbers { metrics, .. } if metrics.nonfinite > 0 => f64::INFINITY,
            Kind::Numbers { metrics, .. } => metrics.rel_l2,
            Kind::Codes { differing, of } => *differing as f64 / (*of).max(1) as f64,
            Kind::Shapes { .. } | Kind::Problem { .. } => f64::INFINITY,
        }
    }

    /// True for a difference that the options allow.
    pub(super) fn passes_though_different(&self) -> bool {
        !self.fails && self.size() != 0.0
    }

    /// Decides whether it fails: any difference, or one beyond the conditions; none whose name may fail.
    pub(super) fn judge(&mut self, criteria: Option<&Criteria>, may_fail: Option<&Pattern>) -> Result<()> {
        self.fails = match (&self.kind, criteria) {
            (Kind::Numbers { metrics: m, mean_abs, .. }, Some(criteria)) => {
                let distance = Distance { rel: m.calc_diff, max_abs: m.max_abs, mean_abs: *mean_abs };
                !criteria.pass(&self.name, distance)?
            }
            _ => self.size() != 0.0,
        };
        self.fails &= !may_fail.is_some_and(|p| p.fits(&self.name));
        Ok(())
    }
}

/// Worst values that are named.
const WORST: usize = 5;

/// Compares one tensor. Numbers are read where the mapped files have them; ulp are those of B's element type.
///
/// Axes of extent 1 make no difference where a map or another engine's dump is concerned: engines differ in the batch
/// axis. Two traces or safetensors files must have equal shapes.
pub(super) fn one(a: &Dump, b: &Dump, matched: &Matched) -> Result<Compared> {
    let name = matched.name.as_str();
    let of = |recipe: &Recipe| recipe.sources().map(String::from).collect::<Vec<_>>();
    let sources = (!matched.by_name).then(|| (of(&matched.a), of(&matched.b)));
    let made = |shape: &[usize], kind: Kind| Compared {
        name: name.to_string(),
        shape: shape.to_vec(),
        kind,
        sources,
        fails: false,
    };
    if matched.by_name {
        let (x, y) = (a.held(name)?, b.held(name)?);
        let strict = a.origin() != Origin::Import && b.origin() != Origin::Import;
        let kind = kind(name, &x, &y, strict)?;
        return Ok(made(&x.shape, kind));
    }
    let (x, y) = match (a.build(&matched.a), b.build(&matched.b)) {
        (Ok(x), Ok(y)) => (x, y),
        (Err(e), _) | (_, Err(e)) => return Ok(made(&[], Kind::Problem { what: e.to_string() })),
    };
    let held =
        |bytes, array: &karat_trace::import::Array| Held { dtype: array.dtype(), shape: array.shape().to_vec(), bytes };
    let (left, right) = (held(x.array.read()?, &x.array), held(y.array.read()?, &y.array));
    let kind = match x.problem.or(y.problem) {
        Some(what) => Kind::Problem { what },
        None => kind(name, &left, &right, false)?,
    };
    Ok(made(&left.shape, kind))
}

/// How two tensors differ.
fn kind(name: &str, x: &Held<'_>, y: &Held<'_>, strict: bool) -> Result<Kind> {
    let long = |shape: &[usize]| shape.iter().copied().filter(|d| *d != 1).collect::<Vec<_>>();
    if x.shape != y.shape && (strict || long(&x.shape) != long(&y.shape)) {
        return Ok(Kind::Shapes { other: y.shape.clone() });
    }
    // Rows are the first long axis where the shapes are not the same.
    let shape = if x.shape == y.shape && strict { Cow::Borrowed(&x.shape) } else { Cow::Owned(long(&x.shape)) };
    let shape: &[usize] = if shape.is_empty() { &[1] } else { &shape };
    let (Some(of_x), Some(of_y)) = (Code::named(x.dtype.name()), Code::named(y.dtype.name())) else {
        let (x, mut y) = (x.decode()?, y.decode()?);
        if x.data.dtype() != y.data.dtype() {
            if !strict {
                let what = format!("element types differ: {} and {}", x.data.dtype(), y.data.dtype());
                return Ok(Kind::Problem { what });
            }
            let error = karat_model::Error::input("the two sides have different element types").at(name);
            return Err(error.expected(x.data.dtype()).found(y.data.dtype()).into());
        }
        y.shape.clone_from(&x.shape);
        let (differing, _) = discrete::codes(name, &x, &y)?;
        return Ok(Kind::Codes { differing, of: x.data.len() });
    };
    let x = View::stored(name, shape, of_x, &x.bytes)?;
    let y = View::stored(name, shape, of_y, &y.bytes)?;
    let measured = measure_views(name, x, y, of_y.storage(), WORST, &Grid::of_view(&x))?;
    let rows = RowMetrics::of(&measured.rows);
    let metrics = Box::new(Metrics::of(&measured.total));
    let sums = &measured.total.sums;
    let mean_abs = if metrics.nonfinite > 0 { f64::NAN } else { sums.abs_d / sums.n.max(1) as f64 };
    Ok(Kind::Numbers { metrics, rows, worst: measured.offenders, mean_abs })
}
