//! `karat bisect`: the smallest patch set, the first layer, op, position or history that makes a run bad.
//!
//! `search` decides what to ask; `desk` answers from the replay file or has it measured, and keeps the books; `rig` runs
//! patch sets as lanes of one weight pass, with every layer that is known already taken from the shelf.

mod along;
mod check;
mod desk;
mod distance;
mod replay;
mod rig;
pub mod search;
mod served;
mod shelf;
mod stage;
mod verdicts;
mod visit;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use karat_model::Error as Message;
use karat_optimized::{History, Plan, Stock};
use serde::Serialize;

pub use check::{Check, VARIABLE, check_names};
pub use desk::{Asked, Work};
pub use distance::Metric;
pub use rig::Change;
pub use served::Books;
pub use stage::{Ended, Over, Stage};

pub(crate) use check::set_name;
pub(crate) use distance::Distance;
pub(crate) use rig::Rig;
pub(crate) use served::{Histories as HistoryRuns, differs};

use self::along::Measure;
use self::desk::Desk;
use self::replay::{Identity, Measured, Replay, Seen};
use self::search::{Minimal, Noise, minimal};
use crate::progress::Progress;
use crate::{Job, Result, Subject, finish};

/// What makes a patch set bad.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Criterion {
    /// The audit's verdict is fail.
    Verdict,
    /// A measure is over a limit; without one over half of what it is in all, which patch sets can't be judged by.
    Over(Metric, Option<f64>),
}

/// What to search, and how.
pub struct Bisect<'a> {
    /// Along what.
    pub over: Over,
    /// Stock profile under the patches.
    pub stock: Stock,
    /// The patches: searched along that axis, and all of them on along the others.
    pub patches: Vec<String>,
    /// How the requests are served.
    pub history: History,
    /// What is bad. Along layers, ops and positions a verdict has no meaning: there it is half of the mean KL.
    pub criterion: Criterion,
    /// The layer whose ops are searched (the number of layers for the head); the first bad one without.
    pub layer: Option<u16>,
    /// Where answers are kept, and taken from.
    pub replay: Option<PathBuf>,
    /// Changes numbers of patch sets under way.
    pub change: Option<&'a Change<'a>>,
}

/// What came of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BisectReport {
    /// Name of the model, or the command.
    pub subject: String,
    /// Scenarios with their rows; empty for a command.
    pub scenarios: Vec<String>,
    /// Stock profile; empty for a command.
    pub stock: String,
    /// The patches that were searched.
    pub patches: Vec<String>,
    /// Axis by axis.
    pub stages: Vec<Stage>,
    /// Every question with its answer, in order.
    pub questions: Vec<Asked>,
    /// What it took.
    pub work: Work,
    /// What it rests on and is no evidence for: what a profile assumes, among others.
    pub notes: Vec<String>,
    /// Wall time.
    pub seconds: f64,
}

impl BisectReport {
    /// Exit code, for `git bisect run` too: 1 when something bad was found, 125 when it could not be told, 0 otherwise.
    /// What is only a share of the whole (no limit was given) is not bad by itself.
    pub fn exit_code(&self) -> u8 {
        let is_bad = |s: &Stage| s.is_absolute && s.ended == Ended::Found;
        if self.stages.iter().any(is_bad) {
            return 1;
        }
        if self.stages.iter().any(|s| s.ended == Ended::Undecided) { 125 } else { 0 }
    }
}

/// Searches with the optimized path's own numbers.
///
/// # Errors
/// As [`crate::audit`], and those of the replay file.
pub fn bisect(job: &Job<'_>, ask: &Bisect<'_>) -> Result<BisectReport> {
    let start = Instant::now();
    // Names, options and conflicts are told before anything runs.
    Plan { stock: ask.stock, patches: ask.patches.clone(), history: ask.history }.check()?;
    let layers = job.checkpoint.config().num_hidden_layers();
    if let Some(l) = ask.layer.filter(|l| usize::from(*l) > layers) {
        return Err(Message::usage("no such layer")
            .at("--layer")
            .expected(format!("0 to {layers}, which is the head"))
            .found(l)
            .into());
    }
    if ask.change.is_some() && ask.criterion == Criterion::Verdict && matches!(ask.over, Over::Patches | Over::All) {
        return Err(Message::usage("a verdict has no meaning for numbers that are changed under way").into());
    }
    let replay = ask.replay.as_deref().map(|file| Replay::open(file, &identity(job, ask))).transpose()?;
    let mut desk = Desk::new(replay, None, job.progress, job.stop);
    let mut rig = Rig::new(job, ask.stock, ask.history, ask.change);
    let stages = stages(&mut desk, &mut rig, ask)?;
    let name = |s: karat_bundle::Scenario| format!("{}: {} rows", s.name, s.rows);
    Ok(BisectReport {
        subject: job.checkpoint.label().to_string(),
        scenarios: job.provenance().scenarios.into_iter().map(name).collect(),
        stock: ask.stock.name().to_string(),
        patches: ask.patches.clone(),
        stages,
        questions: desk.asked,
        work: desk.work,
        notes: finish::limits(job, !ask.patches.is_empty(), Some(ask.stock)),
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn stages(desk: &mut Desk<'_>, rig: &mut Rig<'_>, ask: &Bisect<'_>) -> Result<Vec<Stage>> {
    let is_asked = |over| ask.over == over || ask.over == Over::All;
    let by = match ask.criterion {
        Criterion::Verdict => Measure { metric: Metric::Kl, limit: None },
        Criterion::Over(metric, limit) => Measure { metric, limit },
    };
    let mut out = Vec::new();
    // What the axes behind the patches look at.
    let mut set = ask.patches.clone();
    if is_asked(Over::Patches) {
        let stage = patches(desk, rig, ask)?;
        if stage.ended == Ended::Found {
            set.clone_from(&stage.found);
        }
        out.push(stage);
    }
    if is_asked(Over::Layers) || (is_asked(Over::Ops) && ask.layer.is_none()) {
        let (stage, layer) = along::layers(desk, rig, &set, by)?;
        out.push(stage);
        if let Some(l) = layer.filter(|_| is_asked(Over::Ops)) {
            out.push(along::ops(desk, rig, &set, l, by)?.0);
        }
    } else if let Some(l) = ask.layer.filter(|_| is_asked(Over::Ops)) {
        out.push(along::ops(desk, rig, &set, l, by)?.0);
    }
    if is_asked(Over::Tokens) {
        // The limit of a mean is none of a position.
        let by = if ask.over == Over::All { Measure { limit: None, ..by } } else { by };
        out.push(along::tokens(desk, rig, &set, by)?);
    }
    if is_asked(Over::Histories) {
        out.push(served::histories(desk, rig, &set)?);
    }
    Ok(out)
}

/// The layer that brings most of a set's mean KL, and its op.
pub(crate) fn layer_and_op(rig: &mut Rig<'_>, set: &[String]) -> Result<(Stage, Option<Stage>)> {
    let job = rig.job;
    let mut desk = Desk::new(None, None, job.progress, job.stop);
    let by = Measure { metric: Metric::Kl, limit: None };
    let (stage, layer) = along::layers(&mut desk, rig, set, by)?;
    let op = layer.map(|l| along::ops(&mut desk, rig, set, l, by)).transpose()?;
    Ok((stage, op.map(|(op, _)| op)))
}

/// The smallest bad set of a subject's patches.
pub(crate) fn smallest_set(rig: &mut Rig<'_>, subject: &Subject, criterion: Criterion) -> Result<Stage> {
    let job = rig.job;
    let mut desk = Desk::new(None, None, job.progress, job.stop);
    let Subject { stock, patches: list, history } = subject.clone();
    let ask = Bisect {
        over: Over::Patches,
        stock,
        patches: list,
        history,
        criterion,
        layer: None,
        replay: None,
        change: None,
    };
    patches(&mut desk, rig, &ask)
}

/// The smallest bad patch set.
fn patches(desk: &mut Desk<'_>, rig: &mut Rig<'_>, ask: &Bisect<'_>) -> Result<Stage> {
    let subject = Subject { stock: ask.stock, patches: ask.patches.clone(), history: ask.history };
    let (limit, criterion) = match ask.criterion {
        Criterion::Verdict => (f64::INFINITY, "the audit fails".to_string()),
        Criterion::Over(metric, Some(limit)) => (limit, format!("{} over {limit:.3e}", metric.unit())),
        Criterion::Over(metric, None) => {
            let what = format!("--metric {} over patches needs --limit: the largest value that is good", metric.name());
            return Err(Message::usage(what).into());
        }
    };
    let found = over_sets(desk, &ask.patches, limit, &mut |sets| match ask.criterion {
        Criterion::Verdict => verdicts::measure(rig, &subject, sets),
        Criterion::Over(metric, _) => {
            let before = rig.work();
            rig.golden()?;
            let mut golden = rig.work() - before;
            let mut out = Vec::new();
            for (logits, cost) in rig.sets(sets)? {
                let seen = Seen::Value(rig.distance(&logits)?.value(metric));
                // Golden ran once, for the first of them.
                out.push(Measured { seen, note: String::new(), cost: cost + std::mem::take(&mut golden) });
            }
            Ok(out)
        }
    })?;
    Ok(stage_of(&found, &ask.patches, criterion))
}

/// Asks for whole sets by name.
fn over_sets(
    desk: &mut Desk<'_>,
    patches: &[String],
    limit: f64,
    measure: &mut dyn FnMut(&[Vec<String>]) -> Result<Vec<Measured>>,
) -> Result<Minimal> {
    let named = |set: &Vec<usize>| -> Vec<String> { set.iter().map(|i| patches[*i].clone()).collect() };
    minimal(patches.len(), &mut |sets: &[Vec<usize>]| {
        let sets: Vec<Vec<String>> = sets.iter().map(named).collect();
        let questions: Vec<String> = sets.iter().map(|set| format!("patches {}", set_name(set))).collect();
        desk.answers(&questions, limit, &mut |which| {
            measure(&which.iter().map(|i| sets[*i].clone()).collect::<Vec<_>>())
        })
    })
}

fn stage_of(found: &Minimal, patches: &[String], criterion: String) -> Stage {
    let names = |which: &[usize]| -> Vec<String> { which.iter().map(|i| patches[*i].clone()).collect() };
    let (ended, found, sentence) = match found {
        Minimal::AllGood => (Ended::Nothing, vec![], "with all patches it is good: nothing to look for".to_string()),
        Minimal::BadWithout => {
            let sentence = "it is bad without any of the patches: none of them is the cause".to_string();
            (Ended::Found, vec![], sentence)
        }
        Minimal::Untested => {
            let sentence = "all patches together, or none of them, could not be tested".to_string();
            (Ended::Undecided, vec![], sentence)
        }
        Minimal::Set { elements, unsure } => {
            let set = names(elements);
            let sentence = match (set.len(), unsure.len()) {
                (1, 0) => format!("{} alone makes it bad", set[0]),
                (_, 0) => format!("{} together make it bad, and without any one of them it is good", set.join(" and ")),
                _ => format!(
                    "{} make it bad; whether {} can be left out could not be tested",
                    set.join(" and "),
                    names(unsure).join(" or ")
                ),
            };
            let ended = if unsure.is_empty() { Ended::Found } else { Ended::Undecided };
            (ended, set, sentence)
        }
    };
    Stage { over: Over::Patches, ended, found, sentence, criterion, is_absolute: true, share: None }
}

/// How a command is asked.
pub struct Asking<'a> {
    /// How noisy its answers are.
    pub noise: Option<Noise>,
    /// Where answers are kept, and taken from.
    pub replay: Option<PathBuf>,
    /// Hears how far it is.
    pub progress: &'a dyn Progress,
    /// Ends the search between two runs.
    pub stop: &'a AtomicBool,
}

/// Searches patch sets with a command as the judge. The names need not be patches that karat knows.
///
/// # Errors
/// Usage: names that can't stand in a command line; an exit code that is no answer. Those of the replay file.
pub fn bisect_check(check: &Check, patches: &[String], asking: &Asking<'_>) -> Result<BisectReport> {
    let start = Instant::now();
    check_names(patches)?;
    let fields = [
        ("command", check.command.clone()),
        ("patches", patches.join(",")),
        ("noise", asking.noise.map_or("none".to_string(), |n| format!("{} within {}", n.wrong, n.error))),
    ];
    let identity: Identity = fields.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    let replay = asking.replay.as_deref().map(|file| Replay::open(file, &identity)).transpose()?;
    let mut desk = Desk::new(replay, asking.noise, asking.progress, asking.stop);
    let mut commands = 0;
    let found = over_sets(&mut desk, patches, f64::INFINITY, &mut |sets| {
        let one = |set: &Vec<String>| {
            commands += 1;
            let answer = check.run(set, asking.stop)?;
            Ok(Measured { seen: Seen::Answer(answer), note: String::new(), cost: 0.0 })
        };
        sets.iter().map(one).collect()
    })?;
    desk.work.commands = commands;
    Ok(BisectReport {
        subject: check.command.clone(),
        scenarios: Vec::new(),
        stock: String::new(),
        patches: patches.to_vec(),
        stages: vec![stage_of(&found, patches, "the command ends with 1".to_string())],
        questions: desk.asked,
        work: desk.work,
        notes: Vec::new(),
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Everything that answers follow from.
fn identity(job: &Job<'_>, ask: &Bisect<'_>) -> Identity {
    let run = job.provenance();
    let scenarios = run.scenarios.iter().map(|s| format!("{} {}", s.name, s.ids_sha256)).collect::<Vec<_>>();
    let criterion = match ask.criterion {
        Criterion::Verdict => "verdict".to_string(),
        Criterion::Over(metric, Some(limit)) => format!("{} over {limit:?}", metric.name()),
        Criterion::Over(metric, None) => format!("half of {}", metric.name()),
    };
    let layer = ask.layer.map_or("the first bad one".to_string(), |l| l.to_string());
    let change = if ask.change.is_some() { "changed under way" } else { "as it is" };
    let fields = [
        ("program", run.producer),
        ("model", format!("config {} weights {}", run.model.config_sha256, run.model.weights_sha256)),
        ("scenario", scenarios.join(", ")),
        ("stock", ask.stock.to_string()),
        ("patches", set_name(&ask.patches)),
        ("history", ask.history.to_string()),
        ("axis", ask.over.name().to_string()),
        ("layer", layer),
        ("criterion", criterion),
        ("candidate", change.to_string()),
    ];
    fields.into_iter().map(|(k, v)| (k.to_string(), v)).collect()
}

#[cfg(test)]
mod tests;
