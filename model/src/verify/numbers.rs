//! What the values of one linear tell about how it was stored: energies of rows and columns, levels of scaled blocks, use of
//! codes. Sums are taken strip by strip in order, so that they don't depend on the number of threads.

use rayon::prelude::*;

use super::scan::Facts;
use crate::checkpoint::{Dtype, Encoding, Weight};
use crate::formats::{decode_rows, scale_at};

/// Rows of a strip where no block of scales asks for another number.
const STRIP: usize = 64;

/// Statistics of one linear `[rows, cols]`.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers {
    /// Values.
    pub(super) elements: usize,
    /// Sum of squares of each row; its sum is the energy of the whole.
    pub(super) rows: Vec<f64>,
    /// Sum of squares of each column; empty where nobody asked.
    pub(super) columns: Vec<f64>,
    /// Sum of the rows, `[cols]`; empty where nobody asked.
    pub(super) sum: Vec<f64>,
    /// Scaled blocks, where scales are powers of two.
    pub(super) blocks: Blocks,
    /// How often each magnitude 0, 0.5, 1, 1.5, 2, 3, 4, 6 of packed codes stands there; all zero for other encodings.
    pub(super) codes: [u64; 8],
}

/// Moments of two logarithms over blocks: the block's scale, and the RMS of its codes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Blocks {
    n: f64,
    scale: f64,
    codes: f64,
    scale_2: f64,
    codes_2: f64,
    both: f64,
}

impl Blocks {
    fn add(&mut self, energy: f64, elements: usize, scale: f64) {
        if energy > 0.0 && scale > 0.0 && energy.is_finite() {
            let s = scale.log2();
            let c = 0.5 * (energy / elements as f64).log2() - s;
            let add = Self { n: 1.0, scale: s, codes: c, scale_2: s * s, codes_2: c * c, both: s * c };
            *self = self.join(add);
        }
    }

    fn join(self, o: Self) -> Self {
        Self {
            n: self.n + o.n,
            scale: self.scale + o.scale,
            codes: self.codes + o.codes,
            scale_2: self.scale_2 + o.scale_2,
            codes_2: self.codes_2 + o.codes_2,
            both: self.both + o.both,
        }
    }

    /// Blocks with a value.
    pub(super) fn count(&self) -> f64 {
        self.n
    }

    /// Standard deviation of log2 of the scales.
    pub(super) fn spread(&self) -> f64 {
        (self.scale_2 / self.n - (self.scale / self.n).powi(2)).max(0.0).sqrt()
    }

    /// Correlation of log2 scale and log2 RMS of codes; 0 where one of them is constant.
    pub(super) fn correlation(&self) -> f64 {
        let n = self.n;
        let codes = (self.codes_2 / n - (self.codes / n).powi(2)).max(0.0).sqrt();
        let product = codes * self.spread();
        if product < 1e-9 { 0.0 } else { (self.both / n - self.scale / n * (self.codes / n)) / product }
    }
}

impl Numbers {
    /// Sum of squares.
    pub(super) fn energy(&self) -> f64 {
        self.rows.iter().sum()
    }

    /// log2 of the RMS; `None` for a tensor of zeros or one that is not finite.
    pub(super) fn level(&self) -> Option<f64> {
        let energy = self.energy();
        (energy > 0.0 && energy.is_finite()).then(|| 0.5 * (energy / self.elements as f64).log2())
    }

    /// Squared length of the sum of the rows over what it would be if their signs were random: 1, with a standard
    /// deviation of sqrt(2 / cols).
    pub(super) fn common_direction(&self) -> f64 {
        self.sum.iter().map(|s| s * s).sum::<f64>() / self.energy()
    }

    fn join(mut self, later: Self) -> Self {
        self.elements += later.elements;
        self.rows.extend(later.rows);
        for (mine, its) in [(&mut self.columns, later.columns), (&mut self.sum, later.sum)] {
            if mine.is_empty() {
                *mine = its;
            } else {
                mine.iter_mut().zip(its).for_each(|(a, b)| *a += b);
            }
        }
        self.blocks = self.blocks.join(later.blocks);
        self.codes.iter_mut().zip(later.codes).for_each(|(a, b)| *a += b);
        self
    }
}

/// Decodes a linear once. `by_column`: whether sums over columns are wanted.
pub(super) fn of(w: &Weight<'_>, by_column: bool) -> (Facts, Numbers) {
    let tall = match w.encoding {
        Encoding::Fp8Block { block: [rows, _] } => rows.max(1),
        _ => STRIP,
    };
    let strips: Vec<(Facts, Numbers)> = (0..w.rows.div_ceil(tall))
        .into_par_iter()
        .map_init(Vec::new, |values, i| {
            let (first, last) = (i * tall, ((i + 1) * tall).min(w.rows));
            values.resize((last - first) * w.cols, 0.0);
            decode_rows(w, first, values);
            (Facts::of(values, first * w.cols), strip(w, first, values, by_column))
        })
        .collect();
    let mut out = strips
        .into_iter()
        .fold((Facts::default(), Numbers::default()), |(facts, numbers), (f, n)| (facts.join(f), numbers.join(n)));
    if w.data.dtype == Dtype::Packed4 {
        for byte in w.data.bytes {
            out.1.codes[usize::from(byte & 7)] += 1;
            out.1.codes[usize::from(byte >> 4 & 7)] += 1;
        }
    }
    out
}

fn strip(w: &Weight<'_>, first: usize, values: &[f32], by_column: bool) -> Numbers {
    let square = |v: &f32| f64::from(*v) * f64::from(*v);
    let mut out = Numbers { elements: values.len(), ..Numbers::default() };
    out.rows = values.chunks_exact(w.cols).map(|row| row.iter().map(square).sum()).collect();
    if by_column {
        (out.columns, out.sum) = (vec![0.0; w.cols], vec![0.0; w.cols]);
        for row in values.chunks_exact(w.cols) {
            for ((v, column), sum) in row.iter().zip(&mut out.columns).zip(&mut out.sum) {
                *column += square(v);
                *sum += f64::from(*v);
            }
        }
    }
    let Some(scale) = w.scale.as_ref().filter(|s| s.dtype == Dtype::F8E8M0) else { return out };
    let group = match w.encoding {
        Encoding::Fp8Block { block: [_, cols] } => cols.max(1),
        _ => 32,
    };
    let across = w.cols.div_ceil(group);
    // The rows that share a scale (a strip is one row of blocks), or each row alone.
    let tall = match w.encoding {
        Encoding::Fp8Block { block: [tall, _] } => tall.max(1),
        _ => 1,
    };
    for (i, rows) in values.chunks(tall * w.cols).enumerate() {
        let at = first / tall + i;
        for b in 0..across {
            let columns = b * group..((b + 1) * group).min(w.cols);
            let part = rows.chunks_exact(w.cols).map(|row| row[columns.clone()].iter().map(square).sum::<f64>());
            let elements = columns.len() * (rows.len() / w.cols);
            out.blocks.add(part.sum(), elements, f64::from(scale_at(scale, at * across + b)));
        }
    }
    out
}
