//! A history as data: requests, and what clients and memory do to them. Every list of actions is a valid one, so that a
//! failing history can be made smaller by leaving things out.

use std::sync::Arc;

use karat_model::Result;

use super::{Engine, Program, Setup, Work};

/// Something that happens. Requests are numbered as in [`Script::works`]; an action on one that isn't there does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The client sends a request (again, if it was sent before and is gone).
    Submit(usize),
    /// So many forward calls of every instance.
    Steps(usize),
    /// The client goes away.
    Abort(usize),
    /// The request loses its pages and is computed again later.
    Evict(usize),
    /// All cached prefixes are evicted.
    Forget,
    /// The request moves to the next instance.
    Transfer(usize),
}

/// A whole history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The engine.
    pub setup: Setup,
    /// Requests. Those marked `last` are served to their end in any case.
    pub works: Vec<Work>,
    /// What happens, in order.
    pub actions: Vec<Action>,
}

impl Script {
    /// Runs the scheduler over the history. `after` sees the engine after every action.
    ///
    /// # Errors
    /// Usage: the pools can't hold even one request.
    pub fn watch(&self, mut after: impl FnMut(&Engine)) -> Result<Program> {
        let mut engine = Engine::new(self.setup);
        let mut numbers: Vec<Option<usize>> = vec![None; self.works.len()];
        for action in &self.actions {
            let known = |i: &usize| numbers.get(*i).copied().flatten();
            match action {
                Action::Submit(i) => match (known(i), self.works.get(*i)) {
                    (Some(request), _) => engine.send_again(request),
                    (None, Some(work)) => numbers[*i] = Some(engine.submit(work.clone())),
                    (None, None) => {}
                },
                Action::Steps(n) => {
                    for _ in 0..*n {
                        for instance in 0..self.setup.instances {
                            engine.step(instance)?;
                        }
                        after(&engine);
                    }
                }
                Action::Abort(i) => {
                    if let Some(request) = known(i) {
                        engine.abort(request);
                    }
                }
                Action::Evict(i) => {
                    if let Some(request) = known(i) {
                        engine.retract(request);
                    }
                }
                Action::Forget => engine.forget(),
                Action::Transfer(i) => {
                    if let Some(request) = known(i) {
                        engine.transfer(request);
                    }
                }
            }
            after(&engine);
        }
        for (work, number) in self.works.iter().zip(&numbers) {
            if work.last && number.is_none() {
                engine.submit(work.clone());
            }
        }
        engine.finish()?;
        after(&engine);
        Ok(engine.into_program())
    }

    /// The program of the history.
    ///
    /// # Errors
    /// Usage: the pools can't hold even one request.
    pub fn program(&self) -> Result<Program> {
        self.watch(|_| {})
    }

    /// The same with these drafts: of each sequence the token that would be drafted for each position.
    #[must_use]
    pub fn with_guesses(mut self, guesses: &[Arc<[u32]>]) -> Self {
        for work in self.works.iter_mut().filter(|work| work.drafts > 0) {
            if let Some(guesses) = guesses.get(work.seq as usize) {
                work.guesses = guesses.clone();
            }
        }
        self
    }

    /// Smaller histories to try in its place, the smallest first: without a run of actions, without a request, with a
    /// shorter run of forward calls.
    fn smaller(&self) -> Vec<Self> {
        let mut out = Vec::new();
        let n = self.actions.len();
        let mut size = n;
        while size > 0 {
            for start in (0..n).step_by(size) {
                let mut actions = self.actions.clone();
                actions.drain(start..n.min(start + size));
                out.push(Self { actions, ..self.clone() });
            }
            size /= 2;
        }
        for (i, work) in self.works.iter().enumerate() {
            if !work.last {
                out.push(self.without(i));
            }
            if work.drafts > 0 {
                let mut fewer = self.clone();
                fewer.works[i].drafts -= 1;
                out.push(fewer);
            }
        }
        for (i, action) in self.actions.iter().enumerate() {
            if let Action::Steps(steps @ 2..) = action {
                for less in [steps / 2, steps - 1] {
                    let mut shorter = self.clone();
                    shorter.actions[i] = Action::Steps(less);
                    out.push(shorter);
                }
            }
        }
        out
    }

    /// Without request `gone` and what happens to it.
    fn without(&self, gone: usize) -> Self {
        let mut out = self.clone();
        out.works.remove(gone);
        out.actions = self
            .actions
            .iter()
            .filter_map(|action| {
                let renumber = |i: usize| (i != gone).then(|| if i > gone { i - 1 } else { i });
                Some(match *action {
                    Action::Submit(i) => Action::Submit(renumber(i)?),
                    Action::Abort(i) => Action::Abort(renumber(i)?),
                    Action::Evict(i) => Action::Evict(renumber(i)?),
                    Action::Transfer(i) => Action::Transfer(renumber(i)?),
                    other => other,
                })
            })
            .collect();
        out
    }

    /// The smallest history that still fails: no single step of [`Self::smaller`] away from it does. `fails` is asked at
    /// most `most` times.
    pub fn shrink(&self, most: usize, mut fails: impl FnMut(&Self) -> bool) -> Self {
        let mut best = self.clone();
        let mut asked = 0;
        'again: loop {
            for candidate in best.smaller() {
                if asked == most {
                    return best;
                }
                asked += 1;
                if fails(&candidate) {
                    best = candidate;
                    continue 'again;
                }
            }
            return best;
        }
    }
}
