//! Books broken on purpose: each fault must be found at its page, layer and position.

use karat_seam::{Requests, Sequence};

use super::random::layers;
use crate::serving::*;

const MINI: Geometry = Geometry { page: 16, window: 16, csa: 4, hca: 16, speculative: false };

fn requests() -> Requests {
    let ids: Vec<u32> = (0..90).map(|p| (p * 37 + p * p % 17) % 400).collect();
    Requests { seqs: vec![Sequence::prompt("a", ids)] }
}

fn program(history: Served) -> Program {
    history.script(&requests(), MINI, 3).program().unwrap()
}

fn found(program: &Program) -> Misplaced {
    check_owners(program, &MINI, layers(&MINI)).expect("the fault must be found")
}

/// Every piece that serves a request, to be changed.
fn pieces(program: &mut Program, request: usize) -> impl Iterator<Item = &mut Piece> {
    let calls = program.events.iter_mut().filter_map(|event| match event {
        Event::Forward { pieces, .. } => Some(pieces),
        _ => None,
    });
    calls.flatten().filter(move |piece| piece.request == request)
}

#[test]
fn a_compressor_state_of_the_aborted_request_is_found() {
    let mut program = program(Served::AfterAbort);
    // The next request's kernel addresses the compressor state by a window page of the aborted one, which nobody cleared.
    program.events.retain(|event| !matches!(event, Event::Freed { .. }));
    let stale = pieces(&mut program, 0).last().unwrap().told.state.pages[0];
    let next = pieces(&mut program, 1).next().unwrap();
    let seen = next.told.seen;
    assert!(seen > 0, "the aborted request left a prefix");
    next.told.state.pages[0] = stale;
    let found = found(&program);
    assert_eq!((found.request, found.layer, found.part), (1, 1, Part::CsaState), "{found}");
    assert_eq!((found.pos, found.at.map(|(page, _)| page)), (seen - 4, Some(stale)), "the overlap rows: {found}");
    assert!(matches!(found.found, Owner::Token { pos, .. } if pos as usize > seen), "{found}");
}

#[test]
fn a_page_shared_after_eviction_is_found() {
    let mut program = program(Served::AfterEvict);
    // Request 0 is company; request 1 goes on with a page that company holds.
    let foreign = pieces(&mut program, 0).last().unwrap().told.tables.of(Pool::Csa).pages[1];
    for piece in pieces(&mut program, 1).filter(|p| p.told.tables.of(Pool::Csa).end() > 1) {
        piece.told.tables.of_mut(Pool::Csa).pages[1] = foreign;
    }
    let found = found(&program);
    assert_eq!(
        (found.layer, found.part, found.at.map(|(page, _)| page)),
        (1, Part::CsaEntries, Some(foreign)),
        "{found}"
    );
    assert!((16..32).contains(&found.pos), "{found}");
}

#[test]
fn a_window_off_by_one_is_found() {
    let geometry = Geometry { hca: 8, ..MINI };
    // The scheduler gives a page back one token before the last reader of its last row has run.
    let early = Geometry { window: 15, ..geometry };
    let program = Served::Decoded.script(&requests(), early, 3).program().unwrap();
    assert_eq!(check_owners(&program, &early, layers(&early)), None);
    let found = check_owners(&program, &geometry, layers(&geometry)).expect("the fault must be found");
    // Tokens 60 to 89 are decoded; at 62 row 47 is still seen, and its page (32 to 47) is gone.
    assert_eq!((found.layer, found.part, found.pos, found.seen), (0, Part::Window, 47, (62, 62)), "{found}");
    assert_eq!(found.at, None);
}

#[test]
fn a_ring_that_drafts_wrap_is_found() {
    // Rings of 2r rows where drafts are verified: what a rejected draft overwrote is still needed.
    let broken = (0..8).filter_map(|seed| {
        let mut script = Served::Speculative.script(&requests(), MINI, seed);
        assert_eq!(check_owners(&script.program().unwrap(), &script.setup.geometry, layers(&MINI)), None);
        script.setup.geometry.speculative = false;
        check_owners(&script.program().unwrap(), &MINI, layers(&MINI))
    });
    let broken: Vec<Misplaced> = broken.collect();
    assert!(broken.len() > 4, "drafts are rejected in most seeds: {broken:?}");
    for found in broken {
        assert_eq!((found.layer, found.part), (1, Part::CsaState), "{found}");
        assert!(matches!(found.found, Owner::Token { pos, .. } if pos as usize == found.pos + 8), "{found}");
    }
}

#[test]
fn metadata_of_the_call_before_is_found() {
    let mut program = program(Served::GraphReplayed);
    let mut last: Option<Told> = None;
    let request = program.finals.iter().position(|f| *f).unwrap();
    for piece in pieces(&mut program, request) {
        let fresh = piece.told.clone();
        if let Some(stale) = last.replace(fresh) {
            piece.told = stale;
        }
    }
    let found = found(&program);
    assert_eq!(found.request, request);
    assert_ne!(found.seen.0, found.seen.1, "{found}");
    assert!(found.to_string().contains("the kernel was told"), "{found}");
}

#[test]
fn a_tensor_that_stays_behind_in_a_transfer_is_found() {
    for (part, layer) in
        [(Part::CsaState, 1), (Part::HcaState, 2), (Part::IndexKeys, 1), (Part::HcaEntries, 2), (Part::Window, 0)]
    {
        let mut program = program(Served::AfterTransfer);
        for event in &mut program.events {
            if let Event::Moved { copies, .. } = event {
                copies.retain(|c| c.part != part);
            }
        }
        let found = found(&program);
        assert_eq!((found.layer, found.part, found.found), (layer, part, Owner::Free), "{found}");
    }
    // One layer's only.
    let mut program = program(Served::AfterTransfer);
    for event in &mut program.events {
        if let Event::Moved { copies, .. } = event {
            copies.iter_mut().filter(|c| c.part == Part::Window).for_each(|c| c.layers = 0..2);
        }
    }
    assert_eq!(found(&program).layer, 2);
}

#[test]
fn a_prefix_hit_by_text_is_found() {
    // Two ids that look alike as text, in the page that the warm request finds: the tree was asked for the text.
    let mut program = program(Served::Warm);
    let (_, context) = &program.requests[0];
    let mut other = context.to_vec();
    other[20..].iter_mut().for_each(|hash| *hash ^= 1);
    for piece in
        program.events.iter().filter_map(|e| if let Event::Forward { pieces, .. } = e { Some(pieces) } else { None })
    {
        for piece in piece.iter().filter(|p| p.request == 0) {
            for row in &mut program.rows[piece.rows.clone()] {
                row.prefix = other[row.id.pos as usize];
            }
        }
    }
    program.requests[0].1 = other.into();
    let found = found(&program);
    assert_eq!(found.request, 1);
    assert!(found.pos >= 20, "{found}");
}

#[test]
fn a_failing_history_shrinks_to_what_it_needs() {
    let script = Served::Batched.script(&requests(), MINI, 3);
    // Fails when two requests are ever in one forward call.
    let fails = |script: &Script| {
        let program = script.program().unwrap();
        program.events.iter().any(|e| matches!(e, Event::Forward { pieces, .. } if pieces.len() > 1))
    };
    assert!(fails(&script));
    let small = script.shrink(2000, fails);
    assert!(fails(&small));
    assert!(small.works.len() <= 2 && small.actions.len() <= 2, "{small:?}");
}
