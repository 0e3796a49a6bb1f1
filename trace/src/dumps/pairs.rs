//! Which tensor of one dump is which of the other.

use std::collections::{BTreeMap, BTreeSet};

use karat_model::{Error, Result};

use super::{Dump, Origin};
use crate::import::map::{Map, Plan, Recipe, Side, builtin};
use crate::key::{Key, What};

/// A tensor of both sides.
#[derive(Debug, Clone)]
pub struct Matched {
    /// Name in reports.
    pub name: String,
    /// How A's is made.
    pub a: Recipe,
    /// How B's is made.
    pub b: Recipe,
    /// True for tensors of one name on both sides; false for those that a map made alike.
    pub by_name: bool,
}

/// Names of two dumps, matched.
#[derive(Debug, Clone, Default)]
pub struct Pairs {
    /// What both have, sorted by name.
    pub matched: Vec<Matched>,
    /// Names that only A has.
    pub only_a: Vec<String>,
    /// Names that only B has.
    pub only_b: Vec<String>,
    /// Built-in maps that were taken, for A and for B.
    pub maps: [Option<&'static str>; 2],
}

/// Matches tensors by equal name, then what is left by the taps that built-in maps make of it.
///
/// Two traces, or two places of safetensors, are matched by name alone. A trace's tensors are taps already; those of
/// its only sequence are matched without the sequence's name.
pub fn pair(a: &Dump, b: &Dump) -> Result<Pairs> {
    let mut out = Pairs::default();
    let in_b: BTreeSet<&str> = b.names().collect();
    let in_a: BTreeSet<&str> = a.names().collect();
    for name in in_a.intersection(&in_b) {
        let recipe = Recipe::plain(name);
        out.matched.push(Matched { name: (*name).into(), a: recipe.clone(), b: recipe, by_name: true });
    }
    let rest_a: Vec<&str> = in_a.difference(&in_b).copied().collect();
    let rest_b: Vec<&str> = in_b.difference(&in_a).copied().collect();
    let natives = [a.origin(), b.origin()].iter().all(|o| *o != Origin::Import);
    let mut used: [BTreeSet<String>; 2] = Default::default();
    if !(rest_a.is_empty() || rest_b.is_empty() || natives && a.origin() == b.origin()) {
        let (of_a, map_a) = taps(a, &rest_a, Side::A)?;
        let (mut of_b, map_b) = taps(b, &rest_b, Side::B)?;
        out.maps = [map_a, map_b];
        for (name, recipe) in of_a {
            let Some(other) = of_b.remove(&name) else { continue };
            used[0].extend(recipe.sources().map(String::from));
            used[1].extend(other.sources().map(String::from));
            out.matched.push(Matched { name, a: recipe, b: other, by_name: false });
        }
    }
    out.matched.sort_by(|x, y| x.name.cmp(&y.name));
    let left = |rest: Vec<&str>, used: &BTreeSet<String>| {
        rest.into_iter().filter(|n| !used.contains(*n)).map(String::from).collect()
    };
    (out.only_a, out.only_b) = (left(rest_a, &used[0]), left(rest_b, &used[1]));
    Ok(out)
}

/// Taps of what is left of a dump.
fn taps(dump: &Dump, names: &[&str], side: Side) -> Result<(BTreeMap<String, Recipe>, Option<&'static str>)> {
    if dump.origin() == Origin::Trace {
        let keys: Vec<(&str, Key)> = names.iter().filter_map(|n| Some((*n, n.parse::<Key>().ok()?))).collect();
        let sequences: BTreeSet<&str> = keys.iter().map(|(_, k)| k.sequence.as_str()).collect();
        let mut out = BTreeMap::new();
        if sequences.len() == 1 {
            for (name, key) in &keys {
                if let (What::Tap(site), 0) = (key.what, key.pass) {
                    out.insert(site.to_string(), Recipe::plain(name));
                }
            }
        }
        return Ok((out, None));
    }
    let mut out: BTreeMap<String, Recipe> = names.iter().map(|n| ((*n).to_string(), Recipe::plain(n))).collect();
    let found = builtin(side, &names.iter().copied())?;
    let map = found.as_ref().map(|b| b.name);
    // A tensor that is called as a tap is that tap, whatever a map says.
    for (name, recipe) in found.map(|b| b.plan.recipes).unwrap_or_default() {
        out.entry(name).or_insert(recipe);
    }
    Ok((out, map))
}

/// Matches tensors by the names that a mapping file gives; those without a rule keep their own.
///
/// Errors (input): two tensors that become one.
pub fn pair_mapped(a: &Dump, b: &Dump, map: &Map) -> Result<Pairs> {
    let side = |dump: &Dump, side: Side| -> Result<BTreeMap<String, Recipe>> {
        let plan = Plan::new(map, side, dump.names()).map_err(|e| e.at(map.label()).at(dump.label()))?;
        let mut out = plan.recipes;
        for name in plan.unmatched {
            if let Some(other) = out.insert(name.clone(), Recipe::plain(&name)) {
                let error = Error::input("a rule gives the name of another tensor")
                    .at(format!("tensor {name}"))
                    .at(dump.label());
                return Err(error.found(other.sources().next().unwrap_or_default()));
            }
        }
        Ok(out)
    };
    let (of_a, mut of_b) = (side(a, Side::A)?, side(b, Side::B)?);
    let mut out = Pairs::default();
    for (name, recipe) in of_a {
        match of_b.remove(&name) {
            Some(other) => {
                let mapped = |r: &Recipe| r.sources().ne([name.as_str()]);
                let by_name = !mapped(&recipe) && !mapped(&other);
                out.matched.push(Matched { name, a: recipe, b: other, by_name });
            }
            None => out.only_a.extend(named(&name, &recipe)),
        }
    }
    out.only_b = of_b.iter().flat_map(|(name, recipe)| named(name, recipe)).collect();
    Ok(out)
}

/// What is left, under the dump's own names and the name that the map gives.
fn named(name: &str, recipe: &Recipe) -> Vec<String> {
    recipe.sources().map(|s| if s == name { s.to_string() } else { format!("{s} (as {name})") }).collect()
}
