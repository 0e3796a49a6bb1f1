//! The same engine once more, on its own streams: how far two runs of it are apart is its noise.

use karat_bundle::TapRow;
use karat_seam::{Error as SeamError, Lane, Path, Recorder, Result as SeamResult, Site, Tap};

use crate::Result;
use crate::lockstep::{Walk, follows_slots, not_state};
use crate::pass::input;

/// Embeds once more for candidate `i`, where it has a rerun.
pub(crate) fn embed(walk: &mut Walk<'_, '_>, i: usize) -> Result<()> {
    let Some(path) = walk.setup.candidates[i].rerun else { return Ok(()) };
    let mut seen = not_state();
    let next = supported(path.embed(&mut seen))?;
    walk.runners[i].again = (next, Some(seen));
    Ok(())
}

/// Runs one block of candidate `i`'s rerun, where there is one, and keeps what it showed.
pub(crate) fn block(
    walk: &mut Walk<'_, '_>,
    i: usize,
    mut seen: Recorder,
    run: impl FnOnce(&dyn Path, &mut [Lane<'_>]) -> SeamResult<()>,
) -> Result<()> {
    let candidate = &walk.setup.candidates[i];
    let Some(path) = candidate.rerun else { return Ok(()) };
    let own = walk.runners[i].again.0.take();
    let x = input(candidate, own.as_ref(), walk.x.values()?);
    let mut lanes = [Lane::new(&x, &mut seen)];
    supported(run(path, &mut lanes))?;
    let [lane] = lanes;
    let next = lane.out.map(|out| out.streams);
    walk.runners[i].again = (next, Some(seen));
    Ok(())
}

/// What a trace does not hold is none.
fn supported<T>(ran: SeamResult<T>) -> Result<Option<T>> {
    match ran {
        Ok(value) => Ok(Some(value)),
        Err(SeamError::Unsupported { .. }) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// What the rerun showed of a tap; `None` where the tap's slots follow other experts than the run's.
pub(crate) fn shown<'a>(walk: &'a Walk<'_, '_>, i: usize, site: Site, seq: u32) -> Option<&'a karat_seam::Recorded> {
    let (run, again) = (&walk.runners[i].seen, walk.runners[i].again.1.as_ref()?);
    if follows_slots(site.tap) {
        let idx = Site { tap: Tap::FfnIdx, ..site };
        if run.get(idx, seq).map(|r| &r.tensor) != again.get(idx, seq).map(|r| &r.tensor) {
            return None;
        }
    }
    again.get(site, seq)
}

/// How far the two runs were apart, for the report; nothing without a rerun.
pub(crate) fn note(taps: &[TapRow]) -> Option<String> {
    let rows: Vec<(&TapRow, f64)> = taps.iter().filter_map(|r| Some((r, r.rerun?))).collect();
    let apart = rows.iter().filter(|(_, noise)| *noise != 0.0).count();
    let (worst, noise) = rows.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(match apart {
        0 => format!("run twice: the same bits in all {} compared rows", rows.len()),
        n => format!(
            "run twice: {n} of {} compared rows differ, at most by {noise:.1e} ({}, layer {}, {})",
            rows.len(),
            worst.tap,
            worst.layer,
            worst.patch_set
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_counts_rows_that_differ_and_names_the_worst() {
        assert_eq!(note(&[TapRow::default()]), None);
        let row = |tap: &str, rerun| TapRow { tap: tap.into(), layer: "3".into(), rerun, ..TapRow::default() };
        let same = note(&[row("attn.q", Some(0.0)), row("attn.o", None)]).unwrap();
        assert_eq!(same, "run twice: the same bits in all 1 compared rows");
        let apart = note(&[row("attn.q", Some(0.0)), row("attn.o", Some(2e-4)), row("out", Some(1e-4))]).unwrap();
        assert!(
            apart.starts_with("run twice: 2 of 3 compared rows differ, at most by 2.0e-4 (attn.o, layer 3,"),
            "{apart}"
        );
        assert!(note(&[row("attn.q", Some(f64::NAN))]).unwrap().contains("NaN"));
    }
}
