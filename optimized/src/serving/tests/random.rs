//! State-machine property test: random clients and memory pressure, with owner tags as the content of the pages.

use karat_model::config::LayerKind;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::serving::*;

/// One layer of each kind.
pub(super) fn layers(geometry: &Geometry) -> Vec<(u16, LayerKind)> {
    let mut kinds = vec![(0, LayerKind::Sliding)];
    if geometry.csa > 0 {
        kinds.push((1, LayerKind::Csa { ratio: geometry.csa }));
    }
    if geometry.hca > 0 {
        kinds.push((2, LayerKind::Hca { ratio: geometry.hca }));
    }
    kinds
}

/// Ids of a sequence: the first `shared` as every other sequence has them.
fn ids(seq: u32, shared: usize, len: usize) -> Vec<u32> {
    (0..len as u32).map(|p| if (p as usize) < shared { p } else { 1000 * (seq + 1) + p }).collect()
}

fn geometries() -> impl Strategy<Value = Geometry> {
    // Mini geometry, a smaller one, one whose compressor outlasts the window, one without compressors.
    let one = prop_oneof![
        4 => Just((16, 16, 4, 16)),
        2 => Just((8, 6, 2, 4)),
        1 => Just((16, 4, 4, 16)),
        1 => Just((4, 5, 0, 0)),
    ];
    (one, any::<bool>()).prop_map(|((page, window, csa, hca), speculative)| Geometry {
        page,
        window,
        csa,
        hca,
        speculative,
    })
}

fn works(geometry: Geometry) -> impl Strategy<Value = Vec<Work>> {
    // Rings of 2r rows hold the rows that one rejected draft may not overwrite; twice that, r + 1 of them.
    let most = if geometry.speculative { geometry.csa.clamp(1, 3) } else { 0 };
    let one = (0u32..3, 0usize..48, 1usize..96, 0usize..40, any::<bool>(), 0..=most);
    proptest::collection::vec(one, 1..7).prop_map(|all| {
        let mut last = [false; 3];
        let make = |(seq, shared, len, decoded, is_last, drafts): (u32, usize, usize, usize, bool, usize)| {
            let is_last = is_last && !std::mem::replace(&mut last[seq as usize], is_last);
            let ids = ids(if is_last { seq } else { seq + 3 * (len as u32 % 2) }, shared, len);
            let end = ids.len() as u32;
            let decode = std::iter::once(end.saturating_sub(decoded as u32)..end).collect();
            Work { seq, ids: ids.into(), decode, last: is_last, drafts, guesses: std::sync::Arc::default() }
        };
        all.into_iter().map(make).collect()
    })
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let request = 0usize..60;
    let one = prop_oneof![
        5 => request.clone().prop_map(Action::Submit),
        6 => (1usize..12).prop_map(Action::Steps),
        3 => request.clone().prop_map(Action::Abort),
        3 => request.clone().prop_map(Action::Evict),
        1 => Just(Action::Forget),
        6 => request.clone().prop_map(Action::Transfer),
    ];
    // Somebody is served when the rest begins: what happens to nobody proves nothing.
    let begun = (request, 1usize..5, 1usize..6).prop_map(|(i, requests, n)| {
        (i..i + requests).map(Action::Submit).chain([Action::Steps(n)]).collect::<Vec<_>>()
    });
    (begun, proptest::collection::vec(one, 1..14)).prop_map(|(begun, rest)| begun.into_iter().chain(rest).collect())
}

/// Any history.
pub(super) fn scripts() -> impl Strategy<Value = Script> {
    let setup = (geometries(), 1usize..50, 1usize..6, 0usize..8, 1u8..3, any::<[bool; 2]>(), any::<u64>());
    setup.prop_flat_map(|(geometry, chunk, batch, spare, instances, [cache, graphs], seed)| {
        // From just enough for the longest request up: the fewer, the more evictions.
        let pages = geometry.pages(96) + spare * 16 / geometry.page;
        let setup = Setup { geometry, chunk, batch, pages, instances, cache, graphs, seed };
        (works(geometry), actions()).prop_map(move |(mut works, actions)| {
            let n = works.len();
            if graphs {
                // Graphs are captured for one row a request: with drafts few batches would be replayed.
                works.iter_mut().for_each(|work| work.drafts = 0);
            }
            let actions = actions.into_iter().map(|action| match action {
                Action::Submit(i) => Action::Submit(i % n),
                Action::Abort(i) => Action::Abort(i % n),
                Action::Evict(i) => Action::Evict(i % n),
                Action::Transfer(i) => Action::Transfer(i % n),
                other => other,
            });
            Script { setup, works, actions: actions.collect() }
        })
    })
}

/// Runs a history. Errors: a leak, books that don't balance, a row that isn't its reader's.
fn run(script: &Script) -> Result<Tally, String> {
    let (mut wrong, mut leaked, mut tally) = (None, 0, Tally::default());
    let program = script.watch(|engine| {
        leaked = engine.leaked();
        tally = engine.tally();
        if wrong.is_none() {
            wrong = engine.audit();
        }
    });
    let program = program.map_err(|e| e.to_string())?;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    if leaked > 0 {
        return Err(format!("{leaked} pages were never given back"));
    }
    let (ends, lasts) = (program.done().count(), script.works.iter().filter(|w| w.last).count());
    if ends != lasts {
        return Err(format!("{ends} of {lasts} sequences reached their end"));
    }
    match check_owners(&program, &script.setup.geometry, layers(&script.setup.geometry)) {
        Some(misplaced) => Err(misplaced.to_string()),
        None => Ok(tally),
    }
}

#[test]
fn ten_thousand_random_histories_lose_no_page_and_read_no_row_of_another() {
    let histories = std::cell::RefCell::new([0usize; 10]);
    TestRunner::new(Config { cases: 10_000, failure_persistence: None, ..Config::default() })
        .run(&scripts(), |script| {
            let tally = run(&script).map_err(TestCaseError::fail)?;
            let mut histories = histories.borrow_mut();
            histories.iter_mut().zip(tally.all()).for_each(|(n, (_, times))| *n += usize::from(times > 0));
            Ok(())
        })
        .unwrap();
    // The test is worth what it reached: each kind of event in at least 500 of the histories.
    let histories: Vec<(&str, usize)> =
        Tally::default().all().into_iter().zip(histories.into_inner()).map(|((name, _), n)| (name, n)).collect();
    assert!(histories.iter().all(|(_, n)| *n >= 500), "{histories:?}");
}
