//! The candidate's decisions, to be forced on golden so that like is compared with like.

use karat_seam::{Choices, LayerChoices, Recorded, Recorder, Requests, Site, Tap};

use crate::facts::LayerFacts;

/// Decisions of one layer: experts in the candidate's slots, and entries where a score selects them. Impossible ones
/// (out of range, not yet visible, not for every row) are left to golden: the comparison of decisions shows them.
/// Whether forced decisions are right is judged there too.
pub(crate) fn of(l: u16, seen: &Recorder, requests: &Requests, facts: &LayerFacts) -> Choices {
    let mut choices = Choices::default();
    for (seq, sequence) in requests.seqs.iter().enumerate() {
        let (seq, len) = (seq as u32, sequence.ids.len());
        let get = |tap| seen.get(Site::layer(l, tap), seq).filter(|r| covers(r, len));
        let experts = get(Tap::FfnIdx).and_then(|r| experts(r, facts));
        let entries = facts
            .ratio
            .filter(|_| facts.selects_entries)
            .and_then(|ratio| get(Tap::AttnSelected).and_then(|r| entries(r, ratio)));
        let forced = LayerChoices { experts: experts.unwrap_or_default(), entries: entries.unwrap_or_default() };
        choices.by_layer.insert((l, seq), forced);
    }
    choices
}

/// True when the rows are positions 0..len, each once.
fn covers(rec: &Recorded, len: usize) -> bool {
    rec.rows.len() == len && rec.rows.iter().enumerate().all(|(i, r)| r.pos as usize == i)
}

fn experts(rec: &Recorded, facts: &LayerFacts) -> Option<Vec<u32>> {
    let values = rec.tensor.as_i64("ffn.idx").ok()?;
    let chosen: Vec<u32> = values
        .iter()
        .map(|&v| u32::try_from(v).ok().filter(|v| (*v as usize) < facts.experts))
        .collect::<Option<_>>()?;
    let distinct = |row: &[u32]| row.iter().enumerate().all(|(i, e)| !row[..i].contains(e));
    let width = rec.tensor.width();
    (width == facts.experts_per_token && chosen.chunks(width.max(1)).all(distinct)).then_some(chosen)
}

fn entries(rec: &Recorded, ratio: u32) -> Option<Vec<Vec<u32>>> {
    let mask = rec.tensor.as_u8("attn.selected").ok()?;
    let width = rec.tensor.width();
    let row = |t: usize| -> Vec<u32> {
        let row = &mask[t * width..(t + 1) * width];
        row.iter().enumerate().filter(|(_, m)| **m != 0).map(|(w, _)| w as u32).collect()
    };
    let all: Vec<Vec<u32>> = (0..rec.rows.len()).map(row).collect();
    let visible = |(t, chosen): (usize, &Vec<u32>)| chosen.iter().all(|w| *w < (t as u32 + 1) / ratio);
    all.iter().enumerate().all(visible).then_some(all)
}
