//! The smallest set that is bad, where several elements may have to come together.

use std::collections::BTreeMap;

use super::{Answer, Turn, first_bad};

/// What a search over sets came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Minimal {
    /// All elements together are good: there is nothing to find.
    AllGood,
    /// It is bad without any element.
    BadWithout,
    /// All elements together, or none of them, cannot be tested.
    Untested,
    /// A bad set.
    Set {
        /// Its elements, ascending.
        elements: Vec<usize>,
        /// Elements whose removal could not be tested; without any, no element can be left out.
        unsure: Vec<usize>,
    },
}

/// A batch of sets in, their answers out: sets of one batch can share a pass.
pub type Ask<'a, E> = dyn FnMut(&[Vec<usize>]) -> Result<Vec<Answer>, E> + 'a;

/// Finds a bad set of `0..n` from which no element can be left out (delta debugging's 1-minimal set).
///
/// First by halves: the shortest bad beginning `0..k` ends in an element that is needed; with that one held, the shortest
/// beginning that is bad beside it ends in the next, until what is held is bad alone. Each element costs about log2(n)
/// questions, so that a pair of 8 is found in 11 at most, the two ends and the proof that each is needed included. Where
/// the answers contradict that (an element hides what others do, or sets are skipped), `ddmin` goes on from the smallest
/// bad set known. No set is asked twice.
///
/// # Errors
/// Those of `ask`.
pub fn minimal<E>(n: usize, ask: &mut Ask<'_, E>) -> Result<Minimal, E> {
    let mut book = Book { known: BTreeMap::new(), ask };
    let all: Vec<usize> = (0..n).collect();
    let ends = book.all(&[all.clone(), Vec::new()])?;
    match (ends[0], ends[1]) {
        (Answer::Good, _) => return Ok(Minimal::AllGood),
        (_, Answer::Bad) => return Ok(Minimal::BadWithout),
        (Answer::Skip, _) | (_, Answer::Skip) => return Ok(Minimal::Untested),
        (Answer::Bad, Answer::Good) => {}
    }
    let mut elements = by_halves(n, &mut book)?;
    loop {
        let without = leave_one_out(&elements);
        let answers = book.all(&without)?;
        match answers.iter().position(|a| *a == Answer::Bad) {
            Some(smaller) => elements = ddmin(without[smaller].clone(), &mut book)?,
            None => {
                let skipped = answers.iter().zip(&elements).filter(|(a, _)| **a == Answer::Skip);
                let unsure = skipped.map(|(_, e)| *e).collect();
                return Ok(Minimal::Set { elements, unsure });
            }
        }
    }
}

/// Answers that are known, and who gives the others.
struct Book<'a, 'b, E> {
    known: BTreeMap<Vec<usize>, Answer>,
    ask: &'b mut Ask<'a, E>,
}

impl<E> Book<'_, '_, E> {
    fn all(&mut self, sets: &[Vec<usize>]) -> Result<Vec<Answer>, E> {
        let mut new: Vec<Vec<usize>> = Vec::new();
        for set in sets {
            if !self.known.contains_key(set) && !new.contains(set) {
                new.push(set.clone());
            }
        }
        if !new.is_empty() {
            let answers = (self.ask)(&new)?;
            self.known.extend(new.into_iter().zip(answers));
        }
        // An answer that was not given is one that cannot be had.
        Ok(sets.iter().map(|set| self.known.get(set).copied().unwrap_or(Answer::Skip)).collect())
    }

    fn one(&mut self, set: Vec<usize>) -> Result<Answer, E> {
        Ok(self.all(&[set])?[0])
    }

    /// The smallest set that is known to be bad.
    fn smallest(&self) -> Option<&Vec<usize>> {
        self.known.iter().filter(|(_, a)| **a == Answer::Bad).map(|(set, _)| set).min_by_key(|set| set.len())
    }
}

/// Element by element; the smallest bad set known, at the end or where a skip hides the next element.
fn by_halves<E>(n: usize, book: &mut Book<'_, '_, E>) -> Result<Vec<usize>, E> {
    let (mut held, mut end): (Vec<usize>, usize) = (Vec::new(), n);
    let with = |held: &[usize], k: usize| {
        let mut set: Vec<usize> = (0..k).chain(held.iter().copied()).collect();
        set.sort_unstable();
        set
    };
    // Here `held` with `0..end` is bad, and every element of `held` lies behind `end`.
    loop {
        match book.one(with(&held, 0))? {
            Answer::Bad => return Ok(with(&held, 0)),
            // That no beginning is bad with what is held contradicts what was asked before.
            _ if end == 0 => break,
            Answer::Good | Answer::Skip => {}
        }
        match first_bad(end, |k| book.one(with(&held, k)))? {
            Turn::At(k) => {
                held.push(k - 1);
                end = k - 1;
            }
            Turn::Among(_) => break,
        }
    }
    let smallest = book.smallest().cloned().unwrap_or_else(|| (0..n).collect());
    ddmin(smallest, book)
}

fn leave_one_out(set: &[usize]) -> Vec<Vec<usize>> {
    let without = |out: usize| set.iter().enumerate().filter(|(i, _)| *i != out).map(|(_, e)| *e).collect();
    (0..set.len()).map(without).collect()
}

/// Zeller and Hildebrandt's `ddmin` from a bad set: parts, then what is left without a part, ever finer. What is skipped
/// counts as not bad.
fn ddmin<E>(mut set: Vec<usize>, book: &mut Book<'_, '_, E>) -> Result<Vec<usize>, E> {
    let mut parts = 2;
    while set.len() >= 2 {
        let size = set.len().div_ceil(parts.min(set.len()));
        let chunks: Vec<Vec<usize>> = set.chunks(size).map(<[usize]>::to_vec).collect();
        let mut smaller = None;
        for chunk in &chunks {
            if book.one(chunk.clone())? == Answer::Bad {
                smaller = Some((chunk.clone(), 2));
                break;
            }
        }
        if smaller.is_none() && chunks.len() > 2 {
            for chunk in &chunks {
                let rest: Vec<usize> = set.iter().copied().filter(|e| !chunk.contains(e)).collect();
                if book.one(rest.clone())? == Answer::Bad {
                    smaller = Some((rest, (chunks.len() - 1).max(2)));
                    break;
                }
            }
        }
        match smaller {
            Some((next, next_parts)) => (set, parts) = (next, next_parts),
            None if size == 1 => break,
            None => parts = (2 * chunks.len()).min(set.len()),
        }
    }
    Ok(set)
}
