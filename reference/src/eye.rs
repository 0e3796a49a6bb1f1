//! Showing tensors to a visitor: the one place that builds taps.

use karat_seam::{Block, DataMut, Error, Later, Result, RowId, Site, Tap, TensorMut, Visitor, Want};

use crate::linalg::Real;
use crate::made::Shown;

/// A visitor looking at one piece of rows of one sequence in one block.
pub(crate) struct Eye<'a> {
    pub(crate) see: &'a mut dyn Visitor,
    pub(crate) block: Block,
    pub(crate) rows: &'a [RowId],
}

impl Eye<'_> {
    fn wanted(&self, tap: Tap) -> Option<Site> {
        self.wanted_how(tap).map(|(site, _)| site)
    }

    fn wanted_how(&self, tap: Tap) -> Option<(Site, Want)> {
        let site = Site { block: self.block, tap };
        Some((site, self.see.want(site))).filter(|(_, want)| *want != Want::Skip)
    }

    /// `[S, tail...]` values; what the visitor leaves in them goes on.
    pub(crate) fn tap<'v, T: Real>(&mut self, tap: Tap, tail: &[usize], it: impl Into<Shown<'v, T>>) -> Result<()> {
        let Some(how) = self.wanted_how(tap) else { return Ok(()) };
        let shape: Vec<usize> = std::iter::once(self.rows.len()).chain(tail.iter().copied()).collect();
        show(self.see, how, self.rows, &shape, it.into())
    }

    /// Rows of which only sketches are shown.
    pub(crate) fn lines(&mut self, tap: Tap, lines: Box<dyn Later>) -> Result<()> {
        match self.wanted(tap) {
            Some(site) => self.see.visit_sketched(site, self.rows, lines),
            None => Ok(()),
        }
    }

    /// Entries that are new since the last call, `[n,width]`, the first one with index `first`.
    pub(crate) fn entries<T: Real>(&mut self, tap: Tap, first: usize, width: usize, it: Shown<'_, T>) -> Result<()> {
        let Some(how) = self.wanted_how(tap).filter(|_| !it.values.is_empty()) else { return Ok(()) };
        let like = self.rows[0];
        let n = it.values.len() / width;
        let rows: Vec<RowId> = (first..first + n).map(|i| RowId { pos: i as u32, ..like }).collect();
        show(self.see, how, &rows, &[n, width], it)
    }

    /// A mask `[S,T]`.
    pub(crate) fn mask(&mut self, tap: Tap, total: usize, values: &mut [u8]) -> Result<()> {
        let Some(site) = self.wanted(tap) else { return Ok(()) };
        let shape = [self.rows.len(), total];
        self.see.visit(site, self.rows, TensorMut { shape: &shape, data: DataMut::U8(values) })
    }

    /// Indices `[S,K]`, each below `limit`.
    pub(crate) fn indices(&mut self, tap: Tap, k: usize, limit: usize, values: &mut [u32]) -> Result<()> {
        let Some(site) = self.wanted(tap) else { return Ok(()) };
        let shape = [self.rows.len(), k];
        let mut wide: Vec<i64> = values.iter().map(|&v| i64::from(v)).collect();
        self.see.visit(site, self.rows, TensorMut { shape: &shape, data: DataMut::I64(&mut wide) })?;
        for (value, wide) in values.iter_mut().zip(wide) {
            let valid = u32::try_from(wide).ok().filter(|&v| (v as usize) < limit);
            *value =
                valid.ok_or_else(|| Error::Request(format!("{site}: a visitor left {wide}, not below {limit}")))?;
        }
        Ok(())
    }

    /// A tensor that is not one row a token.
    pub(crate) fn whole(&mut self, tap: Tap, tensor: TensorMut<'_>) -> Result<()> {
        match self.wanted(tap) {
            Some(site) => self.see.visit(site, self.rows, tensor),
            None => Ok(()),
        }
    }

    /// State rows `[n,width]`; the visitor sees a copy.
    pub(crate) fn state<T: Real>(&mut self, tap: Tap, width: usize, values: &[T]) -> Result<()> {
        if self.wanted(tap).is_none() {
            return Ok(());
        }
        self.whole(tap, T::borrow(&[values.len() / width, width], &mut values.to_vec()))
    }
}

/// One tensor, with where it lies besides if the visitor only reads.
fn show<T: Real>(
    see: &mut dyn Visitor,
    (site, want): (Site, Want),
    rows: &[RowId],
    shape: &[usize],
    it: Shown<'_, T>,
) -> Result<()> {
    let tensor = T::borrow(shape, it.values);
    match it.there.filter(|_| want == Want::Read) {
        Some(there) => see.visit_there(site, rows, tensor, &there),
        None => see.visit(site, rows, tensor),
    }
}
