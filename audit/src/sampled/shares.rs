//! What streams, pages and what reads them have in the attention of sampled rows.

use std::sync::Arc;

use karat_bundle::KvShares;
use karat_seam::{Recorded, Recorder, RowId, Site, Tap, Tensor};
use karat_trace::Trace;

use crate::align;
use crate::own_error::rel_l2;

/// Taps in which shares are told: the first that a trace holds.
pub(super) const TAPS: [Tap; 4] = [Tap::AttnOut, Tap::AttnOa, Tap::HcAttnOut, Tap::Out];

/// What golden's lanes showed of the sampled rows.
pub(super) struct Lanes<'a> {
    /// R(x).
    pub(super) x: &'a Recorder,
    /// R(x') on the pages, mended where rows of theirs are bad.
    pub(super) x2: &'a Recorder,
    /// R(x, KV').
    pub(super) kv2: &'a Recorder,
    /// R(x', KV').
    pub(super) both: &'a Recorder,
}

pub(super) struct Told {
    pub(super) shares: KvShares,
    /// The candidate is nearer to golden on mended pages: it read them before they went bad.
    pub(super) read_before: bool,
}

/// `None` where the trace holds none of the taps.
pub(super) fn of(trace: &Trace, (l, seq): (u16, u32), rows: &Arc<[RowId]>, all: &Lanes<'_>) -> Option<Told> {
    let site = TAPS.iter().map(|tap| Site::layer(l, *tap)).find(|site| trace.holds(*site, seq, 0))?;
    let rows: Vec<RowId> = rows.iter().copied().filter(|r| r.seq == seq).collect();
    let theirs = Recorded { rows: trace.row_ids(site, seq, 0).ok()?, tensor: trace.tensor(site, seq, 0).ok()? };
    let take = |seen: &Recorded| -> Option<Tensor> {
        Some(align::narrow(align::gather(&seen.rows, &seen.tensor, &rows)?).into_owned())
    };
    let [on_x, on_x2, on_kv2, on_both] = [all.x, all.x2, all.kv2, all.both].map(|r| take(r.get(site, seq)?));
    let (on_x, on_x2, on_kv2, on_both) = (on_x?, on_x2?, on_kv2?, on_both?);
    let theirs = take(&theirs)?;
    let of = |from: &Tensor, to: &Tensor| rel_l2(from, to, &rows, &|_| true);
    let (with_pages, with_mended) = (of(&on_both, &theirs)?, of(&on_x2, &theirs)?);
    let read_before = with_mended < 0.5 * with_pages;
    let shares = KvShares {
        stream: of(&on_x, &on_x2)?,
        cache: of(&on_x, &on_kv2)?,
        both: of(&on_x, &on_both)?,
        kernel: if read_before { with_mended } else { with_pages },
        fault: String::new(),
    };
    Some(Told { shares, read_before })
}
