//! Whole forward passes (goal P1): golden and transformers' model on the same checkpoint and prompt.

use std::cell::Cell;

use anyhow::{Context, Result};

use super::Setting;
use super::fidelity;
use super::report::{ModelRow, Report};
use super::turns::{turns, turns_at_once};
use super::worker::Worker;

/// Length and least times transformers' speed.
const GOALS: [(usize, f64); 3] = [(512, 6.0), (2048, 20.0), (8192, 60.0)];
/// Least times the speed of a cached step.
const DECODE_GOAL: f64 = 6.0;
/// Cached steps that are timed.
const STEPS: usize = 16;

/// Measures one length; both programs are new, so that their memory is this length's.
pub(super) fn measure(setting: &Setting<'_>, n: usize, report: &mut Report) -> Result<()> {
    println!("peers: model at {n} tokens");
    let (mut golden, mut peer) = (setting.golden()?, setting.peer("model_worker.py")?);
    // Where one pass takes a minute, its turn comes once, and only golden, which decodes its experts, warms up.
    let is_long = n > 4096;
    let rounds = if is_long { 1 } else { setting.args.rounds };
    let (cpu, peak) = ([Cell::new(f64::INFINITY), Cell::new(f64::INFINITY)], [Cell::new(0.0_f64), Cell::new(0.0)]);
    let forward = |worker: &mut Worker, i: usize| -> Result<f64> {
        let answer = worker.ask(&format!("forward {n}"))?;
        cpu[i].set(cpu[i].get().min(answer["cpu_seconds"].as_f64().unwrap_or(f64::NAN)));
        peak[i].set(peak[i].get().max(answer["peak_mib"].as_f64().unwrap_or(f64::NAN)));
        answer["seconds"].as_f64().context("no time")
    };
    let (ours, theirs) = if is_long {
        forward(&mut golden, 0)?;
        turns_at_once(rounds, || forward(&mut golden, 0), || forward(&mut peer, 1))?
    } else {
        turns(rounds, || forward(&mut golden, 0), || forward(&mut peer, 1))?
    };
    let (cpu, peak) = (cpu.map(|c| c.get()), peak.map(|p| p.get()));
    let decode = if is_long {
        None
    } else {
        let command = format!("decode {n} {STEPS}");
        Some(turns(1, || golden.seconds(&command), || peer.seconds(&command))?)
    };
    let ratio = theirs.best() / ours.best();
    if let Some((_, goal)) = GOALS.iter().find(|(len, _)| *len == n) {
        report.goal("P1", &format!("{n} tokens, times transformers' speed"), ratio, *goal, true);
    }
    if n == 8192 {
        report.goal("P1", "peak memory at 8192 tokens, GiB", peak[0] / 1024.0, 0.6, false);
    }
    if let Some((a, b)) = &decode {
        report.goal(
            "P1",
            &format!("a decode step behind {n} tokens, times transformers' speed"),
            b.best() / a.best(),
            DECODE_GOAL,
            true,
        );
    }
    report.model(ModelRow { n, ours, theirs, cpu, peak, decode: decode.map(|(a, b)| (a.best(), b.best())) });
    let stem = |name: &str| setting.folder.join(format!("{name}-{n}"));
    let [ours, forced, theirs] = [stem("golden"), stem("golden-forced"), stem("transformers")];
    println!("peers: decisions at {n} tokens");
    golden.ask(&format!("decisions {n} {}", ours.display()))?;
    peer.ask(&format!("decisions {n} {}", theirs.display()))?;
    golden.ask(&format!("forced {n} {} {}", theirs.display(), forced.display()))?;
    let found = fidelity::compare(&ours, &forced, &theirs, n)?;
    report.goal("P1", &format!("{n} tokens: logits rows, median rel-L2"), found.p50, 3e-6, false);
    report.goal(
        "P1",
        &format!("{n} tokens: rows above 1e-5 that no near-tie explains"),
        found.unexplained as f64,
        0.0,
        false,
    );
    report.fidelity(n, found);
    Ok(())
}
