//! What an op gave: values, and where on a backend they still lie.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use karat_seam::{Error, Later, Result, There};

use crate::backend::{Backend, Place};

/// Values that an op gave. Who may have changed them has them here alone: what lies there is what was given.
#[derive(Debug, Clone)]
pub(crate) struct Made<T> {
    values: Vec<T>,
    there: Option<Lying>,
}

/// The same values on a backend, or some of them.
#[derive(Debug, Clone)]
pub(crate) struct Lying {
    backend: Arc<dyn Backend>,
    place: Place,
    /// Which of them.
    range: Range<usize>,
}

/// A tensor as it is shown to a visitor.
pub(crate) struct Shown<'a, T> {
    pub(crate) values: &'a mut [T],
    pub(crate) there: Option<Lying>,
}

impl<T> Made<T> {
    pub(crate) fn new(values: Vec<T>, there: Option<Lying>) -> Self {
        Self { values, there }
    }

    pub(crate) fn into_vec(self) -> Vec<T> {
        self.values
    }

    /// Everything from value `first` on, which may be changed then.
    pub(crate) fn behind(&mut self, first: usize) -> Shown<'_, T> {
        let there = self.there.take().map(|it| it.part(first..self.values.len()));
        Shown { values: &mut self.values[first..], there }
    }
}

impl Lying {
    /// All values of a place.
    pub(crate) fn new(backend: Arc<dyn Backend>, place: Place, values: usize) -> Self {
        Self { backend, place, range: 0..values }
    }

    /// Some of them.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        let first = self.range.start;
        Self { range: first + range.start..first + range.end, ..self.clone() }
    }
}

impl There for Lying {
    fn sketch(&self, rows: usize, ragged: bool) -> Result<Option<Box<dyn Later>>> {
        self.backend.sketch(self.place, self.range.clone(), rows, ragged).map_err(Error::source)
    }
}

/// Equal values, wherever they lie.
impl<T: PartialEq> PartialEq for Made<T> {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl<T> From<Vec<T>> for Made<T> {
    fn from(values: Vec<T>) -> Self {
        Self { values, there: None }
    }
}

impl<T> Deref for Made<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T> DerefMut for Made<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.there = None;
        &mut self.values
    }
}

impl<'a, T> From<&'a mut Made<T>> for Shown<'a, T> {
    fn from(made: &'a mut Made<T>) -> Self {
        made.behind(0)
    }
}

impl<'a, T> From<&'a mut Vec<T>> for Shown<'a, T> {
    fn from(values: &'a mut Vec<T>) -> Self {
        Self { values, there: None }
    }
}
