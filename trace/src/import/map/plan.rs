//! Which tensors of a dump become which tap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karat_model::{Error, Result};

use super::pattern::Captures;
use super::{Map, Rule, Side};

/// How one tensor is made.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub(super) rule: Option<Arc<Rule>>,
    pub(super) parts: Vec<Part>,
    /// Index along the axis that the rule takes apart.
    pub(super) slice: Option<usize>,
}

/// A tensor of the dump in it.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) chunk: Order,
    pub(super) shard: Order,
    pub(super) words: Captures,
}

/// Numbers in the order of numbers, texts after them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    Number(u64),
    Text(String),
}

impl Order {
    fn of(word: Option<&String>) -> Self {
        word.map_or(Self::Number(0), |text| text.parse().map_or_else(|_| Self::Text(text.clone()), Self::Number))
    }
}

impl Recipe {
    /// A tensor as it is.
    pub fn plain(name: &str) -> Self {
        let part = Part { name: name.into(), chunk: Order::Number(0), shard: Order::Number(0), words: Captures::new() };
        Self { rule: None, parts: vec![part], slice: None }
    }

    /// Names of the dump's tensors that it is made of.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.name.as_str())
    }
}

/// A dump under a map.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Recipes by target name.
    pub recipes: BTreeMap<String, Recipe>,
    /// Tensors that no rule fits.
    pub unmatched: Vec<String>,
}

impl Plan {
    /// Applies a map to the names of a dump.
    ///
    /// Errors (input): two tensors that would become one without a rule to join them.
    pub fn new<'n>(map: &Map, side: Side, names: impl Iterator<Item = &'n str>) -> Result<Self> {
        let rules: Vec<Arc<Rule>> = map.rules().iter().cloned().map(Arc::new).collect();
        let mut found: Vec<Vec<(String, Captures)>> = vec![Vec::new(); rules.len()];
        let mut out = Self::default();
        let mut positions = BTreeSet::new();
        for name in names {
            let mut hit = rules.iter().enumerate().filter(|(_, r)| r.side.is_none_or(|s| s == side));
            match hit.find_map(|(i, r)| r.from.fits(name).map(|words| (i, words))) {
                Some((i, words)) => found[i].push((name.to_string(), words)),
                None => out.unmatched.push(name.to_string()),
            }
        }
        for (rule, tensors) in rules.iter().zip(found) {
            let last = tensors.iter().filter_map(|(_, words)| layer(words)).max();
            for (name, words) in tensors {
                if let Some((_, _, Some(pattern))) = &rule.chunks {
                    positions.extend(pattern.fill(&words));
                }
                for (target, slice) in targets(rule, &words, last) {
                    out.add(rule, &target, slice, &name, &words)?;
                }
            }
        }
        // Positions have been used, even where no rule is for them.
        out.unmatched.retain(|name| !positions.contains(name));
        Ok(out)
    }

    fn add(
        &mut self,
        rule: &Arc<Rule>,
        target: &str,
        slice: Option<usize>,
        name: &str,
        words: &Captures,
    ) -> Result<()> {
        let chunk = Order::of(rule.chunks.as_ref().and_then(|(over, ..)| words.get(over)));
        let shard = Order::of(rule.shard.as_ref().and_then(|(over, ..)| words.get(over)));
        let part = Part { name: name.into(), chunk, shard, words: words.clone() };
        let new = || Recipe { rule: Some(Arc::clone(rule)), parts: Vec::new(), slice };
        let recipe = self.recipes.entry(target.to_string()).or_insert_with(new);
        let same_rule = recipe.rule.as_ref().is_some_and(|r| Arc::ptr_eq(r, rule)) && recipe.slice == slice;
        let twin = recipe.parts.iter().find(|p| !same_rule || (&p.chunk, &p.shard) == (&part.chunk, &part.shard));
        if let Some(twin) = twin {
            return Err(Error::input("two tensors become one")
                .at(format!("tensor {target}"))
                .found(format!("{} and {name}", twin.name))
                .hint("join them with `shard` or `chunks`, or let `to` tell them apart"));
        }
        recipe.parts.push(part);
        recipe.parts.sort_by(|a, b| (&a.chunk, &a.shard).cmp(&(&b.chunk, &b.shard)));
        Ok(())
    }
}

fn layer(words: &Captures) -> Option<i64> {
    words.get("layer")?.parse().ok()
}

/// Target names of a tensor: one, or one a layer of an axis that is taken apart. A layer number that the offset makes
/// negative has none, and the tensor is then a target under its own name.
fn targets(rule: &Rule, words: &Captures, last: Option<i64>) -> Vec<(String, Option<usize>)> {
    let with = |l: i64| {
        let mut words = words.clone();
        words.insert("layer".into(), l.to_string());
        rule.to.fill(&words)
    };
    if let Some((_, layers)) = &rule.unstack {
        let one = |(i, l): (usize, &u16)| with(i64::from(*l)).map(|name| (name, Some(i)));
        return layers.iter().enumerate().filter_map(one).collect();
    }
    match (layer(words), &rule.last) {
        (Some(l), Some(name)) if Some(l) == last => vec![(name.clone(), None)],
        (Some(l), _) if l + rule.layer_offset >= 0 => {
            with(l + rule.layer_offset).map(|n| (n, None)).into_iter().collect()
        }
        (Some(_), _) => rule.from.fill(words).map(|n| (n, None)).into_iter().collect(),
        (None, _) => rule.to.fill(words).map(|n| (n, None)).into_iter().collect(),
    }
}
