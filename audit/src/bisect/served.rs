//! The first history that is not the path's own cold run.

use std::collections::BTreeSet;

use karat_optimized::Optimized;
use karat_optimized::serving::{Geometry, Program, Served};
use karat_seam::Phase;

use super::desk::Desk;
use super::replay::{Measured, Seen};
use super::rig::Rig;
use super::search::Answer;
use super::stage::{Ended, Over, Stage};
use crate::{Checked, Checker, Result};

/// Changes the program of a history: a scheduler with a fault, seeded.
pub type Books<'a> = dyn Fn(Served, &mut Program) + Sync + 'a;

/// Seed of page orders and drafts, as audits have it.
const SEED: u64 = 1;

/// Runs histories of one patch set, and counts what they take.
pub(crate) struct Histories<'a> {
    checker: Checker,
    geometry: Geometry,
    /// Cold runs that the checker has made: it makes one for every other assignment of phases.
    cold: BTreeSet<Vec<Vec<Phase>>>,
    one_rule: bool,
    books: Option<&'a Books<'a>>,
}

impl<'a> Histories<'a> {
    pub(crate) fn new(rig: &Rig<'_>, set: &[String], books: Option<&'a Books<'a>>) -> Result<Self> {
        let job = rig.job;
        let (checkpoint, requests) = (job.checkpoint.clone(), job.inputs.requests.clone());
        let geometry = Geometry::of(checkpoint.config(), None)?;
        let plain = Optimized::new(checkpoint.clone(), requests.clone(), rig.plan(set), job.threads)?;
        let one_rule = plain.numerics(Phase::Prefill) == plain.numerics(Phase::Decode);
        let checker = Checker::new(checkpoint, requests, rig.plan(set), geometry, job.threads)?;
        Ok(Self { checker, geometry, cold: BTreeSet::new(), one_rule, books })
    }

    /// Rows that a history computes.
    pub(crate) fn rows(&self, rig: &Rig<'_>, history: Served) -> Result<usize> {
        Ok(history.script(&rig.job.inputs.requests, self.geometry, SEED).program()?.rows.len())
    }

    /// Checks one history; with it the forward-equivalents that it took.
    pub(crate) fn check(&mut self, rig: &Rig<'_>, history: Served) -> Result<(Checked, f64)> {
        let requests = &rig.job.inputs.requests;
        let script = history.script(requests, self.geometry, SEED);
        let mut program = script.program()?;
        if let Some(books) = self.books {
            books(history, &mut program);
        }
        let all = requests.rows().len().max(1) as f64;
        let own = program.rows.len() as f64 / all;
        let is_new = self.cold.insert(if self.one_rule { Vec::new() } else { phases(&program, requests.seqs.len()) });
        let checked = self.checker.check_program(history.name(), script.setup.geometry, program)?;
        Ok((checked, own + f64::from(u8::from(is_new))))
    }
}

/// The phase of each position of the final contexts.
fn phases(program: &Program, sequences: usize) -> Vec<Vec<Phase>> {
    let mut out = vec![Vec::new(); sequences];
    for (request, _, rows) in program.done() {
        let phases = rows.iter().map(|r| program.rows[*r].phase).collect();
        out[program.requests[request].0 as usize] = phases;
    }
    out
}

/// What a history differs in, in words; `None` where it does not.
pub(crate) fn differs(checked: &Checked) -> Option<String> {
    let owner = checked.misplaced.as_ref().map(ToString::to_string);
    checked.difference.as_ref().map(ToString::to_string).or(owner)
}

/// Every history in turn, up to the first that differs. They are no axis: one may differ where a later one does not.
pub(super) fn histories(desk: &mut Desk<'_>, rig: &Rig<'_>, set: &[String]) -> Result<Stage> {
    let mut runs: Option<Histories<'_>> = None;
    let mut skipped = Vec::new();
    let criterion = "a value read from a page, or a logit, that is not the path's own cold run's".to_string();
    let stage = |ended, found, sentence| Stage {
        over: Over::Histories,
        ended,
        found,
        sentence,
        criterion: criterion.clone(),
        is_absolute: true,
        share: None,
    };
    for history in Served::ALL {
        let answers = desk.answers(&[format!("histories {history}")], 0.0, &mut |_| {
            if runs.is_none() {
                runs = Some(Histories::new(rig, set, None)?);
            }
            let Some(runs) = &mut runs else { return Ok(Vec::new()) };
            let (checked, cost) = runs.check(rig, history)?;
            let (answer, note) = match (differs(&checked), checked.facts.lacks(history)) {
                (Some(what), _) => (Answer::Bad, what),
                (None, Some(lacks)) => (Answer::Skip, lacks.to_string()),
                (None, None) => (Answer::Good, String::new()),
            };
            Ok(vec![Measured { seen: Seen::Answer(answer), note, cost }])
        })?;
        match answers.first() {
            Some(Answer::Bad) => {
                let note = desk.asked.last().map(|asked| asked.note.clone()).unwrap_or_default();
                let sentence = format!("{history} is the first history that is not the path's own cold run: {note}");
                return Ok(stage(Ended::Found, vec![history.to_string()], sentence));
            }
            Some(Answer::Good) => {}
            _ => skipped.push(history.to_string()),
        }
    }
    let same = Served::ALL.len() - skipped.len();
    let mut sentence = format!("{same} histories are bit for bit the path's own cold run");
    if !skipped.is_empty() {
        sentence.push_str(&format!("; no evidence for {}", skipped.join(", ")));
    }
    let ended = if same == 0 { Ended::Undecided } else { Ended::Nothing };
    Ok(stage(ended, skipped, sentence))
}
