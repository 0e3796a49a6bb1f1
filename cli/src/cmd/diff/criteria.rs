//! What passes: conditions over rel, max_abs and mean_abs for names that fit a pattern, as in SGLang's comparator.

#[cfg(test)]
mod tests;

use super::pattern::Pattern;
use crate::failure::{Failure, Result};

/// How far a tensor is from the other side's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Distance {
    /// 1 - 2<x,y>/(|x|^2+|y|^2).
    pub(crate) rel: f64,
    /// Largest difference.
    pub(crate) max_abs: f64,
    /// Mean difference.
    pub(crate) mean_abs: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Condition {
    Compare { of: usize, less: bool, equal: bool, limit: f64 },
    And(Vec<Condition>),
    Or(Vec<Condition>),
}

/// Rules in order; the first that fits a name counts.
#[derive(Debug, Clone)]
pub(crate) struct Criteria {
    rules: Vec<(Pattern, Condition)>,
}

impl Criteria {
    /// Reads the values of `--diff-threshold`; none without them. Errors (usage): another number of values, a condition
    /// that isn't read.
    pub(crate) fn new(values: &[String]) -> Result<Option<Self>> {
        if values.is_empty() {
            return Ok(None);
        }
        if let [one] = values {
            let limit: f64 = one.parse().map_err(|_| {
                Failure::usage(format!(
                    "--diff-threshold {one:?} is no number; pairs of a pattern and a condition are read too"
                ))
            })?;
            let rule = (Pattern::new(".*")?, Condition::Compare { of: 0, less: true, equal: true, limit });
            return Ok(Some(Self { rules: vec![rule] }));
        }
        let (pairs, rest) = values.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Failure::usage("--diff-threshold takes one number, or pairs of a pattern and a condition"));
        }
        let rule = |[pattern, condition]: &[String; 2]| Ok((Pattern::new(pattern)?, read(condition)?));
        Ok(Some(Self { rules: pairs.iter().map(rule).collect::<Result<_>>()? }))
    }

    /// True when a tensor of this name may be so far off. Errors (usage): no pattern fits the name.
    pub(crate) fn pass(&self, name: &str, d: Distance) -> Result<bool> {
        let rule = self.rules.iter().find(|(pattern, _)| pattern.fits(name));
        let (_, condition) = rule.ok_or_else(|| {
            Failure::usage(format!(
                "tensor {name} fits no pattern of --diff-threshold; add '.*' with a condition for the rest"
            ))
        })?;
        Ok(condition.holds(d))
    }
}

const NAMES: [&str; 3] = ["rel", "max_abs", "mean_abs"];

impl Condition {
    fn holds(&self, d: Distance) -> bool {
        match self {
            Self::Compare { of, less, equal, limit } => {
                let value = [d.rel, d.max_abs, d.mean_abs][*of];
                // A value that is no number fits no limit.
                if value == *limit {
                    *equal
                } else if *less {
                    value < *limit
                } else {
                    value > *limit
                }
            }
            Self::And(all) => all.iter().all(|c| c.holds(d)),
            Self::Or(any) => any.iter().any(|c| c.holds(d)),
        }
    }
}

/// Reads `rel <= 0.0085 or (max_abs < 1e-3 and mean_abs < 1e-5)`.
fn read(text: &str) -> Result<Condition> {
    let wrong = || Failure::usage(format!("condition {text:?} isn't read; e.g. 'rel <= 0.0085 or max_abs <= 1e-3'"));
    let mut spaced = String::new();
    for c in text.chars() {
        match c {
            '(' | ')' => spaced.extend([' ', c, ' ']),
            '<' | '>' => spaced.extend([' ', c]),
            '=' => spaced.extend([c, ' ']),
            c => spaced.push(c),
        }
    }
    let spaced = spaced.replace('<', "< ").replace('>', "> ").replace("< =", "<=").replace("> =", ">=");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let condition = either(&words, &mut at, 0).ok_or_else(wrong)?;
    if at == words.len() { Ok(condition) } else { Err(wrong()) }
}

fn either(words: &[&str], at: &mut usize, depth: usize) -> Option<Condition> {
    let mut any = vec![both(words, at, depth)?];
    while words.get(*at) == Some(&"or") {
        *at += 1;
        any.push(both(words, at, depth)?);
    }
    Some(if any.len() == 1 { any.remove(0) } else { Condition::Or(any) })
}

fn both(words: &[&str], at: &mut usize, depth: usize) -> Option<Condition> {
    let mut all = vec![compare(words, at, depth)?];
    while words.get(*at) == Some(&"and") {
        *at += 1;
        all.push(compare(words, at, depth)?);
    }
    Some(if all.len() == 1 { all.remove(0) } else { Condition::And(all) })
}

fn compare(words: &[&str], at: &mut usize, depth: usize) -> Option<Condition> {
    if words.get(*at) == Some(&"(") {
        if depth > 32 {
            return None;
        }
        *at += 1;
        let inner = either(words, at, depth + 1)?;
        let closes = words.get(*at) == Some(&")");
        *at += 1;
        return closes.then_some(inner);
    }
    let [name, sign, limit] = *words.get(*at..)?.first_chunk::<3>()?;
    *at += 3;
    let of = NAMES.iter().position(|n| *n == name)?;
    let (less, equal) = match sign {
        "<" => (true, false),
        "<=" => (true, true),
        ">" => (false, false),
        ">=" => (false, true),
        _ => return None,
    };
    Some(Condition::Compare { of, less, equal, limit: limit.parse().ok()? })
}
