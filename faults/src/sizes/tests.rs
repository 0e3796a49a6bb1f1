use std::path::{Path, PathBuf};
use std::time::Instant;

use super::*;
use crate::long::{Long, progress};

fn fault(id: &str) -> &'static Fault {
    crate::faults().into_iter().find(|f| f.id == id).unwrap()
}

fn tried_as(share: f32, outcome: Outcomes, by_rows: bool, rows: usize) -> Tried {
    let rows = (0..rows as u32).map(|i| (0, i)).collect();
    Tried { id: String::new(), amount: Amount::Share(share), outcome, named: None, added: None, rows, by_rows }
}

/// The search against a fault that is seen from a given size on.
fn threshold(least: f32, by_rows: bool, rows: usize) -> Vec<Tried> {
    let mut all: Vec<Tried> = Vec::new();
    while let Some(amount) = next(&all) {
        let size = match amount {
            Amount::Share(s) => s,
            Amount::Rows(n) => n as f32 / rows as f32,
        };
        let outcome = if size >= least { Outcomes::Named } else { Outcomes::Missed };
        all.push(Tried { amount, ..tried_as(1.0, outcome, by_rows, rows) });
    }
    all
}

#[test]
fn the_search_ends_within_a_factor_of_two() {
    let shares = |all: &[Tried]| all.iter().map(|t| t.amount).collect::<Vec<_>>();
    let share = Amount::Share;
    assert_eq!(
        shares(&threshold(0.05, false, 9)),
        [share(1.0), share(0.25), share(0.0625), share(0.015_625), share(0.031_25)]
    );
    assert_eq!(shares(&threshold(2.0, false, 9)), [share(1.0)], "what is never seen is tried once");
    assert_eq!(threshold(0.0, false, 9).len(), 9, "down to 4^-8");
    // A whole fault of 40 tolerances: a 32nd is tried first, and whether the guess was good doesn't matter.
    let tolerance = Some(0.01);
    let (tap, phase, part) = (String::new(), String::new(), String::new());
    let added = Some(Added { tap, phase, part, rel_l2: 0.4, tolerance, rows: 9 });
    let guessed = |least: f32| {
        let mut all = vec![Tried { added: added.clone(), ..tried_as(1.0, Outcomes::Named, false, 9) }];
        while let Some(Amount::Share(share)) = next(&all) {
            let outcome = if share >= least { Outcomes::Named } else { Outcomes::Missed };
            all.push(tried_as(share, outcome, false, 9));
        }
        let [.., a, b] = &all[..] else { panic!("{all:?}") };
        let (a, b) = if a.is_seen() { (a, b) } else { (b, a) };
        (all.len(), a.amount, b.amount)
    };
    assert_eq!(guessed(0.02), (3, share(1.0 / 32.0), share(1.0 / 64.0)));
    assert_eq!(guessed(0.01), (4, share(1.0 / 64.0), share(1.0 / 128.0)));
    assert_eq!(guessed(0.2), (4, share(0.25), share(0.125)));
    let rows = Amount::Rows;
    assert_eq!(shares(&threshold(0.05, true, 100)), [share(1.0), rows(25), rows(6), rows(1), rows(3)]);
    assert_eq!(shares(&threshold(0.0, true, 9)), [share(1.0), rows(2), rows(1)]);
    assert_eq!(shares(&threshold(0.0, true, 1)), [share(1.0)], "one row is the least");
}

/// Routing weights times 1.5, by a share of it: what is added is half of the share, whatever the weights are (to the rounding
/// of f32). The op alone is held to 1.6e-3: an eighth is far over it, 2^-12 of the fault under.
#[test]
fn a_fault_of_a_known_size_is_measured_seen_and_missed() {
    let size = |share: f32| (fault("ROUTE-01"), Amount::Share(share), Size::Share(share));
    let (tried, _) = Bench::new(2).unwrap().try_sizes(&[size(0.125), size(2f32.powi(-12))]).unwrap();
    let added = |t: &Tried| t.added.clone().unwrap();
    for (t, share) in tried.iter().zip([0.125, 2f32.powi(-12)]) {
        let a = added(t);
        assert_eq!((a.tap.as_str(), a.rows > 0, t.by_rows), ("ffn.wt", true, false));
        let by_hand = f64::from(0.5 * share);
        assert!((a.rel_l2 - by_hand).abs() < 1e-3 * by_hand + 6e-8, "{a:?}, by hand {by_hand}");
        assert_eq!(Tried::of_json(&t.to_json()).as_ref(), Some(t), "a kept line is what was tried");
    }
    assert_eq!(tried.iter().map(|t| t.outcome).collect::<Vec<_>>(), [Outcomes::Named, Outcomes::Missed]);
    assert!(added(&tried[0]).over() > 1.0 && added(&tried[1]).over() < 1.0);
}

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/fault-sizes.md")
}

/// With the file of kept results in the environment this is `cargo xtask faults --sizes`.
#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn the_committed_page_has_every_fault_that_is_no_control() {
    if let Some(long) = Long::of_environment() {
        let mut kept = long.kept();
        let (start, bench) = (Instant::now(), Bench::new(2).unwrap());
        let goes_on = || start.elapsed() < Long::limit();
        if search(&bench, &sized(), &mut kept, &goes_on, &|text| progress(start, text)).unwrap() {
            std::fs::write(committed(), page(&tried(&kept))).unwrap();
        }
        return;
    }
    let text = std::fs::read_to_string(committed()).unwrap();
    let ids: Vec<&str> = text
        .lines()
        .skip_while(|l| !l.starts_with("| fault | made"))
        .skip(2)
        .filter_map(|l| l.split(" | ").next()?.strip_prefix("| "))
        .collect();
    assert_eq!(ids, sized().iter().map(|f| f.id).collect::<Vec<_>>(), "`cargo xtask faults --sizes` writes it anew");
}
