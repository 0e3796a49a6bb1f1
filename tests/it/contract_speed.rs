//! What contracts cost beside golden: time of one forward pass on the mini golden model, alternating in one process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use karat_model::Checkpoint;
use karat_optimized::{History, Optimized, Plan, Stock, patches};
use karat_reference::{Golden, Mode};
use karat_seam::{Path, Requests, Result, RowId, Site, Tap, TensorMut, Visitor, Want};
use karat_tests::cold_run;

use crate::optimized_drive::{ids, turns};

/// Sees nothing, but knows when it was asked: the time between two taps is the op's that ends with the second.
#[derive(Default)]
struct Clock {
    last: RefCell<Option<Instant>>,
    spent: RefCell<BTreeMap<Tap, Duration>>,
}

impl Visitor for Clock {
    fn want(&self, at: Site) -> Want {
        let now = Instant::now();
        if let Some(last) = self.last.borrow_mut().replace(now) {
            *self.spent.borrow_mut().entry(at.tap).or_default() += now - last;
        }
        Want::Skip
    }

    fn visit(&mut self, _: Site, _: &[RowId], _: TensorMut<'_>) -> Result<()> {
        Ok(())
    }
}

fn run(path: &dyn Path) -> (f64, Clock) {
    let mut clock = Clock::default();
    let start = Instant::now();
    cold_run(path, &mut clock).unwrap();
    (start.elapsed().as_secs_f64(), clock)
}

/// The golden model, `n` tokens of which the last 32 are decoded.
fn requests(n: usize) -> Requests {
    Requests { seqs: vec![turns("a", ids(n, 5).into_iter().map(|i| i % 512).collect(), &[n - 32, 32])] }
}

/// Stock costs at most 4 golden passes and any patches at most 6 (the larger of both lengths would hide the other).
#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn a_contract_costs_few_golden_passes() {
    let checkpoint = Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap());
    let all: Vec<String> = patches().iter().map(|p| p.name.to_string()).collect();
    for n in [512, 2048] {
        let golden = Golden::new(Arc::clone(&checkpoint), requests(n), Mode::F32, 2).unwrap();
        let path = |stock, patches: &[String]| {
            let plan = Plan { stock, patches: patches.to_vec(), history: History::Cold };
            Optimized::new(Arc::clone(&checkpoint), requests(n), plan, 2).unwrap()
        };
        let paths = [path(Stock::None, &[]), path(Stock::Official, &[]), path(Stock::Official, &all)];
        let mut best = [f64::INFINITY; 4];
        for _ in 0..3 {
            best[0] = best[0].min(run(&golden).0);
            for (best, path) in best[1..].iter_mut().zip(&paths) {
                *best = best.min(run(path).0);
            }
        }
        let [g, none, official, patched] = best;
        println!(
            "{n} tokens: golden {:.0} ms, none {:.2}x, official {:.2}x, all patches {:.2}x",
            g * 1e3,
            none / g,
            official / g,
            patched / g
        );
        assert!(official <= 4.0 * g && patched <= 6.0 * g, "{n} tokens: stock or the patches cost more than they may");
        let mut spent: Vec<_> = run(&paths[1]).1.spent.into_inner().into_iter().collect();
        spent.sort_by_key(|(_, t)| std::cmp::Reverse(*t));
        let line: Vec<String> =
            spent.iter().take(14).map(|(tap, t)| format!("{} {:.1}", tap.name(), t.as_secs_f64() * 1e3)).collect();
        println!("  official, ms by tap: {}", line.join(", "));
    }
}
