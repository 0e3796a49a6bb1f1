//! A second, closer look at the first bad place, once a verdict is `fail`: which op, how it looks, what it does to the
//! final distribution, what the layer's decisions have to do with it.
//!
//! Everything runs again up to the bad layer; golden's ops then run one by one on the candidate's operands, so that an
//! error is told from what came in. Nothing here changes a verdict.

mod cache;
mod cut;
mod look;
mod signs;
mod swap;
mod words;

use karat_bundle::{Bundle, ChangePoint, Effect, Examination, FirstBad, SignatureTest, TapRow, Verdict};
use karat_diff::change::change;

use crate::lockstep::Lockstep;
use crate::repro::Failing;
use crate::{Error, Result};

pub(crate) use look::{Look, OpError};

/// A change along depth is told when noise gives as much with this chance.
const CHANCE: f64 = 1e-3;
/// Layers whose effect on the final distribution is measured.
const SUSPECTS: usize = 3;

impl Lockstep<'_> {
    /// Looks closer at the first bad place of a bundle that this run made: fills in its examination, signature and next
    /// step, puts the suspects in the order of their effect, and adds rows for the parts of the bad tap. Does nothing
    /// when the verdict is another than `fail`, or no layer is at fault.
    pub fn examine(&self, bundle: &mut Bundle) -> Result<()> {
        self.find(bundle).map(|_| ())
    }

    /// [`Lockstep::examine`]; the op at fault with its operands, where one was found.
    pub(crate) fn find(&self, bundle: &mut Bundle) -> Result<Option<Failing>> {
        let Some(bad) = bundle.verdict.first_bad.clone().filter(|_| bundle.verdict.verdict == Verdict::Fail) else {
            return Ok(None);
        };
        let mut found = Examination { change_point: change_point(&bundle.taps, &bad), ..Examination::default() };
        let look = match Look::at(self, &bad, &bundle.derivations) {
            Ok(look) => look,
            // A stored trace can't be run again on other rows.
            Err(Error::Seam(karat_seam::Error::Unsupported { .. })) => None,
            Err(other) => return Err(other),
        };
        if let Some(look) = &look {
            found.routing_share = look.routing_share();
            found.kv.clone_from(&look.kv);
            bundle.taps.extend(cut::rows(self, look, &bad));
        }
        let worst = look.as_ref().and_then(|look| Some((look, look.suspect(&bad)?)));
        if let Some((look, worst)) = worst {
            found.op = worst.op.spec().name.to_string();
            found.tap = worst.tap.name().to_string();
            (found.op_error, found.op_predicted) = (worst.error, worst.predicted);
            found.signatures = signs::of(self, look, worst);
            let mut layers: Vec<u16> = vec![look.l];
            let of_set = bundle.verdict.suspects.iter().filter(|s| s.patch_set == bad.patch_set);
            layers.extend(of_set.filter_map(|s| s.layer.parse::<u16>().ok()).filter(|l| *l != look.l));
            layers.truncate(SUSPECTS);
            // What a trace would have made of other streams nobody knows.
            if self.layers.is_none() && look.candidate.holds.is_none() {
                let swaps = swap::of(self, look, worst, &layers)?;
                found.kl = swaps.as_is;
                found.kl_with_golden_op = swaps.op_fixed;
                found.effects = layers
                    .iter()
                    .zip(swaps.fixed.iter().zip(&swaps.alone))
                    .map(|(l, (fixed, alone))| Effect {
                        layer: l.to_string(),
                        removed: swaps.as_is - fixed,
                        alone: *alone,
                    })
                    .collect();
                found.effects.sort_by(|a, b| b.removed.total_cmp(&a.removed));
                rank(bundle, &bad, &found.effects);
            }
        }
        let fitting: Vec<&str> = found.signatures.iter().filter_map(|s| s.fits.as_deref()).collect();
        bundle.verdict.signature = (!fitting.is_empty()).then(|| fitting.join("; "));
        found.summary = words::summary(&bad, &found, bundle.verdict.signature.as_deref());
        if look.is_some() {
            bundle.verdict.next_step = words::next_step(&bad, &found, &bundle.verdict.next_step);
        }
        let said = vec![found.summary.clone(), bundle.verdict.next_step.clone()];
        bundle.verdict.examination = Some(found);
        let ids = |look: &Look<'_>| self.golden.requests().seqs[look.seq as usize].ids.clone();
        Ok(worst.and_then(|(look, worst)| look.failing(worst, said, &ids(look))))
    }
}

/// Suspects by what swapping them back does, the others behind.
fn rank(bundle: &mut Bundle, bad: &FirstBad, effects: &[Effect]) {
    let place = |layer: &str| effects.iter().position(|e| e.layer == layer).unwrap_or(usize::MAX);
    bundle.verdict.suspects.sort_by_key(|s| if s.patch_set == bad.patch_set { place(&s.layer) } else { usize::MAX });
}

/// Where log(error / predicted) changes along depth, over the rows that the first bad one belongs to.
fn change_point(taps: &[TapRow], bad: &FirstBad) -> Option<ChangePoint> {
    let same = |r: &&TapRow| {
        r.patch_set == bad.patch_set && r.sequence == bad.sequence && r.phase == bad.phase && r.gate == "rel_l2"
    };
    let ratio = |r: &TapRow| {
        let expected = r.derived.filter(|_| r.basis != "provisional").or(r.predicted)?;
        // Under a tenth of what is expected an error is none: its logarithm would tell of nothing.
        Some((r.value? / expected.max(1e-6)).max(0.1).ln())
    };
    let mut rows: Vec<(&TapRow, f64)> = taps.iter().filter(same).filter_map(|r| Some((r, ratio(r)?))).collect();
    rows.sort_by_key(|(r, _)| r.order);
    let values: Vec<f64> = rows.iter().map(|(_, v)| *v).collect();
    let found = change(&values).filter(|c| c.chance < CHANCE)?;
    let row = rows[found.start].0;
    Some(ChangePoint {
        layer: row.layer.clone(),
        tap: row.tap.clone(),
        statistic: found.statistic,
        chance: found.chance,
    })
}

fn test(tested: karat_diff::signature::Tested) -> SignatureTest {
    SignatureTest { name: tested.name.to_string(), share: tested.share, fits: tested.fits }
}
