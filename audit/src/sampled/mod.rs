//! Query-sampled audit: a long conversation judged from a few rows of it and the KV pages that they read.
//!
//! A trace of some positions with `state/` taps is enough for golden at (x', KV'): the candidate's streams at the sampled rows
//! and the candidate's pages. What the candidate makes of both is judged against that, so an error in it is a kernel's. The
//! pages themselves are judged against the KV of golden's cold run of the same ids, row by row, so an error in them is the cache's.
//! Without that run the pages are judged where sampled rows made them: golden makes these of the same streams.

mod exact;
mod golden;
mod judge;
mod pages;
mod shares;
mod words;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use karat_bundle::TapRow;
use karat_diff::Claims;
use karat_reference::Golden;
use karat_seam::{Path as _, RowId, Site, Tap};
use karat_trace::Trace;

use self::golden::{Found, Now, SampledFloor, SampledGolden};
use self::pages::{Kept, Pages};
use crate::candidate::Candidate;
use crate::place::Place;
use crate::{Error, Result};

pub(crate) use self::words::examine;

/// True for a trace that holds only some rows of a conversation, each once, and KV pages.
pub(crate) fn is_sampled(trace: &Trace) -> bool {
    let lengths = &trace.requests().seqs;
    let some = trace.passes().any(|(seq, pass)| trace.positions(seq, pass).len() < lengths[seq as usize].ids.len());
    let once = trace.passes().all(|(_, pass)| pass == 0) && trace.held().all(|(.., pass)| pass == 0);
    some && once && trace.held().any(|(site, ..)| site.tap == Tap::StateWin)
}

/// Golden at the rows that can be judged.
pub(crate) struct Rows<'a> {
    pub(crate) path: SampledGolden<'a>,
    /// What can't be, in words.
    pub(crate) notes: Vec<String>,
}

/// The rows whose pages a trace holds in every layer (a run that begins at position 0 needs none).
///
/// `cold`: golden runs the whole conversation beside, and all rows of the pages are judged.
pub(crate) fn rows<'a>(
    golden: &'a Golden,
    trace: &'a Trace,
    (claims, rotated): (Claims, bool),
    cold: bool,
) -> Result<Rows<'a>> {
    let config = golden.config();
    let all: Vec<RowId> = trace
        .passes()
        .flat_map(|(seq, pass)| {
            trace.positions(seq, pass).iter().map(|pos| RowId { seq, pos: *pos, pass }).collect::<Vec<_>>()
        })
        .collect();
    let runs = golden::runs(&all);
    let mut lost: BTreeSet<usize> = BTreeSet::new();
    for l in 0..golden.blocks().layers {
        let kept = Kept::of(config, l);
        let seqs: BTreeSet<u32> = all.iter().map(|r| r.seq).collect();
        for seq in seqs {
            let pages = Pages::read(trace, (l, seq), kept, rotated)?;
            let own = runs.iter().enumerate().filter(|(_, run)| all[run.start].seq == seq && all[run.start].pos > 0);
            lost.extend(
                own.filter(|(_, run)| !pages.as_ref().is_some_and(|p| p.reaches(all[run.start].pos, kept)))
                    .map(|(i, _)| i),
            );
        }
    }
    let dropped: usize = lost.iter().map(|i| runs[*i].len()).sum();
    let mut notes = vec![format!(
        "{} of {} positions were sampled: of the others only KV pages were seen",
        all.len(),
        trace.requests().seqs.iter().map(|s| s.ids.len()).sum::<usize>()
    )];
    if golden.blocks().mtp > 0 {
        notes.push(
            "multi-token-prediction blocks were not audited: what they draft takes whole conversations".to_string(),
        );
    }
    if dropped > 0 {
        notes.push(format!(
            "{dropped} sampled rows were not judged: window rows or entries before them are in no page of a layer"
        ));
    }
    let kept =
        runs.iter().enumerate().filter(|(i, _)| !lost.contains(i)).flat_map(|(_, run)| all[run.clone()].to_vec());
    let rows: Arc<[RowId]> = kept.collect();
    if rows.is_empty() {
        let error = karat_model::Error::input("no sampled row can be judged").at(trace.label());
        return Err(Error::Model(
            error.hint("capture the window rows and entries that the sampled positions read (state/)"),
        ));
    }
    if !cold {
        notes.push(
            "golden ran the sampled rows alone, on the candidate's pages: what they inherit from its cache is not told, and \
             pages are judged only where sampled rows made them"
                .to_string(),
        );
    }
    let path = SampledGolden { golden, trace, claims, rotated, cold, rows, now: Mutex::new(Now::default()) };
    Ok(Rows { path, notes })
}

/// The floor beside it.
pub(crate) fn floor<'a>(golden: &'a Golden, beside: &'a SampledGolden<'a>) -> SampledFloor<'a> {
    SampledFloor { golden, beside }
}

impl SampledGolden<'_> {
    /// Gated rows of `taps.csv`, one a kind of pages, layer and sequence; and what could not be told.
    pub(crate) fn page_rows(&self, candidate: &Candidate<'_>, scenarios: &[String]) -> (Vec<TapRow>, Vec<String>) {
        let (mut rows, mut notes) = (Vec::new(), Vec::new());
        let now = self.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for found in &now.found {
            let sequence = &self.golden.requests().seqs[found.seq as usize].id;
            let scenario = scenarios.get(found.seq as usize).map_or("", String::as_str);
            let place = Place { candidate, scenario, sequence, layers: self.golden.blocks().layers };
            for judged in &found.judged {
                let site = Site::layer(found.l, judged.tap);
                if judged.rows == 0 {
                    notes.push(format!("{site}: no sampled rows made any of its rows: not judged"));
                    continue;
                }
                if !judged.limit.is_told {
                    notes.push(format!(
                        "{site}: the sampled rows inherit too much for a lost row to be told: not judged"
                    ));
                    continue;
                }
                rows.push(self.page_row(&place, site, found, judged));
            }
        }
        let of =
            |count: fn(&judge::Judged) -> usize| -> usize { now.found.iter().flat_map(|f| &f.judged).map(count).sum() };
        notes.push(format!(
            "{} of the rows of pages are judged by what golden makes of the same streams",
            of(|j| j.made)
        ));
        (rows, notes)
    }

    fn page_row(&self, place: &Place<'_>, site: Site, found: &Found, judged: &judge::Judged) -> TapRow {
        let ratio =
            if judged.tap == Tap::StateWin { 1 } else { Kept::of(self.golden.config(), found.l).ratio.unwrap_or(1) };
        let worst = judged.worst();
        let pos = worst.map_or(0, |(at, _)| at * ratio + ratio - 1);
        let mut row = place.row(site, self.trace.phase_of(RowId::new(found.seq, pos)));
        (row.rows, row.n) = (judged.rows as u64, judged.rows as u64);
        row.total = Some(judged.rel_l2);
        row.rel_l2 = Some(judged.rel_l2);
        row.max_abs_position = worst.map(|(at, _)| u64::from(at));
        row.gate = "unexplained_rows".to_string();
        row.value = Some(judged.bad.len() as f64);
        row.tolerance = Some(0.0);
        row
    }
}
