//! What contracts cost beside golden: time of one forward pass on the mini golden model, alternating in one process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use karat_model::Checkpoint;
use karat_optimized::{DEFAULT_PATCHES, History, Optimized, Plan, Stock, patches};
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

/// Golden and the candidates in turns; the best time of each, in golden's.
fn ratios(checkpoint: &Arc<Checkpoint>, n: usize, rounds: usize, plans: &[(Stock, Vec<String>)]) -> (f64, Vec<f64>) {
    let golden = Golden::new(Arc::clone(checkpoint), requests(n), Mode::F32, 2).unwrap();
    let plan = |(stock, patches): &(Stock, Vec<String>)| {
        let plan = Plan { stock: *stock, patches: patches.clone(), history: History::Cold };
        Optimized::new(Arc::clone(checkpoint), requests(n), plan, 2).unwrap()
    };
    let paths: Vec<Optimized> = plans.iter().map(plan).collect();
    let (mut base, mut best) = (f64::INFINITY, vec![f64::INFINITY; paths.len()]);
    for _ in 0..rounds {
        base = base.min(run(&golden).0);
        for (best, path) in best.iter_mut().zip(&paths) {
            *best = best.min(run(path).0);
        }
    }
    (base, best.into_iter().map(|b| b / base).collect())
}

/// A stock profile costs at most 4 golden passes, and any patch at most 6.
#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn a_contract_costs_few_golden_passes() {
    let checkpoint = Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap());
    let all = DEFAULT_PATCHES.map(str::to_string).to_vec();
    let plain = |stock| (stock, Vec::new());
    let plans = [plain(Stock::None), plain(Stock::Official), (Stock::Official, all)];
    let engines = [plain(Stock::Sglang), plain(Stock::Vllm)];
    for (n, plans) in [(512, &plans[..]), (2048, &plans[..]), (512, &engines[..])] {
        let (golden, found) = ratios(&checkpoint, n, 3, plans);
        println!("{n} tokens: golden {:.0} ms, contracts in golden's time:", golden * 1e3);
        for ((stock, patches), ratio) in plans.iter().zip(found) {
            println!("  {stock} {} {ratio:.2}x", patches.join(", "));
            assert!(ratio <= if patches.is_empty() { 4.0 } else { 6.0 }, "{stock} {patches:?}: {ratio:.2}");
        }
    }
    let each: Vec<(Stock, Vec<String>)> =
        patches().iter().map(|p| (Stock::Official, vec![p.name.to_string()])).collect();
    let (_, found) = ratios(&checkpoint, 192, 2, &each);
    for ((_, patches), ratio) in each.iter().zip(found) {
        println!("  192 tokens, official {}: {ratio:.2}x", patches[0]);
        assert!(ratio <= 6.0, "{patches:?}: {ratio:.2}");
    }
    let path = Optimized::new(
        Arc::clone(&checkpoint),
        requests(2048),
        Plan { stock: Stock::Official, patches: Vec::new(), history: History::Cold },
        2,
    );
    let mut spent: Vec<_> = run(&path.unwrap()).1.spent.into_inner().into_iter().collect();
    spent.sort_by_key(|(_, t)| std::cmp::Reverse(*t));
    let line = spent.iter().take(14).map(|(tap, t)| format!("{} {:.1}", tap.name(), t.as_secs_f64() * 1e3));
    println!("  official at 2048 tokens, ms by tap: {}", line.collect::<Vec<_>>().join(", "));
}
