//! KV as an input like the streams: a bad cache is told from what reads it.

use karat_bundle::KvShares;
use karat_seam::{KvPart, KvRows, KvView, Recorder, RowId, Site, Tap};

use crate::align;
use crate::own_error::rel_l2;

/// The window rows and entries that a candidate shows, for one sequence.
pub(super) struct Shown<'a> {
    seq: u32,
    window: &'a [f32],
    entries: Option<&'a [f32]>,
}

impl<'a> Shown<'a> {
    /// `None` where it does not show the window row of every position in order.
    pub(super) fn of(seen: &'a Recorder, l: u16, seq: u32) -> Option<Self> {
        let rows = |tap| {
            let shown = seen.get(Site::layer(l, tap), seq)?;
            let in_order = shown.rows.iter().enumerate().all(|(i, row)| row.pos as usize == i);
            shown.tensor.as_f32("KV rows").ok().filter(|_| in_order)
        };
        Some(Self { seq, window: rows(Tap::AttnKv)?, entries: rows(Tap::AttnCkv) })
    }
}

impl KvView for Shown<'_> {
    fn rows(&self, seq: u32, part: KvPart) -> Option<KvRows<'_>> {
        let values = match part {
            KvPart::Window => Some(self.window),
            KvPart::Entries => self.entries,
            // They only serve to choose entries, and the choices are forced.
            KvPart::IndexKeys => None,
        };
        values.filter(|_| seq == self.seq).map(|values| KvRows { first: 0, values })
    }
}

/// Distances at `site` between R(x), R(x'), R(x,KV'), R(x',KV') and C(x'), in this order.
pub(super) fn shares(site: Site, seq: u32, all: [&Recorder; 5]) -> Option<KvShares> {
    let rows: Vec<RowId> = all[0].get(site, seq)?.rows.clone();
    let mut tensors = Vec::new();
    for seen in all {
        let shown = seen.get(site, seq)?;
        tensors.push(align::narrow(align::gather(&shown.rows, &shown.tensor, &rows)?).into_owned());
    }
    let of = |from: usize, to: usize| rel_l2(&tensors[from], &tensors[to], &rows, &|_| true);
    Some(KvShares { stream: of(0, 1)?, cache: of(0, 2)?, both: of(0, 3)?, kernel: of(3, 4)?, fault: String::new() })
}
