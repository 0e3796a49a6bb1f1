//! One pass of a path: its logits, those of its first MTP block, and what it keeps.

use karat_model::Config;
use karat_seam::{Lane, Path, Recorder, Tap};

use crate::Result;

/// A run's recorder and the logits `[n,V]` of each sequence.
pub(super) struct Ran {
    /// Content after the last row, and the decisions.
    pub(super) seen: Recorder,
    pub(super) logits: Vec<Vec<f32>>,
    /// The same of the first MTP block; empty without one.
    pub(super) mtp: Vec<Vec<f32>>,
}

/// Number of the MTP block that histories run; `None` where the model has none.
pub(super) fn mtp_block(config: &Config) -> Option<u16> {
    (!config.mtp.is_empty()).then_some(0)
}

/// Runs a path; logits of the given rows, by sequence. `next` are the ids after the path's rows, for the first MTP block,
/// which is left out when there are none.
pub(super) fn run(path: &dyn Path, rows: &[Vec<usize>], next: &[u32]) -> Result<Ran> {
    let mut seen = Recorder::new(|site| site.tap.is_state() || matches!(site.tap, Tap::FfnIdx | Tap::AttnSelected));
    let mut x = path.embed(&mut seen)?;
    for l in 0..path.blocks().layers {
        let mut lanes = [Lane::new(&x, &mut seen)];
        path.layer(l)?.run(&mut lanes)?;
        let [lane] = lanes;
        let missing = || karat_seam::Error::Request(format!("{}: layer {l} gave no streams", path.name()));
        x = lane.out.ok_or_else(missing)?.streams;
    }
    let no_logits = || karat_seam::Error::Request(format!("{} gave no logits", path.name()));
    let split = |all: karat_seam::Tensor| -> Result<Vec<Vec<f32>>> {
        let (values, width) = (all.as_f32("logits")?, all.width());
        let of =
            |rows: &Vec<usize>| rows.iter().flat_map(|r| values[r * width..(r + 1) * width].iter().copied()).collect();
        Ok(rows.iter().map(of).collect())
    };
    let logits = split(path.head(&mut [Lane::new(&x, &mut seen)])?.pop().ok_or_else(no_logits)?)?;
    let mtp = match next {
        [] => Vec::new(),
        next => split(path.mtp(0, &mut [Lane::new(&x, &mut seen)], next)?.pop().ok_or_else(no_logits)?)?,
    };
    Ok(Ran { seen, logits, mtp })
}
