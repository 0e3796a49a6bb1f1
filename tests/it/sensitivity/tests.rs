//! Two rows against a formula of their own; the page against itself. `cargo xtask sensitivity` writes the page.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use karat_audit::{Inputs, Job, Kept, Quiet};
use karat_faults::{Bench, PLACED};
use karat_model::Checkpoint;
use karat_optimized::{History, Optimized, Plan, Stock, patches};
use karat_reference::{Golden, Mode};
use karat_seam::{NoTaps, Requests};
use karat_tests::cold_run;

use super::measure::{all, measure, names};
use super::sample;

fn doc() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sensitivity.md")
}

/// Seconds that the command may take, or `all`.
const WRITE: &str = "KARAT_SENSITIVITY_WRITE";

#[test]
fn the_committed_lists_follow_from_the_committed_tables() {
    if let Some(limit) = std::env::var_os(WRITE) {
        let limit = limit.to_str().and_then(|s| s.parse().ok()).map(Duration::from_secs);
        if let Some(lines) = all(limit) {
            let checkpoint = Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap());
            let conversations = sample::whole(&checkpoint).requests.seqs.len();
            std::fs::write(doc(), super::page::page(&lines, conversations)).unwrap();
        }
        return;
    }
    let text = std::fs::read_to_string(doc()).unwrap();
    let part = |title: &str| text.split(&format!("\n## {title}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = |title: &str| -> Vec<Vec<String>> {
        let cells = |l: &str| l.trim_matches('|').split('|').map(|c| c.trim().to_string()).collect();
        part(title).lines().filter(|l| l.starts_with("| ")).skip(1).map(cells).collect()
    };
    let table = rows("Every row");
    assert_eq!(table.iter().map(|r| r[0].as_str()).collect::<Vec<_>>(), names(), "run cargo xtask sensitivity");
    // (name, sure answers lost, added KL), stock left out.
    let table: Vec<(String, u64, f64)> =
        table.iter().skip(1).map(|r| (r[0].clone(), r[2].parse().unwrap(), r[7].parse().unwrap())).collect();
    let without = table.iter().filter(|r| r.1 == 0).map(|r| r.2).fold(f64::MIN, f64::max);
    let with = table.iter().filter(|r| r.1 > 0).map(|r| r.2).fold(f64::MAX, f64::min);
    let listed = |title| rows(title).into_iter().map(|r| r[0].clone()).collect::<Vec<String>>();
    let (quiet, loud) =
        (listed("What recall catches and a mean KL barely sees"), listed("What a mean KL sees and recall doesn't"));
    for (name, lost, kl) in &table {
        // Numbers are rounded on the page: two that look equal are in either order.
        if *lost > 0 && *kl != without {
            assert_eq!(quiet.contains(name), *kl < without, "{name}");
        }
        if *lost == 0 && *kl != with {
            assert_eq!(loud.contains(name), *kl > with, "{name}");
        }
    }
    assert!(!quiet.is_empty() && !loud.is_empty(), "the page shows both");
    // Every row's parts add up to it.
    let whole = |cell: &str| -> (u64, u64) {
        let (kept, asked) = cell.split_once('/').unwrap_or(("0", "0"));
        (kept.parse().unwrap(), asked.parse().unwrap())
    };
    let recall = rows("Every row");
    for (row, parts) in recall.iter().zip(rows("By length and by margin")) {
        assert_eq!(row[0], parts[0]);
        let sum = |cells: &[String]| cells.iter().map(|c| whole(c)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        assert_eq!((sum(&parts[1..5]), sum(&parts[5..])), (whole(&row[1]), whole(&row[1])), "{row:?}");
    }
}

#[test]
fn every_fault_of_the_table_is_listed_once_and_every_patch_is_there() {
    let mut ids: Vec<&str> = names();
    let n = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), n), (n, 1 + patches().len() + 20));
    let families: std::collections::BTreeSet<&str> = PLACED.iter().map(|p| p.id.split('-').next().unwrap()).collect();
    assert!(families.len() >= 10, "{families:?}");
}

/// Natural log-probabilities of a row of logits.
fn log_probs(row: &[f32]) -> Vec<f64> {
    let most = row.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = row.iter().map(|v| f64::from(*v - most).exp()).sum();
    row.iter().map(|v| f64::from(*v) - f64::from(most) - sum.ln()).collect()
}

fn best(row: &[f32]) -> usize {
    (0..row.len()).rev().max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()
}

/// (mean KL, flips) over some rows of two runs, by hand.
fn divergence(golden: &[f32], other: &[f32], width: usize, rows: &[usize]) -> (f64, u64) {
    let (mut kl, mut flips) = (0.0, 0);
    for r in rows {
        let (g, c) = (&golden[r * width..(r + 1) * width], &other[r * width..(r + 1) * width]);
        let (lg, lc) = (log_probs(g), log_probs(c));
        kl += lg.iter().zip(&lc).map(|(g, c)| g.exp() * (g - c)).sum::<f64>();
        flips += u64::from(best(g) != best(c));
    }
    (kl / rows.len() as f64, flips)
}

#[test]
fn two_rows_have_the_values_of_a_formula_by_hand() {
    let checkpoint = Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap());
    let contents = vec![(sample::recipe("small", "maker = \"needle\"\ncontext = 300\nfacts = 2\nseed = 31"), None)];
    let inputs: Inputs = sample::inputs(&checkpoint, contents);
    let requests: Requests = inputs.requests.clone();
    let stop = AtomicBool::new(false);
    let job = Job { threads: 2, ..Job::new(checkpoint.clone(), inputs.clone(), &Quiet, &stop) };
    let kept = Kept::of(&job).unwrap();
    let golden = Golden::new(checkpoint.clone(), requests.clone(), Mode::F32, 2).unwrap();
    let golden = cold_run(&golden, &mut NoTaps).unwrap().1;
    let plan = |patches: &[&str]| Plan {
        stock: Stock::Official,
        patches: patches.iter().map(ToString::to_string).collect(),
        history: History::Decoded,
    };
    let patched = Optimized::new(checkpoint.clone(), requests.clone(), plan(&["fp8-lm-head"]), 2).unwrap();
    let patched = cold_run(&patched, &mut NoTaps).unwrap().1;
    let placed = PLACED.iter().find(|p| p.id == "BATCH-06").unwrap();
    let bench = Bench::on(karat_golden::files(), requests.clone(), plan(&[]), 2).unwrap();
    let broken = bench.with_fault(placed.fault(), |path| Ok(cold_run(path, &mut NoTaps)?.1)).unwrap();
    let ids = &requests.seqs[0].ids;
    let answers: Vec<usize> =
        inputs.asks[0].iter().flat_map(karat_scenarios::Ask::positions).map(|pos| pos - 1).collect();
    let every: Vec<usize> = (0..ids.len()).collect();
    let (g, width) = (golden.as_f32("golden").unwrap(), golden.width());
    for (name, logits) in [("fp8-lm-head", patched), ("BATCH-06", broken)] {
        let c = logits.as_f32("candidate").unwrap();
        let line = measure(name, &kept, &checkpoint, &inputs);
        println!("{line:?}");
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 + 1e-9 * b.abs();
        let (kl, flips) = divergence(g, c, width, &every);
        assert!(near(line.kl, kl) && line.flips == flips, "{name}: {kl:e}, {flips}; {line:?}");
        let (kl, flips) = divergence(g, c, width, &answers);
        assert!(near(line.answer_kl, kl) && line.answer_flips == flips, "{name}: {kl:e}, {flips}; {line:?}");
        assert_eq!((line.positions, line.answer_tokens), (every.len() as u64, answers.len() as u64));
        let given = |logits: &[f32], ask: &karat_scenarios::Ask| {
            ask.positions().all(|pos| best(&logits[(pos - 1) * width..pos * width]) == ids[pos] as usize)
        };
        let ours: Vec<_> = inputs.asks[0].iter().filter(|a| given(g, a)).collect();
        let theirs = ours.iter().filter(|a| given(c, a)).count() as u64;
        assert_eq!((line.all.asked, line.all.kept), (ours.len() as u64, theirs), "{name}");
        assert!(ours.len() >= 2 && kl > 0.0, "{name}: {kl}");
    }
}
