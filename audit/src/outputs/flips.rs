//! What a changed decision would do, where noise may have changed it.
//!
//! An entry or expert is *open* where its score is so near to the last one chosen and the best one left out that noise can
//! exchange them. What it adds to its row when it is in is known from golden; what lies in the span of these additions says
//! nothing about the candidate, and is taken out.

use std::collections::BTreeMap;

use karat_seam::{Op, RowId, Tap, Tensor};

use super::linear::{basis, remove};
use super::unmix::{Side, wide};
use crate::decisions::router_score;
use crate::{Result, align};

/// A score so many standard deviations of the difference of two noises from the boundary is never exchanged.
const SIGMAS: f64 = 4.0;
/// Decisions of a row that are looked at, the nearest: of entries, where what is open beyond them is held against the candidate
/// (rows with more than 12 are usual after a hundred tokens), and of experts, each of which costs a pass over all experts.
const ENTRIES: usize = 24;
const EXPERTS: usize = 4;

/// Noise of the scores that decide, by row and score.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Scores {
    /// Of index scores, relative to the RMS of the row.
    pub(super) entries: Vec<Vec<f64>>,
    /// Of what experts are chosen by.
    pub(super) experts: Vec<Vec<f64>>,
}

/// The noise of a score; none where it was not measured.
fn of_score(noise: &[Vec<f64>], s: usize, i: usize) -> f64 {
    noise.get(s).and_then(|row| row.get(i)).copied().unwrap_or(0.0)
}

/// Candidates of a choice whose place noise may change: `chosen` of `scores`, the nearest to the boundary first.
pub(super) fn open(
    scores: &[f64],
    is_chosen: impl Fn(usize) -> bool,
    noise: impl Fn(usize) -> f64,
    most: usize,
) -> Vec<usize> {
    let finite = |chosen: bool| {
        let is_chosen = &is_chosen;
        (0..scores.len()).filter(move |i| is_chosen(*i) == chosen && scores[*i].is_finite())
    };
    let last = finite(true).min_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    let best = finite(false).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    let (Some(last), Some(best)) = (last, best) else { return Vec::new() };
    let far = |i: &usize| (scores[*i] - scores[last]).abs().min((scores[*i] - scores[best]).abs());
    // Across the boundary: a chosen one is as far as from the best that is left out.
    let across = |i: &usize| if is_chosen(*i) { scores[*i] - scores[best] } else { scores[last] - scores[*i] };
    let other = |i: &usize| if is_chosen(*i) { best } else { last };
    let is_near = |i: &usize| across(i) <= SIGMAS * noise(*i).hypot(noise(other(i)));
    let mut near: Vec<usize> = (0..scores.len()).filter(|i| scores[*i].is_finite() && is_near(i)).collect();
    near.sort_by(|a, b| across(a).total_cmp(&across(b)).then(far(a).total_cmp(&far(b))));
    near.truncate(most);
    near
}

/// Chosen entries of a row whose own share is told: so many at most, the surest first.
const SHARES: usize = 16;

/// What entries do to attention's result, by row.
pub(super) struct Entries {
    /// A basis of what open ones would change.
    pub(super) open: Vec<Vec<Vec<f64>>>,
    /// Chosen ones that are not open, each with what its absence changes, less what open ones would.
    pub(super) shares: Vec<Vec<(usize, Vec<f64>)>>,
}

/// Entries of a layer that has any. In an HCA layer no score decides, and none is open.
pub(super) fn entries(side: &Side<'_>) -> Result<Option<Entries>> {
    let Some(mask) = side.tap(Tap::AttnSelected) else { return Ok(None) };
    let (total, n) = (mask.width(), side.rows.len());
    let Ok(chosen) = mask.as_u8("attn.selected") else { return Ok(None) };
    let scores = match side.facts().selects_entries {
        true => match side.tap(Tap::AttnIndexScore).and_then(wide).filter(|scores| scores.len() == chosen.len()) {
            Some(scores) => Some(scores),
            None => return Ok(None),
        },
        false => None,
    };
    let of = |s: usize| {
        let chosen = &chosen[s * total..(s + 1) * total];
        let mut sure: Vec<usize> = (0..total).filter(|i| chosen[*i] != 0).rev().collect();
        let Some(scores) = scores.as_ref().map(|scores| &scores[s * total..(s + 1) * total]) else {
            sure.truncate(SHARES);
            return (Vec::new(), sure);
        };
        let (sum, n) = scores.iter().filter(|v| v.is_finite()).fold((0.0, 0u32), |(s, n), v| (s + v * v, n + 1));
        let rms = (sum / f64::from(n.max(1))).sqrt();
        let noise = |i: usize| rms * of_score(&side.scores().entries, s, i);
        let open = open(scores, |i| chosen[i] != 0, noise, ENTRIES);
        sure.retain(|i| !open.contains(i));
        sure.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        sure.truncate(SHARES);
        (open, sure)
    };
    let (open, sure): (Vec<Vec<usize>>, Vec<Vec<usize>>) = (0..n).map(of).unzip();
    let (Some(changes), Some(shares)) = (changes(side, mask, &open)?, changes(side, mask, &sure)?) else {
        return Ok(None);
    };
    let open: Vec<Vec<Vec<f64>>> = changes.into_iter().map(basis).collect();
    let shares = sure.into_iter().zip(shares).zip(&open).map(|((sure, mut shares), basis)| {
        shares.iter_mut().for_each(|share| remove(share, basis));
        sure.into_iter().zip(shares).collect()
    });
    Ok(Some(Entries { shares: shares.collect(), open }))
}

/// What attention's result changes by when one entry comes in or goes, for each of `which`, by row.
fn changes(side: &Side<'_>, mask: &Tensor, which: &[Vec<usize>]) -> Result<Option<Vec<Vec<Vec<f64>>>>> {
    let (total, d) = (mask.width(), side.width());
    let (Ok(chosen), Some(attn)) = (mask.as_u8("attn.selected"), side.tap(Tap::AttnOut).and_then(wide)) else {
        return Ok(None);
    };
    let mut out: Vec<Vec<Vec<f64>>> = vec![Vec::new(); which.len()];
    // One of each row at a time: rows don't meet in attention.
    for n in 0..which.iter().map(Vec::len).max().unwrap_or(0) {
        let mut other = chosen.to_vec();
        for (s, which) in which.iter().enumerate() {
            which.get(n).iter().for_each(|i| other[s * total + **i] ^= 1);
        }
        let made = BTreeMap::from([(Tap::AttnSelected, Tensor::u8(mask.shape.clone(), other))]);
        let Some(made) = side.run(Op::Attend, &made)? else { return Ok(None) };
        let Some((_, o)) = made.into_iter().find(|(tap, _)| *tap == Tap::AttnO) else { return Ok(None) };
        let Some(with) = side.project(o)? else { return Ok(None) };
        for (s, out) in out.iter_mut().enumerate().filter(|(s, _)| n < which[*s].len()) {
            out.push((s * d..(s + 1) * d).map(|i| with[i] - attn[i]).collect());
        }
    }
    Ok(Some(out))
}

/// By row: a basis of what open experts would change in the experts' sum. `made`: golden's second half.
pub(super) fn experts(side: &Side<'_>, made: &BTreeMap<Tap, Tensor>) -> Result<Option<Vec<Vec<Vec<f64>>>>> {
    let (facts, d) = (side.facts(), side.width());
    let mut changes: Vec<Vec<Vec<f64>>> = vec![Vec::new(); side.rows.len()];
    if facts.hash_routing {
        return Ok(Some(changes));
    }
    let taps = [Tap::FfnRouterLogits, Tap::FfnIdx, Tap::FfnWt, Tap::FfnIn].map(|tap| made.get(&tap));
    let [Some(logits), Some(idx), Some(wt), Some(x)] = taps else { return Ok(None) };
    let (Some(scores), Ok(chosen), Ok(weights)) = (wide(logits), idx.as_i64("ffn.idx"), wt.as_f32("ffn.wt")) else {
        return Ok(None);
    };
    let (all, k) = (logits.width().max(1), idx.width().max(1));
    let bias = |e: usize| f64::from(facts.bias.get(e).copied().unwrap_or(0.0));
    let scores: Vec<f64> = scores.iter().enumerate().map(|(i, v)| router_score(*v) + bias(i % all)).collect();
    let of_scores = |s: usize| {
        let chosen = &chosen[s * k..(s + 1) * k];
        open(
            &scores[s * all..(s + 1) * all],
            |e| chosen.contains(&(e as i64)),
            |e| of_score(&side.scores().experts, s, e),
            EXPERTS,
        )
    };
    let open: Vec<Vec<usize>> = (0..side.rows.len()).map(of_scores).collect();
    let most = open.iter().map(Vec::len).max().unwrap_or(0);
    let which: Vec<usize> = (0..open.len()).filter(|s| !open[*s].is_empty()).collect();
    let rows: Vec<RowId> = which.iter().map(|s| side.rows[*s]).collect();
    let Some(x) = align::gather(&side.rows, x, &rows) else { return Ok(None) };
    // An expert alone with weight 1, one of each row at a time, and last those whose place is certain: a weight is a
    // share of the sum over all chosen ones, so an exchange scales them.
    for n in 0..=most {
        let (mut all_idx, mut all_wt) = (Vec::new(), Vec::new());
        for s in which.iter().copied() {
            let (open, weights) = (&open[s], &weights[s * k..(s + 1) * k]);
            let (mut idx, mut wt) = (chosen[s * k..(s + 1) * k].to_vec(), vec![0.0; k]);
            if n == most {
                let certain = |e: i64| !open.contains(&(e as usize));
                wt.copy_from_slice(weights);
                wt.iter_mut().zip(idx.iter()).filter(|(_, e)| !certain(**e)).for_each(|(w, _)| *w = 0.0);
            } else if let Some(e) = open.get(n) {
                let slot = idx.iter().position(|i| *i == *e as i64).unwrap_or(0);
                idx[slot] = *e as i64;
                wt[slot] = 1.0;
            }
            all_idx.extend(idx);
            all_wt.extend(wt);
        }
        if which.is_empty() {
            break;
        }
        let operands = BTreeMap::from([
            (Tap::FfnIn, x.clone().into_owned()),
            (Tap::FfnIdx, Tensor::i64(vec![rows.len(), k], all_idx)),
            (Tap::FfnWt, Tensor::f32(vec![rows.len(), k], all_wt)),
        ]);
        let Some(made) = side.run_rows(Op::Experts, &operands, &rows)? else { return Ok(None) };
        let Some(sum) = made.iter().find(|(tap, _)| *tap == Tap::FfnRouted).and_then(|(_, sum)| wide(sum)) else {
            return Ok(None);
        };
        for (row, s) in which.iter().copied().enumerate() {
            if n < open[s].len() || n == most {
                changes[s].push(sum[row * d..(row + 1) * d].to_vec());
            }
        }
    }
    Ok(Some(changes.into_iter().map(basis).collect()))
}
