//! What a speed patch errs by itself: golden's ops on the operands that the patched ops were given.
//!
//! The rows of taps.csv compare a whole layer, so the taps behind a patched op also carry what stock's formats did to
//! its operands. A claim such as "6.7e-3" is about the op alone, and this is the number to hold it against.

use std::collections::BTreeMap;

use karat_seam::{
    Data, Error as SeamError, Layer, OpSpec, Phase, Recorded, Recorder, RowId, Site, Streams, Tap, Tensor,
};

use crate::candidate::Candidate;
use crate::lockstep::follows_slots;
use crate::predict::PatchSpec;
use crate::{Result, align};

/// Largest rel-L2 over the results of the patch's ops in layer `l`, over one sequence's rows of the phases in which the
/// patch acts. Several ops of one patch are one chain: only what leaves it counts. `x` are the streams that enter the
/// candidate's layer. `None` where the layer has no such op or the candidate did not show its operands.
pub(crate) fn of(
    candidate: &Candidate<'_>,
    patch: &PatchSpec,
    golden: &dyn Layer,
    (l, seq): (u16, u32),
    x: &Streams,
    seen: &Recorder,
) -> Result<Option<f64>> {
    let mut made: BTreeMap<Tap, Tensor> = BTreeMap::new();
    let chain = OpSpec::graph().iter().filter(|spec| patch.ops.contains(&spec.op) && golden.has_op(spec.op));
    for spec in chain.clone() {
        let Some((operands, rows)) = operands(spec, golden, &made, (l, seq), x, seen) else { return Ok(None) };
        match golden.op(spec.op, &operands, &rows) {
            Ok(written) => made.extend(written),
            Err(SeamError::Unsupported { .. }) => return Ok(None),
            Err(other) => return Err(other.into()),
        }
    }
    let inner = |tap: &Tap| chain.clone().any(|spec| spec.reads.contains(tap) && *tap != Tap::Out);
    let ends = made.iter().filter(|(tap, _)| !inner(tap) && !tap.is_discrete() && !tap.is_per_entry());
    let moved = moved(made.get(&Tap::FfnIdx), seen.get(Site::layer(l, Tap::FfnIdx), seq));
    let mut worst: Option<f64> = None;
    for (tap, golden) in ends {
        let Some(theirs) = seen.get(Site::layer(l, *tap), seq) else { continue };
        let acts = |row: &RowId| {
            patch.phases.contains(&phase(candidate, *row)) && !(follows_slots(*tap) && moved.contains(row))
        };
        let error = rel_l2(golden, &theirs.tensor, &theirs.rows, &acts);
        // A NaN must not vanish in a maximum.
        worst = match (worst, error) {
            (Some(a), Some(b)) => Some(if a.is_nan() || a > b { a } else { b }),
            (a, b) => a.or(b),
        };
    }
    Ok(worst)
}

/// Rows that chose other experts than golden does on the same operands: their slots hold other experts' values.
pub(crate) fn moved(golden: Option<&Tensor>, theirs: Option<&Recorded>) -> Vec<RowId> {
    let (Some(golden), Some(theirs)) = (golden, theirs) else { return Vec::new() };
    let (Data::I64(g), Data::I64(t)) = (&golden.data, &theirs.tensor.data) else { return Vec::new() };
    let width = golden.width().max(1);
    let pairs = g.chunks_exact(width).zip(t.chunks_exact(width)).zip(&theirs.rows);
    pairs.filter(|((g, t), _)| g != t).map(|(_, row)| *row).collect()
}

fn phase(candidate: &Candidate<'_>, row: RowId) -> Phase {
    candidate.path.phase_of(row)
}

/// Operands of an op: golden's own results where the patch made them, else what the candidate showed.
pub(crate) fn operands(
    spec: &OpSpec,
    golden: &dyn Layer,
    made: &BTreeMap<Tap, Tensor>,
    (l, seq): (u16, u32),
    x: &Streams,
    seen: &Recorder,
) -> Option<(Vec<(Tap, Tensor)>, Vec<RowId>)> {
    let mut rows: Option<Vec<RowId>> = None;
    let mut operands = Vec::new();
    for tap in spec.reads {
        if let Some(tensor) = made.get(tap) {
            operands.push((*tap, tensor.clone()));
            continue;
        }
        let (tensor, of) = if *tap == Tap::Out {
            let of: Vec<RowId> = x.rows.iter().copied().filter(|r| r.seq == seq).collect();
            (align::gather(&x.rows, &x.data, &of)?.into_owned(), of)
        } else {
            // A tap that this kind of layer lacks is no operand of it.
            match seen.get(Site::layer(l, *tap), seq) {
                Some(recorded) => (recorded.tensor.clone(), recorded.rows.clone()),
                // Before the first window is complete there are no entries, and nothing is shown of them.
                None if OpSpec::writer_of(*tap).is_some_and(|w| golden.has_op(w.op)) => {
                    let like = if *tap == Tap::AttnIndexK { Tap::AttnIndexQ } else { Tap::AttnKv };
                    let width = *seen.get(Site::layer(l, like), seq)?.tensor.shape.last()?;
                    match tap.is_per_entry() {
                        true => (Tensor::f32([0, width], Vec::new()), Vec::new()),
                        false => return None,
                    }
                }
                None => continue,
            }
        };
        if !tap.is_per_entry() {
            rows.get_or_insert(of);
        }
        operands.push((*tap, tensor));
    }
    let rows = match rows {
        Some(rows) => rows,
        // Every operand was made by the chain or is per entry: the rows are those of any tap of the layer.
        None => seen.get(Site::layer(l, Tap::AttnIn), seq)?.rows.clone(),
    };
    Some((operands, rows))
}

/// |theirs - golden| / |golden| over the rows that `acts` admits; places where both are the same infinity are left out.
pub(crate) fn rel_l2(golden: &Tensor, theirs: &Tensor, rows: &[RowId], acts: &dyn Fn(&RowId) -> bool) -> Option<f64> {
    if golden.shape != theirs.shape || golden.rows() != rows.len() {
        return None;
    }
    let (Data::F32(g), Data::F32(t)) = (&golden.data, &theirs.data) else { return None };
    let width = golden.width().max(1);
    let (mut error, mut size, mut n) = (0.0, 0.0, 0usize);
    for ((g, t), row) in g.chunks_exact(width).zip(t.chunks_exact(width)).zip(rows) {
        if !acts(row) {
            continue;
        }
        for (&g, &t) in g.iter().zip(t) {
            if g == t && g.is_infinite() {
                continue;
            }
            let (g, d) = (f64::from(g), f64::from(t) - f64::from(g));
            error += d * d;
            size += g * g;
            n += 1;
        }
    }
    (n > 0).then(|| if error == 0.0 { 0.0 } else { (error / size).sqrt() })
}
