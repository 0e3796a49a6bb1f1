//! Ceilings of the machine, and products (goal P2), each taking turns with a peer.

use anyhow::Result;

use super::Setting;
use super::comparators::{self, pair_bytes};
use super::report::{Report, Row};
use super::turns::{Times, turns};
use super::worker::Worker;

/// Shapes m, n, k; the first two carry the goal.
const SHAPES: [(usize, usize, usize); 6] =
    [(2048, 2048, 2048), (64, 2048, 4096), (512, 2048, 4096), (16, 2048, 4096), (1, 2048, 4096), (2048, 24, 16384)];
/// Shapes with a goal.
const WITH_GOAL: usize = 2;

/// Measures and reports them.
pub(super) fn measure(setting: &Setting<'_>, report: &mut Report) -> Result<()> {
    let mut peer = setting.peer("kernels_worker.py")?;
    let (mut diff, ready) = setting.diff()?;
    report.versions(&peer.ask("versions")?, ready["isa"].as_str().unwrap_or("?"));
    ceilings(setting, report, &mut diff, &mut peer)?;
    products(setting, report, &mut diff, &mut peer)?;
    comparators::measure(setting, report, &mut diff, &mut peer)
}

/// Only which versions there are.
pub(super) fn versions(setting: &Setting<'_>, report: &mut Report) -> Result<()> {
    let mut peer = setting.peer("kernels_worker.py")?;
    report.versions(&peer.ask("versions")?, "");
    Ok(())
}

fn ceilings(setting: &Setting<'_>, report: &mut Report, diff: &mut Worker, peer: &mut Worker) -> Result<()> {
    let mib = setting.args.mib;
    println!("peers: ceilings");
    diff.ask("fma 20")?;
    for _ in 0..3 {
        let answer = diff.ask("fma 100")?;
        report.fma(answer["gflops"].as_f64().unwrap_or(f64::NAN));
    }
    let bytes = pair_bytes(mib);
    let (read, dot) = turns(2, || diff.seconds(&format!("read {mib}")), || peer.seconds(&format!("dot {mib}")))?;
    report.read(bytes / read.best() / 1e9, bytes / dot.best() / 1e9);
    Ok(())
}

fn products(setting: &Setting<'_>, report: &mut Report, diff: &mut Worker, peer: &mut Worker) -> Result<()> {
    let mut golden = setting.golden()?;
    for (i, (m, n, k)) in SHAPES.into_iter().enumerate() {
        println!("peers: product {m} x {n} x {k}");
        let flops = 2.0 * (m * n * k) as f64;
        let command = format!("{m} {n} {k}");
        let ours = || golden.seconds(&format!("product {command}"));
        let (ours, torch) = turns(setting.args.rounds, ours, || peer.seconds(&format!("product torch {command}")))?;
        let numpy = Times(vec![
            peer.seconds(&format!("product numpy {command}"))?,
            peer.seconds(&format!("product numpy {command}"))?,
        ]);
        // The processor's clock moves with what it does: the ceiling is taken again beside the shapes with a goal.
        if i < WITH_GOAL {
            report.fma(diff.ask("fma 50")?["gflops"].as_f64().unwrap_or(f64::NAN));
        }
        let speed = |t: &Times| flops / t.best() / 1e9;
        let share = speed(&ours) / report.fma_peak();
        report.product(Row {
            what: format!("{m} x {n} x {k}"),
            ours: speed(&ours),
            peers: vec![("torch.mm", speed(&torch)), ("numpy", speed(&numpy))],
            share,
            spread: ours.worst() / ours.best(),
        });
        if i < WITH_GOAL {
            report.goal("P2", &format!("product {m} x {n} x {k}: share of FMA peak"), share, 0.70, true);
            report.goal(
                "P2",
                &format!("product {m} x {n} x {k}: times torch.mm"),
                torch.best() / ours.best(),
                1.7,
                true,
            );
        }
    }
    Ok(())
}
