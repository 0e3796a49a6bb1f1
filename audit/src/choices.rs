//! The candidate's decisions, to be forced on golden so that like is compared with like.

use karat_seam::{Choices, LayerChoices, Recorded, Recorder, Requests, RowId, Site, Tap};

use crate::facts::LayerFacts;

/// Decisions of one layer: experts in the candidate's slots, and entries where a score selects them. Impossible ones
/// (out of range, not yet visible, not for every row that golden runs) are left to golden: the comparison of decisions
/// shows them. Whether forced decisions are right is judged there too.
pub(crate) fn of(l: u16, seen: &Recorder, requests: &Requests, facts: &LayerFacts, rows: &[RowId]) -> Choices {
    let mut choices = Choices::default();
    for (seq, sequence) in requests.seqs.iter().enumerate() {
        let (seq, len) = (seq as u32, sequence.ids.len());
        let own: Vec<u32> = rows.iter().filter(|r| r.seq == seq).map(|r| r.pos).collect();
        let get = |tap| seen.get(Site::layer(l, tap), seq).filter(|r| covers(r, &own));
        let experts = get(Tap::FfnIdx).and_then(|r| experts(r, facts));
        let entries = facts
            .ratio
            .filter(|_| facts.selects_entries)
            .and_then(|ratio| get(Tap::AttnSelected).and_then(|r| entries(r, ratio)));
        // By position, from the first one on: those between sampled rows are asked by nobody.
        let width = facts.experts_per_token;
        let experts =
            experts.map(|of| spread(of.chunks(width.max(1)).map(<[u32]>::to_vec), &own, len, vec![0; width]).concat());
        let entries = entries.map(|of| spread(of.into_iter(), &own, len, Vec::new()));
        let forced = LayerChoices { experts: experts.unwrap_or_default(), entries: entries.unwrap_or_default() };
        choices.by_layer.insert((l, seq), forced);
    }
    choices
}

/// True when the rows are these positions.
fn covers(rec: &Recorded, own: &[u32]) -> bool {
    rec.rows.len() == own.len() && rec.rows.iter().zip(own).all(|(r, pos)| r.pos == *pos)
}

/// One value a position, of which some are known.
fn spread<T: Clone>(known: impl Iterator<Item = T>, positions: &[u32], len: usize, none: T) -> Vec<T> {
    let mut all = vec![none; len];
    for (value, pos) in known.zip(positions) {
        if let Some(place) = all.get_mut(*pos as usize) {
            *place = value;
        }
    }
    all
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
    let visible = |(row, chosen): (&RowId, &Vec<u32>)| chosen.iter().all(|w| *w < (row.pos + 1) / ratio);
    rec.rows.iter().zip(&all).all(visible).then_some(all)
}
