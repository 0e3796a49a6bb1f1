//! One axis of a search: what was found along it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::desk::Desk;
use super::replay::{Measured, Seen};
use super::search::{Answer, Turn, first_bad};
use crate::Result;

/// Along what is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// Patch sets.
    Patches,
    /// Layers, in order.
    Layers,
    /// Ops of one layer, in op order.
    Ops,
    /// Positions.
    Tokens,
    /// Histories, in their order.
    Histories,
    /// One after the other, each on what the one before left.
    All,
}

impl Over {
    /// Every value.
    pub const ALL: [Self; 6] = [Self::Patches, Self::Layers, Self::Ops, Self::Tokens, Self::Histories, Self::All];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Patches => "patches",
            Self::Layers => "layers",
            Self::Ops => "ops",
            Self::Tokens => "tokens",
            Self::Histories => "histories",
            Self::All => "all",
        }
    }
}

/// How a search along one axis ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// With the place that it looked for.
    Found,
    /// With nothing bad to look for.
    Nothing,
    /// With places that could not be told apart, or not be tested.
    Undecided,
}

/// What was found along one axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    /// The axis.
    pub over: Over,
    /// How it ended.
    pub ended: Ended,
    /// What was found: patches; a layer; an op; `sequence:position`; a history. Several where it is undecided.
    pub found: Vec<String>,
    /// The result as a sentence.
    pub sentence: String,
    /// What counts as bad.
    pub criterion: String,
    /// True where bad is bad by itself; false where it is a share of what there is.
    pub is_absolute: bool,
    /// Which share of the whole is added at the place that was found, along an ordered axis.
    pub share: Option<f64>,
}

/// What an ordered axis showed.
pub(super) struct Axis {
    /// `None` where the last point is not over the limit.
    pub(super) turn: Option<Turn>,
    /// Measurements of the points that were asked, both ends among them.
    pub(super) values: BTreeMap<usize, f64>,
    pub(super) limit: f64,
}

impl Axis {
    /// The value at the last point that was asked before `point`.
    pub(super) fn before(&self, point: usize) -> f64 {
        self.values.range(..point).next_back().map_or(f64::NAN, |(_, v)| *v)
    }

    pub(super) fn at(&self, point: usize) -> f64 {
        self.values.get(&point).copied().unwrap_or(f64::NAN)
    }

    /// What share of the whole is added at the turn.
    pub(super) fn share(&self, point: usize) -> f64 {
        let (first, last) = (self.values.first_key_value(), self.values.last_key_value());
        let (Some((_, first)), Some((_, last))) = (first, last) else { return f64::NAN };
        (self.at(point) - self.before(point)) / (last - first)
    }
}

/// Searches points `0..=last`: both ends first, then by halves. Without a limit it is the middle between the ends: the turn
/// is where half of the whole is reached.
pub(super) fn axis(
    desk: &mut Desk<'_>,
    last: usize,
    limit: Option<f64>,
    name: impl Fn(usize) -> String,
    mut measure: impl FnMut(usize) -> Result<Measured>,
) -> Result<Axis> {
    let ends = [name(0), name(last)];
    let points = [0, last];
    let measured =
        desk.values(&ends, &mut |which| which.iter().map(|i| measure(points[*i])).collect::<Result<Vec<_>>>())?;
    let value = |m: &Measured| match m.seen {
        Seen::Value(v) => v,
        Seen::Answer(Answer::Bad) => f64::INFINITY,
        Seen::Answer(_) => f64::NAN,
    };
    let (low, high) = (value(&measured[0].0), value(&measured[1].0));
    let limit = limit.unwrap_or(f64::midpoint(low, high));
    for (question, (measured, replayed)) in ends.iter().zip(&measured) {
        desk.enter(question, measured, limit, 1, *replayed);
    }
    let mut values = BTreeMap::from([(0, low), (last, high)]);
    if !(high > limit || high.is_nan()) {
        return Ok(Axis { turn: None, values, limit });
    }
    if low > limit || low.is_nan() {
        return Ok(Axis { turn: Some(Turn::At(0)), values, limit });
    }
    let turn = first_bad(last, |point| {
        let mut answers = desk.answers(&[name(point)], limit, &mut |_| Ok(vec![measure(point)?]))?;
        let known = desk.asked.last().and_then(|asked| asked.value.as_ref());
        values.insert(point, known.and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN));
        Ok::<_, crate::Error>(answers.pop().unwrap_or(Answer::Skip))
    })?;
    Ok(Axis { turn: Some(turn), values, limit })
}
