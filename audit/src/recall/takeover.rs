//! Where an answer is lost: golden takes over the candidate's streams at a layer and goes on from there.

use std::sync::atomic::AtomicBool;

use karat_scenarios::Ask;
use karat_seam::{Path, Streams};

use super::answers::Picked;
use super::pass;
use super::score::{right, tokens};
use crate::{Result, align};

/// For each question the last layer at which golden's takeover still restores the answer; the number of layers when it
/// does so at the head, `None` when golden itself does not give it. Both paths hold the one sequence that is asked.
///
/// A search by halves: an answer that is restored at a layer counts as restored at every earlier one.
pub(crate) fn lost_at(
    golden: &dyn Path,
    candidate: &dyn Path,
    asks: &[Ask],
    stop: &AtomicBool,
) -> Result<Vec<Option<u64>>> {
    let mut entering = Vec::new();
    pass::whole(candidate, stop, Some(&mut entering))?;
    let rows = golden.embed(&mut karat_seam::NoTaps)?.rows;
    let layers = golden.blocks().layers;
    // What golden makes of the candidate's streams at each layer, as far as it was asked.
    let mut restored: Vec<Option<Vec<bool>>> = vec![None; usize::from(layers) + 1];
    let mut at = |l: u16| -> Result<Vec<bool>> {
        if let Some(known) = &restored[usize::from(l)] {
            return Ok(known.clone());
        }
        let x = entering.get(usize::from(l)).and_then(|s: &Streams| align::streams(s, &rows));
        let found = match x {
            Some(x) => answered(golden, l, x, asks, stop)?,
            None => vec![false; asks.len()],
        };
        restored[usize::from(l)] = Some(found.clone());
        Ok(found)
    };
    let mut out = Vec::new();
    for i in 0..asks.len() {
        if !at(0)?[i] {
            out.push(None);
            continue;
        }
        let (mut low, mut high) = (0, layers + 1);
        while high - low > 1 {
            let mid = u16::midpoint(low, high);
            if at(mid)?[i] { low = mid } else { high = mid }
        }
        out.push(Some(u64::from(low)));
    }
    Ok(out)
}

fn answered(golden: &dyn Path, l: u16, x: Streams, asks: &[Ask], stop: &AtomicBool) -> Result<Vec<bool>> {
    let (rows, logits) = pass::from(golden, l, x, stop, None)?;
    let asks = [asks.to_vec()];
    let mut picked = Picked::default();
    picked.take(&rows, &logits, &asks);
    let ids = &golden.requests().seqs[0].ids;
    asks[0]
        .iter()
        .map(|ask| {
            let rows = picked.rows(0, ask.answer.start, ask.answer.end);
            let got = tokens(&rows, &ids[ask.positions()])?;
            Ok(got.len() == ask.answer.len() && right(&got))
        })
        .collect()
}
