//! Schedulers with a fault: what an engine did to pages that somebody still reads. Put into the program of a history, so that
//! every layer, tensor and later call sees it.

use std::collections::BTreeSet;

use karat_optimized::serving::{Event, Part, Piece, Program};

/// Tensors whose loss takes away the last tokens before a request that resumes.
pub const RECENT: &[Part] = &[Part::Window];

/// Tensors whose loss takes away everything that is older than the window: main entries, and the index keys by which they
/// are found.
pub const HISTORY: &[Part] = &[Part::CsaEntries, Part::IndexKeys, Part::HcaEntries];

/// An abort gives the pages of these tensors back to the allocator, which hands them out as fresh, zeroed pages, while the
/// prefix cache keeps them in its tree: whoever finds that prefix later reads zeros. (After STATE-01, STATE-03 and STATE-04:
/// window rows and entries have different pools, and a release that forgets one of them forgets it alone.) Without an abort
/// nothing happens.
pub fn lose_after_abort(program: &mut Program, parts: &[Part]) {
    let is_done = |event: &Event| if let Event::Done { request, .. } = event { Some(*request) } else { None };
    let done: BTreeSet<usize> = program.events.iter().filter_map(is_done).collect();
    let pages = |piece: &Piece| -> BTreeSet<(u8, Part, u32)> {
        let of = |part: &Part| {
            let told = &piece.told;
            told.tables.of(part.pool()).pages.iter().map(|page| (told.instance, *part, *page)).collect::<Vec<_>>()
        };
        parts.iter().flat_map(of).collect()
    };
    let (mut given_back, mut resumed) = (BTreeSet::new(), BTreeSet::new());
    for event in std::mem::take(&mut program.events) {
        if let Event::Forward { pieces, .. } = &event {
            for piece in pieces {
                if !done.contains(&piece.request) {
                    given_back.extend(pages(piece));
                } else if resumed.insert(piece.request) && piece.told.seen > 0 {
                    let lost = pages(piece).into_iter().filter(|page| given_back.contains(page));
                    program.events.extend(lost.map(|(instance, part, page)| Event::Cleared { instance, part, page }));
                }
            }
        }
        program.events.push(event);
    }
}
