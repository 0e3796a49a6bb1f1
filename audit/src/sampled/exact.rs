//! Page rows that sampled rows made themselves: golden makes them of the same streams, so nothing is inherited in them.

use karat_seam::{KvPart, Recorder, Site, Tap};

use super::judge::{self, Judged, Limit};
use super::pages::Pages;

/// Rows of one kind of pages that golden made at (x', KV').
pub(crate) struct Exact {
    /// Their positions or entries, ascending.
    pub(crate) names: Vec<u32>,
    /// Places of these in the pages.
    pub(crate) places: Vec<usize>,
    /// Golden's rows.
    pub(crate) ours: Vec<f32>,
    width: usize,
}

/// The tap that shows a row when it is made.
fn made(part: KvPart) -> Tap {
    match part {
        KvPart::Window => Tap::AttnKv,
        KvPart::Entries => Tap::AttnCkv,
        KvPart::IndexKeys => Tap::AttnIndexK,
    }
}

impl Exact {
    /// Taps that have to be seen.
    pub(crate) const TAPS: [Tap; 3] = [Tap::AttnKv, Tap::AttnCkv, Tap::AttnIndexK];

    /// Of what the sampled rows of one sequence showed in a layer. An entry is among them when all rows that it is made of are.
    pub(crate) fn of(seen: &Recorder, (l, seq): (u16, u32), (part, width): (KvPart, usize), pages: &Pages) -> Self {
        let mut out = Self { names: Vec::new(), places: Vec::new(), ours: Vec::new(), width };
        let Some(recorded) = seen.get(Site::layer(l, made(part)), seq) else { return out };
        let Ok(values) = recorded.tensor.as_f32("KV rows") else { return out };
        let count = pages.rows(part).len() / width;
        for (row, values) in recorded.rows.iter().zip(values.chunks_exact(width)) {
            let place = match part {
                KvPart::Window => pages.positions.binary_search(&row.pos).ok(),
                _ => Some(row.pos as usize).filter(|at| *at < count),
            };
            if let Some(place) = place {
                out.names.push(row.pos);
                out.places.push(place);
                out.ours.extend_from_slice(values);
            }
        }
        out
    }

    /// Judges the pages' rows by what their format costs alone.
    pub(crate) fn judge(&self, tap: Tap, theirs: &[f32], limit: Limit) -> Judged {
        let width = self.width;
        let rows: Vec<f32> = self.places.iter().flat_map(|at| &theirs[at * width..(at + 1) * width]).copied().collect();
        let judged = judge::judge(tap, &rows, &self.ours, &self.names, limit);
        Judged { made: self.names.len(), made_bad: judged.bad.len(), ..judged }
    }

    /// Golden's row of a name.
    pub(crate) fn row(&self, name: u32) -> Option<&[f32]> {
        let at = self.names.binary_search(&name).ok()?;
        self.ours.get(at * self.width..(at + 1) * self.width)
    }
}

/// All rows by `all`, those that sampled rows made by `exact`, too.
pub(crate) fn both(all: Judged, exact: Judged) -> Judged {
    if !all.limit.is_told || all.rows == 0 {
        return if exact.rows > 0 { exact } else { all };
    }
    let limit = if all.bad.is_empty() && !exact.bad.is_empty() { exact.limit } else { all.limit };
    let mut bad = all.bad;
    bad.extend(
        exact.bad.into_iter().filter(|(name, _)| bad.binary_search_by_key(name, |b| b.0).is_err()).collect::<Vec<_>>(),
    );
    bad.sort_by_key(|b| b.0);
    Judged { bad, limit, made: exact.made, made_bad: exact.made_bad, ..all }
}
