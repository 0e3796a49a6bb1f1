//! How a tensor is cut: rows, parts of a row (stream, head, nope and rope), classes of rows (phase, pass).

use std::ops::Range;

use karat_seam::{Error, Result, Tensor};

use crate::View;

/// Elements that one unit of work holds at most. Part of the definition of every sum's order: changing it moves last
/// places.
pub(crate) const SEGMENT: usize = 32 * 1024;

/// The cut of a tensor `[rows, width]` (axis 0 against all others).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    rows: usize,
    width: usize,
    /// End column of each part, ascending; the last is `width`.
    ends: Vec<usize>,
    /// Class of each row; empty when all rows are of class 0.
    classes: Vec<u32>,
}

/// One unit of work: whole rows of one class, or a piece of one part of one long row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) class: u32,
    pub(crate) rows: Range<usize>,
    /// `Some`: a piece of this part, these columns.
    pub(crate) piece: Option<(usize, Range<usize>)>,
}

impl Grid {
    /// One part, one class.
    pub fn new(rows: usize, width: usize) -> Self {
        Self { rows, width, ends: vec![width], classes: Vec::new() }
    }

    /// The grid of a tensor: axis 0 against the rest.
    pub fn of(tensor: &Tensor) -> Self {
        Self::new(tensor.rows(), tensor.width())
    }

    /// The grid of a tensor that lies elsewhere.
    pub fn of_view(view: &View<'_>) -> Self {
        Self::new(view.rows(), view.width())
    }

    /// Cuts every row into `n` equal parts: streams of `[S,hc,D]`, heads of `[S,H,hd]`.
    pub fn equal_parts(mut self, n: usize) -> Result<Self> {
        if n == 0 || !self.width.is_multiple_of(n) {
            return Err(Error::Request(format!("a row of {} values can't be cut into {n} equal parts", self.width)));
        }
        self.ends = (1..=n).map(|i| i * (self.width / n)).collect();
        Ok(self)
    }

    /// Cuts every row into parts of these widths, over and over: heads of nope and rope as `[nope, rope]`; scale blocks as
    /// `[128]`, the last one shorter where the row ends inside it.
    pub fn repeated(mut self, widths: &[usize]) -> Result<Self> {
        if widths.is_empty() || widths.contains(&0) {
            return Err(Error::Request(format!("a row can't be cut into parts of widths {widths:?}")));
        }
        self.ends.clear();
        let mut end = 0;
        for width in widths.iter().cycle() {
            end = (end + width).min(self.width);
            self.ends.push(end);
            if end == self.width {
                break;
            }
        }
        Ok(self)
    }

    /// Cuts every row at these end columns (nope | rope: `[hd - rope, hd]`).
    pub fn parts(mut self, ends: Vec<usize>) -> Result<Self> {
        if !ends.is_sorted() || ends.last() != Some(&self.width) {
            return Err(Error::Request(format!("part ends {ends:?} are not ascending up to the width {}", self.width)));
        }
        self.ends = ends;
        Ok(self)
    }

    /// Gives each row a class (phase, pass, stratum); results are then kept apart by class.
    pub fn classes(mut self, classes: Vec<u32>) -> Result<Self> {
        if classes.len() != self.rows {
            return Err(Error::Request(format!("{} row classes for {} rows", classes.len(), self.rows)));
        }
        self.classes = classes;
        Ok(self)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of parts.
    pub fn part_count(&self) -> usize {
        self.ends.len()
    }

    /// Columns of a part.
    pub fn part_columns(&self, part: usize) -> Range<usize> {
        let start = if part == 0 { 0 } else { self.ends[part - 1] };
        start..self.ends[part]
    }

    /// Class of a row.
    pub fn class(&self, row: usize) -> u32 {
        self.classes.get(row).copied().unwrap_or(0)
    }

    /// Refuses a tensor of another size.
    pub(crate) fn check(&self, at: &str, shape: &[usize]) -> Result<()> {
        let width = shape.iter().skip(1).product();
        if (shape.first().copied().unwrap_or(1), width) == (self.rows, self.width) {
            return Ok(());
        }
        Err(Error::Shape { at: at.into(), expected: vec![self.rows, self.width], found: shape.to_vec() })
    }

    /// The units of work in row order. They follow from the shape, the parts and the classes alone.
    pub(crate) fn items(&self) -> Vec<Item> {
        let mut items = Vec::new();
        if self.width > SEGMENT {
            for row in 0..self.rows {
                self.cut_row(row, &mut items);
            }
            return items;
        }
        let step = (SEGMENT / self.width.max(1)).max(1);
        let mut row = 0;
        while row < self.rows {
            let class = self.class(row);
            let limit = (row + step).min(self.rows);
            let end = (row..limit).find(|&r| self.class(r) != class).unwrap_or(limit);
            items.push(Item { class, rows: row..end, piece: None });
            row = end;
        }
        items
    }

    fn cut_row(&self, row: usize, items: &mut Vec<Item>) {
        for part in 0..self.part_count() {
            let columns = self.part_columns(part);
            for start in columns.clone().step_by(SEGMENT) {
                let end = (start + SEGMENT).min(columns.end);
                items.push(Item { class: self.class(row), rows: row..row + 1, piece: Some((part, start..end)) });
            }
        }
    }
}
