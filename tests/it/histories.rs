//! Histories on the mini geometry (window 16, ratios 4 and 16, pages of 16, chunks of 64): whatever an engine did to reach
//! a context, keys, values and logits are those of the path's own cold run, bit for bit, and golden's within 1e-5. And a
//! fault in the books, put in on purpose, is found in the numbers at its page, layer and position.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use karat_audit::{Checked, Checker, OfSequence};
use karat_model::{Checkpoint, new_model};
use karat_optimized::serving::{
    Action, Event, Geometry, Layout, PageRow, Paged, Part, Piece, Pool, Program, Row, Script, Served, Setup, Watch,
    Work,
};
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_seam::{NoTaps, Phase, Requests, Sequence};
use karat_tests::{bits, cold_run};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::optimized_drive::{ids, turns};

fn mini() -> Arc<Checkpoint> {
    static MINI: OnceLock<Arc<Checkpoint>> = OnceLock::new();
    let make = || Arc::new(Checkpoint::from_memory("mini", new_model(karat_model::Geometry::Mini, 6)).unwrap());
    Arc::clone(MINI.get_or_init(make))
}

fn geometry() -> Geometry {
    let geometry = Geometry::of(mini().config(), None).unwrap();
    assert_eq!((geometry.page, geometry.chunk()), (16, 64));
    geometry
}

fn plan(stock: Stock) -> Plan {
    Plan { stock, patches: vec![], history: History::Cold }
}

fn checker(stock: Stock, requests: &Requests) -> Checker {
    let mut checker = Checker::new(mini(), requests.clone(), plan(stock), geometry(), 2).unwrap();
    checker.run_golden().unwrap();
    checker
}

fn conversations() -> Requests {
    Requests { seqs: vec![turns("a", ids(105, 31), &[50, 11, 20, 24]), Sequence::prompt("b", ids(70, 32))] }
}

/// Bit-identical to the cold run; with golden's decisions, and within 1e-5 of its logits and KV content.
fn assert_right(what: &str, checked: &Checked) {
    let why = (&checked.difference, &checked.misplaced);
    assert!(checked.is_same(), "{what}: {why:?}");
    let golden = checked.golden.as_ref().unwrap();
    assert_eq!((golden.top, golden.decisions), (0, (0, 0)), "{what}");
    assert!(golden.logits <= 1e-5 && golden.content <= 1e-5, "{what}: {golden:?}");
    assert!(golden.mtp.is_none_or(|mtp| mtp <= 1e-5), "{what}: {golden:?}");
}

#[test]
fn every_history_is_the_cold_run_bit_for_bit_and_golden_within_1e_5() {
    let requests = conversations();
    let mut checker = checker(Stock::None, &requests);
    for history in Served::ALL {
        let checked = checker.check(history.name(), &history.script(&requests, geometry(), 5)).unwrap();
        assert_eq!(checked.facts.lacks(history), None);
        assert!(checked.compared > 1_000, "{history}: {}", checked.compared);
        assert_right(history.name(), &checked);
    }
}

#[test]
fn quantised_histories_are_the_cold_run_too() {
    let requests = conversations();
    let mut checker = checker(Stock::Official, &requests);
    for history in [Served::AfterAbort, Served::AfterTransfer, Served::Speculative] {
        let checked = checker.check(history.name(), &history.script(&requests, geometry(), 6)).unwrap();
        assert!(checked.is_same(), "{history}: {:?}", checked.difference);
    }
}

#[test]
fn drafts_of_the_mtp_block_are_verified_and_rolled_back() {
    let requests = conversations();
    for stock in [Stock::None, Stock::Official] {
        let mut checker = checker(stock, &requests);
        let drafts = checker.drafts().unwrap().expect("the model has an MTP block");
        let script = Served::Speculative.script(&requests, geometry(), 5).with_guesses(&drafts);
        let program = script.program().unwrap();
        // What is verified is what the block drafts.
        let pieces = program.pieces().map(|p| &program.rows[p.rows.clone()]);
        let verified: Vec<&Row> =
            pieces.filter(|rows| rows[0].phase == Phase::Decode).flat_map(|rows| &rows[1..]).collect();
        let drafted = |row: &&Row| drafts[row.id.seq as usize][row.id.pos as usize] == row.token;
        assert!(verified.len() > 20 && verified.iter().all(drafted), "{stock}");
        let checked = checker.check("speculative", &script).unwrap();
        assert!(checked.is_same(), "{stock}: {:?} {:?}", checked.difference, checked.misplaced);
        for of in &checked.sequences {
            let mtp = of.mtp.as_ref().unwrap();
            assert_eq!((mtp.compared as usize, mtp.differs), (requests_len(&requests, &of.name), 0), "{stock}");
        }
        if stock == Stock::None {
            assert_right("speculative", &checked);
            assert!(checked.golden.unwrap().mtp.is_some());
        }
    }
}

fn requests_len(requests: &Requests, name: &str) -> usize {
    requests.seqs.iter().find(|s| s.id == name).unwrap().ids.len()
}

/// Carried compressor rows are rounded where a forward call ends. With the cold run cut at the same places every history is
/// that run bit for bit; without the cuts it could not be.
#[test]
fn rounded_compressor_state_is_the_cold_run_that_is_cut_alike() {
    let requests = conversations();
    let plan = Plan { patches: vec!["bf16-compressor-state".into()], ..plan(Stock::Official) };
    let mut checker = Checker::new(mini(), requests.clone(), plan, geometry(), 2).unwrap();
    assert!(checker.rounds_state());
    checker.run_golden().unwrap();
    let mut logits = std::collections::BTreeSet::new();
    for history in Served::ALL {
        let checked = checker.check(history.name(), &history.script(&requests, geometry(), 6)).unwrap();
        assert!(checked.is_same(), "{history}: {:?} {:?}", checked.difference, checked.misplaced);
        assert!(checked.sequences.iter().all(|s| s.pages.compared > 100), "{history}");
        let kl = |of: &OfSequence| of.positions.iter().map(|(_, p)| p.kl.to_bits()).collect::<Vec<u64>>();
        logits.insert(checked.sequences.iter().map(kl).collect::<Vec<_>>());
    }
    assert!(logits.len() > 3, "the cuts are seen in the logits: {}", logits.len());
}

/// Pages don't change what a sequence alone computes: the cold history against the plain form, which has none.
#[test]
fn pages_change_no_bit_of_a_cold_run() {
    let requests = conversations();
    for stock in [Stock::None, Stock::Official] {
        let plain = Optimized::new(mini(), requests.clone(), plan(stock), 2).unwrap();
        let script = Served::Cold.script(&requests, geometry(), 9);
        let program = script.program().unwrap();
        let paged = Paged { name: "cold".into(), geometry: geometry(), program, watch: None };
        let paged = Optimized::serve(mini(), requests.clone(), plan(stock), paged, 2).unwrap();
        let (_, want) = cold_run(&plain, &mut NoTaps).unwrap();
        let (_, got) = cold_run(&paged, &mut NoTaps).unwrap();
        assert_eq!(bits(&got), bits(&want), "{stock}");
    }
}

/// Keeps every kv row that a run writes as the bytes of its page, and holds what a run reads against them.
#[derive(Default)]
struct Records(std::sync::Mutex<(BTreeMap<(u16, Part, u32), Vec<u8>>, usize)>);

/// Layout and unrotated channels of the rows of a part; `None` where rows are no such record.
fn record_of(part: Part) -> Option<(Layout, usize)> {
    let config = mini().config().clone();
    let is_record = matches!(part, Part::Window | Part::CsaEntries | Part::HcaEntries);
    is_record.then(|| (Layout::of(part, &config, &geometry()), config.nope_head_dim()))
}

impl Watch for Records {
    fn wrote(&self, row: &PageRow<'_>) {
        let (Some((layout, nope)), Some((page, at))) = (record_of(row.part), row.at) else { return };
        let mut kept = self.0.lock().unwrap();
        let bytes = kept.0.entry((row.layer, row.part, page)).or_insert_with(|| vec![0; layout.stride()]);
        layout.write_kv(bytes, at, nope, row.values).expect("the profile stores what its record holds");
    }

    fn read(&self, row: &PageRow<'_>) {
        let (Some((layout, nope)), Some((page, at))) = (record_of(row.part), row.at) else { return };
        let mut kept = self.0.lock().unwrap();
        let bytes = &kept.0[&(row.layer, row.part, page)];
        assert!(layout.read_kv(bytes, at, nope) == row.values, "layer {}, {:?}, page {page}", row.layer, row.part);
        kept.1 += 1;
    }
}

/// What attention reads under `official` is what an engine's page of 584-byte records (of this model's sizes) holds: every row,
/// bit for bit, through an eviction and pages that are written again.
#[test]
fn an_engine_s_records_hold_the_rows() {
    let requests = conversations();
    let program = Served::AfterEvict.script(&requests, geometry(), 5).program().unwrap();
    let records = Arc::new(Records::default());
    let paged = Paged { name: "records".into(), geometry: geometry(), program, watch: Some(records.clone()) };
    let path = Optimized::serve(mini(), requests, plan(Stock::Official), paged, 2).unwrap();
    cold_run(&path, &mut NoTaps).unwrap();
    let kept = records.0.lock().unwrap();
    assert!(kept.0.len() > 20 && kept.1 > 1_000, "{} pages, {} rows read", kept.0.len(), kept.1);
}

/// Histories of up to three sequences that share beginnings, with all that can happen to them.
fn scripts(requests: &Requests) -> impl Strategy<Value = Script> + use<> {
    let seqs: Vec<Arc<[u32]>> = requests.seqs.iter().map(|s| s.ids.clone()).collect();
    let action = prop_oneof![
        4 => (0usize..8).prop_map(Action::Submit),
        6 => (1usize..9).prop_map(Action::Steps),
        2 => (0usize..8).prop_map(Action::Abort),
        2 => (0usize..8).prop_map(Action::Evict),
        1 => Just(Action::Forget),
        3 => (0usize..8).prop_map(Action::Transfer),
    ];
    let decode = proptest::collection::vec(0usize..25, seqs.len());
    let company = proptest::collection::vec((0usize..seqs.len(), 2usize..60, 0usize..20, any::<bool>()), 0..4);
    let setup = (1usize..70, 1usize..5, 0usize..9, 1u8..3, any::<[bool; 3]>(), any::<u64>());
    let actions = proptest::collection::vec(action, 1..12);
    (setup, decode, company, actions).prop_map(
        move |((chunk, batch, spare, instances, [cache, graphs, speculative], seed), decode, company, actions)| {
            let geometry = Geometry { speculative, ..geometry() };
            let drafts = if speculative { 3 } else { 0 };
            let last = (0u32..).zip(seqs.iter().zip(&decode)).map(|(seq, (ids, decode))| {
                let end = ids.len() as u32;
                let decode = std::iter::once(end - (*decode as u32).min(end)..end).collect();
                Work { seq, ids: ids.clone(), decode, last: true, drafts, guesses: Arc::default() }
            });
            let mut works: Vec<Work> = last.collect();
            for (i, (of, len, decoded, strays)) in company.into_iter().enumerate() {
                // Part of a sequence, as an earlier request of it or as another conversation with the same beginning.
                let mut ids: Vec<u32> = seqs[of].iter().copied().take(len).collect();
                let end = ids.len() as u32;
                if strays {
                    ids.iter_mut().skip(len / 2).for_each(|id| *id = (*id + 1) % 512);
                }
                let seq = if i % 2 == 0 { of as u32 } else { (seqs.len() + i) as u32 };
                let decode = std::iter::once(end - (decoded as u32).min(end)..end).collect();
                works.push(Work { seq, ids: ids.into(), decode, last: false, drafts, guesses: Arc::default() });
            }
            let longest = seqs.iter().map(|ids| ids.len()).max().unwrap_or(1);
            let pages = geometry.pages(longest.max(60)) + spare;
            let setup = Setup { geometry, chunk, batch, pages, instances, cache, graphs, seed };
            Script { setup, works, actions }
        },
    )
}

#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn two_hundred_random_histories_end_where_the_cold_run_does() {
    // Sequence c shares its first 40 ids with a.
    let a = ids(90, 41);
    let c: Vec<u32> = a[..40].iter().copied().chain(ids(25, 43)).collect();
    let seqs = vec![Sequence::prompt("a", a), Sequence::prompt("b", ids(37, 42)), Sequence::prompt("c", c)];
    let requests = Requests { seqs };
    let checker = std::cell::RefCell::new(checker(Stock::None, &requests));
    let seen = std::cell::RefCell::new([0usize; 5]);
    TestRunner::new(Config { cases: 200, failure_persistence: None, max_shrink_iters: 100, ..Config::default() })
        .run(&scripts(&requests), |script| {
            let checked =
                checker.borrow_mut().check("random", &script).map_err(|e| TestCaseError::fail(e.to_string()))?;
            assert_right("random", &checked);
            let facts = checked.facts;
            let now = [facts.again, facts.reused, facts.moved, facts.padded, facts.freed];
            seen.borrow_mut().iter_mut().zip(now).for_each(|(sum, n)| *sum += n);
            Ok(())
        })
        .unwrap();
    // Each kind of event did happen; transfers need luck, so `after-transfer` has its own test.
    let [again, reused, _, padded, freed] = seen.into_inner();
    assert!([again, reused, padded, freed].iter().all(|n| *n > 10), "{again} {reused} {padded} {freed}");
}

/// Pieces of the request that brings sequence 0 to its end, to be changed.
fn last_pieces(program: &mut Program) -> Vec<&mut Piece> {
    let last = program.finals.iter().position(|f| *f).unwrap();
    let calls = program.events.iter_mut().filter_map(|event| match event {
        Event::Forward { pieces, .. } => Some(pieces),
        _ => None,
    });
    calls.flatten().filter(|piece| piece.request == last).collect()
}

/// Runs a history with a fault put into its program: what is found.
fn broken(history: Served, fault: impl Fn(&mut Program)) -> Checked {
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids(90, 51))] };
    let mut checker = Checker::new(mini(), requests.clone(), plan(Stock::None), geometry(), 2).unwrap();
    let script = history.script(&requests, geometry(), 3);
    let mut program = script.program().unwrap();
    fault(&mut program);
    checker.check_program(history.name(), script.setup.geometry, program).unwrap()
}

/// Layer, tensor and position of the first difference, and its page.
fn place(checked: &Checked) -> (Option<u16>, Option<Part>, usize, Option<u32>) {
    let d = checked.difference.as_ref().expect("the fault must be found in the numbers");
    (d.layer, d.part, d.position, d.at.map(|(page, _)| page))
}

#[test]
fn a_stale_compressor_state_after_an_abort_is_found() {
    let page = std::cell::Cell::new(0);
    let seen = std::cell::Cell::new(0);
    let checked = broken(Served::AfterAbort, |program| {
        program.events.retain(|event| !matches!(event, Event::Freed { .. }));
        // The resumed request's compressor is told the state page of the aborted one.
        let stale = program.pieces().filter(|p| p.request == 0).last().unwrap().told.state.pages[0];
        let first = last_pieces(program).into_iter().next().unwrap();
        first.told.state.pages[0] = stale;
        page.set(stale);
        seen.set(first.told.seen);
    });
    // Layer 1 is the first with a compressor; its overlap rows are the 4 before the prefix's end.
    assert_eq!(place(&checked), (Some(1), Some(Part::CsaState), seen.get() - 4, Some(page.get())));
    assert_eq!(checked.misplaced.unwrap().pos, seen.get() - 4);
}

#[test]
fn a_page_that_two_hold_after_an_eviction_is_found() {
    let page = std::cell::Cell::new(0);
    let checked = broken(Served::AfterEvict, |program| {
        let foreign = program.pieces().filter(|p| p.request == 0).map(|p| p.told.tables.of(Pool::Hca).clone());
        let foreign = foreign.max_by_key(|table| table.pages.len()).unwrap().pages[1];
        for piece in last_pieces(program).into_iter().filter(|p| p.told.seen >= 32) {
            piece.told.tables.of_mut(Pool::Hca).pages[1] = foreign;
        }
        page.set(foreign);
    });
    // Layer 2 is the heavily compressed one; its entry 1 stands for positions 16 to 31.
    assert_eq!(place(&checked), (Some(2), Some(Part::HcaEntries), 31, Some(page.get())));
}

#[test]
fn a_window_given_back_one_token_early_is_found() {
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids(90, 51))] };
    let mut checker = Checker::new(mini(), requests.clone(), plan(Stock::None), geometry(), 2).unwrap();
    let script = Served::Decoded.script(&requests, geometry(), 3);
    let mut program = script.program().unwrap();
    for piece in last_pieces(&mut program) {
        // A ring that is off by one row: the first page leaves when its last row is still seen.
        if piece.told.seen == 62 {
            piece.told.tables.of_mut(Pool::Window).drop_before(3);
        }
    }
    let checked = checker.check_program("off by one", script.setup.geometry, program).unwrap();
    assert_eq!(place(&checked), (Some(0), Some(Part::Window), 47, None));
}

#[test]
fn metadata_that_a_replay_did_not_refresh_is_found() {
    let checked = broken(Served::GraphReplayed, |program| {
        let mut stale = None;
        for piece in last_pieces(program) {
            if piece.rows.len() == 1 {
                let fresh = piece.told.clone();
                if let Some(old) = stale.replace(fresh) {
                    piece.told = old;
                }
            }
        }
    });
    let misplaced = checked.misplaced.as_ref().unwrap();
    let (have, told) = misplaced.seen;
    assert_eq!(have, told + 1, "{misplaced}");
    // In the numbers: the row of the last token is not read at all.
    let d = checked.difference.as_ref().unwrap();
    assert_eq!((d.layer, d.part, d.position, d.at), (Some(0), Some(Part::Window), told, None), "{d}");
    assert!(d.element.1.is_nan(), "{d}");
}

#[test]
fn a_tensor_that_a_transfer_left_behind_is_found() {
    for (part, layer) in [(Part::CsaState, 1), (Part::IndexKeys, 1), (Part::HcaState, 2), (Part::HcaEntries, 2)] {
        let checked = broken(Served::AfterTransfer, |program| {
            for event in &mut program.events {
                if let Event::Moved { copies, .. } = event {
                    copies.retain(|c| c.part != part);
                }
            }
        });
        let d = checked.difference.as_ref().unwrap();
        assert_eq!((d.layer, d.part), (Some(layer), Some(part)), "{d}");
        assert!(d.element.1.is_nan(), "a free page reads as NaN: {d}");
    }
}

#[test]
fn a_prefix_found_by_text_is_found() {
    let checked = broken(Served::Warm, |program| {
        // The earlier request had another id at position 20 with the same text: the cache was asked for the text.
        for row in program.rows.iter_mut().filter(|row| row.id.pos == 20 && row.id.pass == 0) {
            row.token = (row.token + 1) % 512;
        }
    });
    // Layer 0: the row itself is behind the window when the hit is read. Layer 1 has it in entry 5.
    let d = checked.difference.as_ref().expect("the fault must be found");
    assert!(d.position >= 20 && d.layer.is_some(), "{d}");
    assert_eq!((d.layer, d.part, d.position), (Some(1), Some(Part::CsaEntries), 23), "{d}");
}

#[test]
fn a_failing_history_shrinks() {
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids(60, 51))] };
    let mut checker = Checker::new(mini(), requests.clone(), plan(Stock::None), geometry(), 2).unwrap();
    let script = Served::AfterTransfer.script(&requests, geometry(), 3);
    let mut fails = |script: &Script| {
        let mut program = script.program().unwrap();
        for event in &mut program.events {
            if let Event::Moved { copies, .. } = event {
                copies.retain(|c| c.part != Part::HcaEntries);
            }
        }
        !checker.check_program("smaller", script.setup.geometry, program).unwrap().is_same()
    };
    assert!(fails(&script));
    let small = script.shrink(60, &mut fails);
    let transfers = small.actions.iter().filter(|a| matches!(a, Action::Transfer(_))).count();
    assert!(fails(&small) && transfers == 1 && small.actions.len() <= 3, "{:?}", small.actions);
}

#[test]
fn a_page_must_hold_whole_windows() {
    let error = Geometry::of(mini().config(), Some(24)).unwrap_err().to_string();
    assert!(error.contains("multiple of 16"), "{error}");
}
