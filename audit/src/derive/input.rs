//! The input of an MTP block (spec 2.14): two products of normed values, summed. What goes into the products is behind two
//! norms that no tap shows; it is worked out from what goes into those.

use karat_bundle::DerivationRow;
use karat_seam::{Block, Phase, Recorded, Recorder, RowId, Site, Streams, Tap, Tensor};

use super::costs::Costs;
use super::noise::{Sizes, add, seed};
use super::terms::Terms;
use super::{Rules, Term};
use crate::align;
use crate::facts::plain;
use crate::place::{block_name, order};

/// What the products of block `i` take, and what comes out: `embed` and `h_final` after their norms, and `in`, as taps of the
/// block. `None` where the checkpoint does not show its norms.
pub(super) fn operands(rules: Rules<'_>, i: u16, on_x: &Recorder, x: &Streams) -> Option<Recorder> {
    let eps = rules.checkpoint.config().rms_norm_eps;
    let weight = |name: &str| plain(rules.checkpoint, &format!("mtp.{i}.{name}.weight")).ok();
    let (enorm, hnorm) = (weight("enorm")?, weight("hnorm")?);
    let site = |tap| Site { block: Block::Mtp(i), tap };
    let mut out = Recorder::all();
    for ((at, seq), made) in on_x.taps.iter().filter(|((at, _), _)| *at == site(Tap::In)) {
        let embed = on_x.get(site(Tap::Embed), *seq)?;
        let of: Vec<RowId> = x.rows.iter().copied().filter(|row| row.seq == *seq).collect();
        let streams = align::gather(&x.rows, &x.data, &of)?;
        let mut keep = |tap, values: Vec<f32>, width: usize| {
            let tensor = Tensor::f32([values.len() / width.max(1), width], values);
            out.taps.insert((site(tap), *seq), Recorded { rows: of.clone(), tensor });
        };
        keep(Tap::Embed, normed(embed.tensor.as_f32("embed").ok()?, &enorm, eps), enorm.len());
        keep(Tap::HFinal, normed(streams.as_f32("streams").ok()?, &hnorm, eps), hnorm.len());
        out.taps.insert((*at, *seq), made.clone());
    }
    Some(out)
}

/// RMSNorm of rows as wide as the weight.
fn normed(x: &[f32], weight: &[f32], eps: f64) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks_exact(weight.len().max(1)) {
        let mean = row.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>() / row.len() as f64;
        let by = 1.0 / (mean + eps).sqrt();
        out.extend(row.iter().zip(weight).map(|(v, w)| (f64::from(*v) * by * f64::from(*w)) as f32));
    }
    out
}

/// The roundings on the way to `in`, each with the tap that stands for the values that it rounds.
pub(super) fn terms(
    (rules, phase): (Rules<'_>, Phase),
    (i, layers): (u16, u16),
    operands: &Recorder,
    costs: &Costs,
) -> Vec<(Tap, Term)> {
    let site = Site { block: Block::Mtp(i), tap: Tap::In };
    let row = DerivationRow {
        layer: block_name(site.block),
        op: site.tap.name().to_string(),
        tap: site.tap.name().to_string(),
        order: order(site, layers),
        ..DerivationRow::default()
    };
    let seqs = operands.taps.keys().filter(|(at, _)| *at == site).map(|(_, seq)| *seq);
    let mut out = Vec::new();
    for (k, seq) in seqs.enumerate() {
        for (tap, weight) in [(Tap::Embed, "e_proj"), (Tap::HFinal, "h_proj"), (Tap::In, "")] {
            let mut at = Terms::new((rules, phase), (site.block, seq), operands, costs, row.clone());
            if weight.is_empty() {
                at.stored(tap, 1.0);
            } else {
                at.product(rules.numerics[phase as usize].dense, tap, Some(weight.to_string()), 1.0);
                // The norm's output, and the product's.
                at.stored(tap, 2.0);
            }
            for mut term in at.out.into_iter().filter(|term| k == 0 || term.seq.is_some()) {
                if !weight.is_empty() {
                    term.row.term = format!("{weight}: {}", term.row.term);
                }
                out.push((tap, term));
            }
        }
    }
    out
}

/// Noise at each tap that stands for rounded values. In front of a norm noise in proportion to each value has the relative
/// size that it has behind it.
pub(super) fn sizes(terms: &[(Tap, Term)]) -> Sizes {
    let at_tap = |(tap, term): &(Tap, Term)| {
        let row = DerivationRow { tap: tap.name().to_string(), shape: "own".to_string(), ..term.row.clone() };
        Term { row, ..term.clone() }
    };
    Sizes::of(&terms.iter().map(at_tap).collect::<Vec<_>>())
}

/// The streams with the noise of what is rounded of them.
pub(super) fn disturbed(x: &Streams, sizes: &[Sizes; 2], phase_of: &dyn Fn(RowId) -> Phase) -> Streams {
    let mut x = x.clone();
    let width = x.data.width().max(1);
    if let karat_seam::Data::F32(values) = &mut x.data.data {
        for (row, values) in x.rows.iter().zip(values.chunks_exact_mut(width)) {
            if let Some(size) = sizes[phase_of(*row) as usize].at(Tap::HFinal, row.seq) {
                add(size, seed(Tap::HFinal, *row), values);
            }
        }
    }
    x
}
