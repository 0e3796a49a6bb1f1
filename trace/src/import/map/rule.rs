//! One rule of a mapping file, read and checked.

use std::collections::BTreeMap;

use karat_model::{Error, Result};
use serde::Deserialize;

use super::Side;
use super::pattern::Pattern;
use crate::Dtype;

/// A rule as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleText {
    from: String,
    to: String,
    side: Option<Side>,
    #[serde(default)]
    layer_offset: i64,
    last: Option<String>,
    axes: Option<String>,
    shard: Option<ShardText>,
    chunks: Option<ChunksText>,
    #[serde(default)]
    keep: BTreeMap<String, [usize; 2]>,
    #[serde(default)]
    select: BTreeMap<String, usize>,
    unstack: Option<UnstackText>,
    order: Option<String>,
    reshape: Option<Vec<i64>>,
    cast: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShardText {
    over: String,
    join: Join,
    axis: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChunksText {
    over: String,
    axis: String,
    positions: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnstackText {
    axis: String,
    layers: Vec<u16>,
}

/// How the shards of a tensor become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Join {
    /// One behind the other along an axis.
    Concat,
    /// Added up in f64, rounded once.
    Sum,
    /// All are the same; a difference is reported, never averaged.
    Replica,
}

/// A rule. Axes are numbers here; those after the joins count in the tensor as it then is.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) from: Pattern,
    pub(crate) to: Pattern,
    pub(crate) side: Option<Side>,
    pub(crate) layer_offset: i64,
    pub(crate) last: Option<String>,
    /// Number of named axes, if they are named.
    pub(crate) rank: Option<usize>,
    pub(crate) shard: Option<(String, Join, usize)>,
    pub(crate) chunks: Option<(String, usize, Option<Pattern>)>,
    pub(crate) keep: Vec<(usize, [usize; 2])>,
    /// Axis and index, the last axis first.
    pub(crate) select: Vec<(usize, usize)>,
    pub(crate) unstack: Option<(usize, Vec<u16>)>,
    /// Axes in their new order, and those to leave out (the last first), counted before `select` and `unstack`.
    pub(crate) order: Option<Vec<usize>>,
    pub(crate) reshape: Option<Vec<i64>>,
    pub(crate) cast: Option<Dtype>,
}

impl Rule {
    pub(super) fn new(text: &RuleText) -> Result<Self> {
        let bad = |what: &str| Error::input(what).at(format!("rule for {:?}", text.from));
        let axes: Vec<&str> = text.axes.as_deref().unwrap_or_default().split_whitespace().collect();
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != axes.len() {
            return Err(bad("two axes have one name").found(axes.join(" ")));
        }
        let axis = |name: &str| {
            let found = axes.iter().position(|a| *a == name);
            found.ok_or_else(|| {
                bad("axis isn't named in `axes`").expected(format!("one of {:?}", axes.join(" "))).found(name)
            })
        };
        let from = Pattern::new(&text.from)?;
        let to = Pattern::new(&text.to)?;
        let over = |word: &str| {
            if !from.has(word) {
                return Err(bad("`over` names no word of `from`").found(word));
            }
            if to.has(word) {
                Err(bad("what is joined over can't be in `to`").found(word))
            } else {
                Ok(word.to_string())
            }
        };
        let shard = match &text.shard {
            None => None,
            Some(s) => {
                let along = match (s.join, &s.axis) {
                    (Join::Concat, Some(name)) => axis(name)?,
                    (Join::Concat, None) => return Err(bad("shards that are put behind each other need an `axis`")),
                    (_, None) => 0,
                    (_, Some(_)) => return Err(bad("only `concat` has an `axis`")),
                };
                Some((over(&s.over)?, s.join, along))
            }
        };
        let chunks = match &text.chunks {
            None => None,
            Some(c) => {
                let positions = c.positions.as_deref().map(Pattern::new).transpose()?;
                Some((over(&c.over)?, axis(&c.axis)?, positions))
            }
        };
        let unstack = match &text.unstack {
            None => None,
            Some(u) => Some((axis(&u.axis)?, u.layers.clone())),
        };
        for word in to.words() {
            if !(from.has(word) || word == "layer" && unstack.is_some()) {
                return Err(bad("`to` has a word that `from` doesn't have").found(word));
            }
        }
        let mut keep = Vec::new();
        for (name, range) in &text.keep {
            keep.push((axis(name)?, *range));
        }
        let mut select = Vec::new();
        for (name, index) in &text.select {
            select.push((axis(name)?, *index));
        }
        select.sort_unstable_by(|a, b| b.cmp(a));
        let order = match &text.order {
            None => None,
            Some(order) => Some(order.split_whitespace().map(axis).collect::<Result<Vec<_>>>()?),
        };
        if let Some(order) = &order {
            let gone = |a: &usize| {
                select.iter().any(|(axis, _)| axis == a) || unstack.as_ref().is_some_and(|(axis, _)| axis == a)
            };
            let mut once = order.clone();
            once.sort_unstable();
            once.dedup();
            if once.len() != order.len() || order.iter().any(gone) {
                return Err(bad("`order` names an axis twice, or one that is selected away"));
            }
        }
        let cast = match text.cast.as_deref() {
            None => None,
            Some("F64") => Some(Dtype::F64),
            Some("F32") => Some(Dtype::F32),
            Some("BF16") => Some(Dtype::Bf16),
            Some("F16") => Some(Dtype::F16),
            Some(other) => return Err(bad("unknown `cast`").expected("F64, F32, BF16 or F16").found(other)),
        };
        Ok(Self {
            side: text.side,
            layer_offset: text.layer_offset,
            last: text.last.clone(),
            rank: text.axes.is_some().then_some(axes.len()),
            reshape: text.reshape.clone(),
            from,
            to,
            shard,
            chunks,
            keep,
            select,
            unstack,
            order,
            cast,
        })
    }
}
