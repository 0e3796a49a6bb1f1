//! The desk: every question goes over it. It looks into the replay file, asks again where answers are noisy, tells good
//! from bad by the limit, and keeps the books.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::replay::{Measured, Replay, Seen};
use super::search::{Answer, Noise, steady};
use crate::progress::Progress;
use crate::{Error, Result};

/// A question that was asked, for reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Asked {
    /// In the words of the replay file: `patches a,b`, `layers 3`.
    pub question: String,
    /// good, bad or skip.
    pub answer: &'static str,
    /// The measurement, where there is one; a string where json has no such number.
    pub value: Option<serde_json::Value>,
    /// For people.
    pub note: String,
    /// Answers that were taken to be sure.
    pub answers: u32,
    /// True when all of them came from the replay file.
    pub replayed: bool,
}

/// What a search took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Work {
    /// Passes of all rows through all layers of one path; what was known is free.
    pub forward_equivalents: f64,
    /// Different questions.
    pub questions: u64,
    /// Answers, repeated ones included.
    pub answers: u64,
    /// Of those, from the replay file.
    pub replayed: u64,
    /// Forward-equivalents that the replayed ones had taken.
    pub forward_equivalents_replayed: f64,
    /// Runs of `--check`'s command.
    pub commands: u64,
}

/// Gives measurements for some questions of a batch, by index.
pub(super) type Source<'a> = dyn FnMut(&[usize]) -> Result<Vec<Measured>> + 'a;

/// See the module.
pub(super) struct Desk<'a> {
    pub(super) replay: Option<Replay>,
    pub(super) noise: Option<Noise>,
    pub(super) progress: &'a dyn Progress,
    pub(super) stop: &'a AtomicBool,
    pub(super) work: Work,
    pub(super) asked: Vec<Asked>,
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        replay: Option<Replay>,
        noise: Option<Noise>,
        progress: &'a dyn Progress,
        stop: &'a AtomicBool,
    ) -> Self {
        Self { replay, noise, progress, stop, work: Work::default(), asked: Vec::new() }
    }

    /// Measurements of a batch, from the replay file where it has them.
    fn measure(&mut self, questions: &[String], source: &mut Source<'_>) -> Result<Vec<(Measured, bool)>> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let mut out: Vec<Option<(Measured, bool)>> = questions
            .iter()
            .map(|q| self.replay.as_mut().and_then(|replay| replay.take(q)).map(|measured| (measured, true)))
            .collect();
        let missing: Vec<usize> = (0..out.len()).filter(|i| out[*i].is_none()).collect();
        if !missing.is_empty() {
            self.progress.step(self.work.questions, self.work.questions + missing.len() as u64, &questions[missing[0]]);
            let made = source(&missing)?;
            for (i, measured) in missing.iter().zip(made) {
                if let Some(replay) = &mut self.replay {
                    replay.keep(&questions[*i], &measured)?;
                }
                out[*i] = Some((measured, false));
            }
        }
        let all: Vec<(Measured, bool)> = out.into_iter().flatten().collect();
        for (measured, replayed) in &all {
            self.work.answers += 1;
            self.work.replayed += u64::from(*replayed);
            match replayed {
                true => self.work.forward_equivalents_replayed += measured.cost,
                false => self.work.forward_equivalents += measured.cost,
            }
        }
        Ok(all)
    }

    /// Measurements of a batch whose limit is not known yet, and whether they were replayed. [`Self::enter`] writes them
    /// into the books once it is.
    pub(super) fn values(&mut self, questions: &[String], source: &mut Source<'_>) -> Result<Vec<(Measured, bool)>> {
        self.measure(questions, source)
    }

    /// Answers of a batch. `limit`: the largest value that is good.
    pub(super) fn answers(&mut self, questions: &[String], limit: f64, source: &mut Source<'_>) -> Result<Vec<Answer>> {
        let Some(noise) = self.noise else {
            let measured = self.measure(questions, source)?;
            return Ok(questions.iter().zip(measured).map(|(q, (m, r))| self.enter(q, &m, limit, 1, r)).collect());
        };
        let mut out = Vec::new();
        for (i, question) in questions.iter().enumerate() {
            let (mut last, mut count, mut replayed) = (None, 0, true);
            let number = self.work.questions as usize;
            let answer = steady(noise, number, || {
                let mut one = self.measure(std::slice::from_ref(question), &mut |_| source(&[i]))?;
                let (measured, from_replay) = one.pop().ok_or(Error::Interrupted)?;
                count += 1;
                replayed &= from_replay;
                let answer = judge(&measured, limit);
                last = Some(measured);
                Ok::<_, Error>(answer)
            })?;
            let note = last.map(|m| m.note).unwrap_or_default();
            let settled = Measured { seen: Seen::Answer(answer), note, cost: 0.0 };
            out.push(self.enter(question, &settled, limit, count, replayed));
        }
        Ok(out)
    }

    /// Writes a question and its answer into the books.
    pub(super) fn enter(
        &mut self,
        question: &str,
        measured: &Measured,
        limit: f64,
        answers: u32,
        replayed: bool,
    ) -> Answer {
        let answer = judge(measured, limit);
        let value = match measured.seen {
            Seen::Value(v) if v.is_finite() => Some(serde_json::json!(v)),
            Seen::Value(v) => Some(serde_json::json!(format!("{v:?}"))),
            Seen::Answer(_) => None,
        };
        let (question, note) = (question.to_string(), measured.note.clone());
        self.asked.push(Asked { question, answer: answer.name(), value, note, answers, replayed });
        self.work.questions += 1;
        answer
    }
}

/// Good or bad; a value that is no number is bad.
pub(super) fn judge(measured: &Measured, limit: f64) -> Answer {
    match measured.seen {
        Seen::Answer(answer) => answer,
        Seen::Value(v) if v <= limit => Answer::Good,
        Seen::Value(_) => Answer::Bad,
    }
}
