//! The path's own cold run: every sequence alone on empty pages, each row in the phase in which the history computed it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use karat_optimized::serving::{Action, Geometry, PageRow, Paged, Part, Script, Setup, Watch, Work};
use karat_seam::{Phase, Requests};

/// A row of state: layer, tensor, sequence, index.
pub(super) type Key = (u16, Part, u32, usize);

/// What the cold run wrote to its pages and came to.
#[derive(Debug, Default)]
pub(super) struct Yardstick {
    pub(super) rows: BTreeMap<Key, Vec<f32>>,
    /// `[n,V]` of each sequence.
    pub(super) logits: Vec<Vec<f32>>,
}

/// Keeps every row that is written. A request's number is its sequence.
#[derive(Debug, Default)]
pub(super) struct Keep(Mutex<BTreeMap<Key, Vec<f32>>>);

impl Keep {
    pub(super) fn take(&self) -> BTreeMap<Key, Vec<f32>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Watch for Keep {
    fn read(&self, _: &PageRow<'_>) {}

    fn wrote(&self, row: &PageRow<'_>) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.insert((row.layer, row.part, row.request as u32, row.index), row.values.to_vec());
    }
}

/// Runs of decoded positions.
fn decoded(phases: &[Phase]) -> Vec<Range<u32>> {
    let mut out: Vec<Range<u32>> = Vec::new();
    for (p, _) in (0u32..).zip(phases).filter(|(_, phase)| **phase == Phase::Decode) {
        match out.last_mut() {
            Some(range) if range.end == p => range.end += 1,
            _ => out.push(p..p + 1),
        }
    }
    out
}

/// The cold run with each position in a given phase.
pub(super) fn program(
    requests: &Requests,
    geometry: Geometry,
    phases: &[Vec<Phase>],
    watch: Arc<Keep>,
) -> karat_model::Result<Paged> {
    let works: Vec<Work> = (0u32..)
        .zip(requests.seqs.iter().zip(phases))
        .map(|(seq, (s, phases))| {
            let decode = decoded(phases);
            Work { seq, ids: s.ids.clone(), decode, last: true, drafts: 0 }
        })
        .collect();
    let longest = requests.seqs.iter().map(|s| s.ids.len()).max().unwrap_or(1);
    let setup = Setup {
        geometry,
        chunk: usize::MAX,
        batch: 1,
        pages: geometry.pages(longest),
        instances: 1,
        cache: false,
        graphs: false,
        seed: 0,
    };
    let actions = (0..works.len()).map(Action::Submit).collect();
    let program = Script { setup, works, actions }.program()?;
    Ok(Paged { name: "own cold run".into(), geometry, program, watch: Some(watch) })
}
