//! Causal swaps: golden's layer or op inside the candidate (fix-one), the candidate's layer inside golden (break-one), by
//! what they do to the final distribution.

use std::collections::BTreeMap;

use karat_diff::logits::positions;
use karat_seam::{
    Block, Data, DataMut, Lane, NoTaps, Path, Recorder, Result as SeamResult, RowId, Site, Streams, Tap, Tensor,
    TensorMut, Visitor, Want,
};

use super::look::through;
use super::{Look, OpError};
use crate::lockstep::Lockstep;
use crate::{Result, align};

/// Ids whose overlap is measured; not used here.
const TOP_K: usize = 1;

/// Mean KL(golden || path) over all positions.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Swaps {
    /// The candidate as it is.
    pub(super) as_is: f64,
    /// The candidate with golden's op in the place of the suspected one; as it is where that can't be done.
    pub(super) op_fixed: f64,
    /// The candidate with golden's layer, by layer.
    pub(super) fixed: Vec<f64>,
    /// Golden with the candidate's layer, by layer.
    pub(super) alone: Vec<f64>,
}

/// Measures the suspected op and these layers.
pub(super) fn of(setup: &Lockstep<'_>, look: &Look<'_>, op: &OpError, layers: &[u16]) -> Result<Swaps> {
    let (golden, candidate) = (setup.golden, look.candidate.path);
    let replace = Replace { l: look.l, seq: look.seq, with: &op.golden, rows: &op.rows };
    let (as_is, fixed) = runs(candidate, golden, layers, Some(&replace))?;
    let (plain, broken) = runs(golden, candidate, layers, None)?;
    let reference = Logits::of(golden, &plain)?;
    let kl = |path: &dyn Path, x: &Option<Streams>| -> Result<f64> {
        match x {
            Some(x) => Logits::of(path, x)?.kl_from(&reference),
            None => Ok(f64::NAN),
        }
    };
    let as_is = kl(candidate, &Some(as_is))?;
    let mut fixed: Vec<f64> = fixed.iter().map(|x| kl(candidate, x)).collect::<Result<_>>()?;
    let op_fixed = fixed.pop().unwrap_or(as_is);
    let alone = broken.iter().map(|x| kl(golden, x)).collect::<Result<_>>()?;
    Ok(Swaps { as_is, op_fixed, fixed, alone })
}

/// Streams before the head of `path` as it is, and with each of `layers` taken from `other`; with `replace` once more at
/// the end, with these results of one op.
fn runs(
    path: &dyn Path,
    other: &dyn Path,
    layers: &[u16],
    replace: Option<&Replace<'_>>,
) -> Result<(Streams, Vec<Option<Streams>>)> {
    let mut plain = path.embed(&mut NoTaps)?;
    // `None` while it is the same as the plain one.
    let mut swapped: Vec<Option<Streams>> = vec![None; layers.len() + usize::from(replace.is_some())];
    for m in 0..path.blocks().layers {
        let layer = path.layer(m)?;
        let mut next: Vec<Option<Streams>> = vec![None; swapped.len()];
        for (slot, _) in next.iter_mut().zip(layers).filter(|(_, l)| **l == m) {
            *slot = taken(other, m, &plain)?;
        }
        let mut sees: Vec<Box<dyn Visitor + '_>> = vec![Box::new(NoTaps)];
        let mut inputs = vec![&plain];
        let mut places = Vec::new();
        for (i, own) in swapped.iter().enumerate() {
            let is_replaced = i == layers.len() && replace.is_some_and(|r| r.l == m);
            match own {
                Some(x) => inputs.push(x),
                None if is_replaced => inputs.push(&plain),
                None => continue,
            }
            sees.push(match replace.filter(|_| is_replaced) {
                Some(replace) => Box::new(*replace),
                None => Box::new(NoTaps),
            });
            places.push(i);
        }
        let mut lanes: Vec<Lane<'_>> = inputs.iter().zip(&mut sees).map(|(x, see)| Lane::new(x, &mut **see)).collect();
        layer.run(&mut lanes)?;
        let mut outs = lanes.into_iter().map(|lane| lane.out.map(|out| out.streams));
        let first = outs.next().flatten();
        for (i, out) in places.into_iter().zip(outs.collect::<Vec<_>>()) {
            next[i] = out;
        }
        swapped = next;
        plain = first.ok_or_else(|| karat_seam::Error::Unsupported { what: format!("layer {m}"), by: path.name() })?;
    }
    Ok((plain, swapped))
}

/// What another path's layer makes of streams, in their own row order.
fn taken(other: &dyn Path, l: u16, x: &Streams) -> Result<Option<Streams>> {
    let rows = other.embed(&mut NoTaps)?.rows;
    let Some(theirs) = align::streams(x, &rows) else { return Ok(None) };
    Ok(through(&*other.layer(l)?, &theirs)?.and_then(|out| align::streams(&out, &x.rows)))
}

/// Logits by sequence.
struct Logits {
    seen: Recorder,
    sequences: u32,
}

impl Logits {
    fn of(path: &dyn Path, x: &Streams) -> Result<Self> {
        let mut seen = Recorder::new(|site| site.tap == Tap::Logits);
        path.head(&mut [Lane::new(x, &mut seen)])?;
        Ok(Self { seen, sequences: path.requests().seqs.len() as u32 })
    }

    fn kl_from(&self, golden: &Self) -> Result<f64> {
        let site = Site { block: Block::Head, tap: Tap::Logits };
        let (mut sum, mut n) = (0.0, 0);
        for seq in 0..self.sequences {
            let (Some(ours), Some(theirs)) = (golden.seen.get(site, seq), self.seen.get(site, seq)) else { continue };
            let rows = align::common(&ours.rows, &theirs.rows);
            let gather =
                |r: &karat_seam::Recorded| align::gather(&r.rows, &r.tensor, &rows).map(std::borrow::Cow::into_owned);
            let (Some(a), Some(b)) = (gather(ours), gather(theirs)) else { continue };
            let all = positions(&a, &b, &vec![None; rows.len()], TOP_K)?;
            sum += all.iter().map(|p| p.kl).sum::<f64>();
            n += all.len();
        }
        Ok(if n == 0 { f64::NAN } else { sum / n as f64 })
    }
}

/// Puts an op's results, computed before, in the place of the path's own.
#[derive(Clone, Copy)]
struct Replace<'a> {
    l: u16,
    seq: u32,
    with: &'a BTreeMap<Tap, Tensor>,
    /// Token rows of the results.
    rows: &'a [RowId],
}

impl Visitor for Replace<'_> {
    fn want(&self, at: Site) -> Want {
        let is_mine = at == Site::layer(self.l, at.tap) && self.with.contains_key(&at.tap);
        if is_mine { Want::Write } else { Want::Skip }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> SeamResult<()> {
        let Some(with) = self.with.get(&at.tap) else { return Ok(()) };
        let width: usize = tensor.shape.iter().skip(1).product();
        let mut data = tensor.data;
        for (i, row) in rows.iter().enumerate().filter(|(_, r)| r.seq == self.seq) {
            // Entries lie by index, tokens as the op had them.
            let from = match at.tap.is_per_entry() {
                true => Some(row.pos as usize),
                false => self.rows.iter().position(|r| r.pos == row.pos),
            };
            let Some(from) = from.filter(|from| *from < with.rows()) else { continue };
            let n = width.min(with.width());
            let (to, from) = (i * width..i * width + n, from * with.width()..from * with.width() + n);
            match (&mut data, &with.data) {
                (DataMut::F32(to_values), Data::F32(v)) => to_values[to].copy_from_slice(&v[from]),
                (DataMut::I64(to_values), Data::I64(v)) => to_values[to].copy_from_slice(&v[from]),
                (DataMut::U8(to_values), Data::U8(v)) => to_values[to].copy_from_slice(&v[from]),
                _ => {}
            }
        }
        Ok(())
    }
}
