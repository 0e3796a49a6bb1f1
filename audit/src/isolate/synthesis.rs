//! What follows from the measurements: facts, ranked suspects, what is ruled out and by what, what can't be known from here,
//! what to do next. A pure function of the evidence.

use karat_bundle::Verdict;
use serde::Serialize;

use super::broken::Broken;
use super::evidence::{Evidence, Logits};
use super::{Isolate, StepRun};
use crate::bisect::{Ended, set_name};
use crate::job::Job;

/// A share of the whole from which on something counts as a suspect; under it it is ruled out.
const SHARE: f64 = 0.1;
/// From here on one layer stands out.
const STANDS_OUT: f64 = 0.5;

/// Something that may be at fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Suspect {
    /// What it is.
    pub what: String,
    /// What it is ranked by: over 1 it breaks something by itself, under 1 it is a share of the mean KL.
    pub weight: f64,
    /// What speaks for it, with numbers.
    pub evidence: Vec<String>,
}

/// Something with the measurement that it rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// What.
    pub what: String,
    /// The step that measured it.
    pub step: &'static str,
}

/// A command, and what it would tell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Next {
    /// What it is for.
    pub why: String,
    /// As typed.
    pub command: String,
}

/// Everything that `karat isolate` says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Synthesis {
    /// Fail when something is broken; unproven when nothing could be measured.
    pub verdict: Verdict,
    /// The result in a sentence.
    pub sentence: String,
    /// Name of the model.
    pub model: String,
    /// Scenarios with their rows.
    pub scenarios: Vec<String>,
    /// Stock profile and patches.
    pub candidate: String,
    /// Facts, with numbers and where they were measured.
    pub facts: Vec<Measured>,
    /// Suspects, the heaviest first.
    pub suspects: Vec<Suspect>,
    /// What it is not, and by which measurement.
    pub ruled_out: Vec<Measured>,
    /// What can't be known from here.
    pub unknown: Vec<String>,
    /// What to do next.
    pub next: Vec<Next>,
    /// The steps as they went.
    pub steps: Vec<StepRun>,
    /// Forward-equivalents of the steps that count them.
    pub forward_equivalents: f64,
    /// Wall time.
    pub seconds: f64,
}

struct Maker<'e> {
    found: &'e Evidence,
    facts: Vec<Measured>,
    suspects: Vec<Suspect>,
    ruled_out: Vec<Measured>,
    unknown: Vec<String>,
}

impl Maker<'_> {
    fn fact(&mut self, step: &'static str, what: String) {
        self.facts.push(Measured { what, step });
    }

    fn no(&mut self, step: &'static str, what: String) {
        self.ruled_out.push(Measured { what, step });
    }
}

/// The synthesis. `limits`: what no run of this kind is evidence for.
pub(super) fn of(
    job: &Job<'_>,
    ask: &Isolate<'_>,
    found: &Evidence,
    steps: Vec<StepRun>,
    limits: Vec<String>,
) -> Synthesis {
    let mut maker = Maker { found, facts: Vec::new(), suspects: Vec::new(), ruled_out: Vec::new(), unknown: limits };
    maker.recall();
    maker.logits();
    maker.decode();
    maker.phases();
    maker.reverts();
    maker.histories();
    maker.audit();
    maker.layers();
    for step in steps.iter().filter(|s| s.failed.is_some()) {
        maker.unknown.push(format!("step `{}` failed: {}", step.name, step.failed.as_deref().unwrap_or_default()));
    }
    let longest = job.inputs.requests.seqs.iter().map(|s| s.ids.len()).max().unwrap_or(0);
    maker.unknown.push(format!("contexts longer than {longest} tokens were not run in the steps on logits"));
    let Maker { facts, mut suspects, ruled_out, unknown, .. } = maker;
    suspects.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let verdict = verdict(found);
    let run = job.provenance();
    Synthesis {
        verdict,
        sentence: sentence(verdict, found, &suspects),
        model: run.model.label,
        scenarios: run.scenarios.into_iter().map(|s| format!("{}: {} rows", s.name, s.rows)).collect(),
        candidate: format!("optimized, stock {}, patches {}", ask.subject.stock, set_name(&ask.subject.patches)),
        next: next(ask, found, &suspects, verdict),
        facts,
        suspects,
        ruled_out,
        unknown,
        forward_equivalents: steps.iter().map(|s| s.forward_equivalents).sum(),
        steps,
        seconds: 0.0,
    }
}

fn broken(found: &Evidence) -> Vec<String> {
    let mut out = Vec::new();
    let of = |n: usize, all: usize| format!("{n} of {all} answers that golden gives");
    let lost = |n: usize, all: usize| format!("{} are lost", of(n, all));
    match (&found.logits, &found.recall) {
        (Some((all, _)), _) if !all.lost.is_empty() => out.push(lost(all.lost.len(), all.given)),
        (_, Some(r)) if r.lost > 0 => {
            out.push(format!("{} of {} answers are lost in the recall tests", r.lost, r.answers));
        }
        _ => {}
    }
    let histories: Vec<_> = found.histories.iter().flatten().filter(|h| h.differs.is_some()).collect();
    if !histories.is_empty() {
        let names: Vec<&str> = histories.iter().map(|h| h.name.as_str()).collect();
        let lost = histories.iter().find_map(|h| h.broken.as_ref()).filter(|b| !b.forgotten.is_empty());
        let lost =
            lost.map_or(String::new(), |b| format!(", where {} are lost", of(b.forgotten.len(), b.logits.given)));
        out.push(format!("not the path's own cold run: {}{lost}", names.join(", ")));
    }
    if let Some(audit) = found.audit.as_ref().filter(|a| a.verdict == Verdict::Fail) {
        out.push(format!("the audit fails: {}", audit.reason));
    }
    out
}

fn verdict(found: &Evidence) -> Verdict {
    if !broken(found).is_empty() {
        return Verdict::Fail;
    }
    let measured = found.audit.is_some() || found.logits.is_some() || found.recall.is_some();
    if measured { Verdict::Pass } else { Verdict::Unproven }
}

fn sentence(verdict: Verdict, found: &Evidence, suspects: &[Suspect]) -> String {
    let first = suspects.first().map(|s| s.what.as_str());
    match (verdict, first) {
        (Verdict::Fail, Some(first)) => format!("{}; first suspect: {first}", broken(found).join("; ")),
        (Verdict::Fail, None) => format!("{}; no suspect stands out", broken(found).join("; ")),
        (Verdict::Unproven, _) => "no step could measure anything".to_string(),
        (_, Some(first)) => format!("nothing is broken; most of what error there is comes from {first}"),
        (_, None) => "nothing is broken, and no patch, layer or history stands out".to_string(),
    }
}

/// Two numbers of one measure.
fn change(from: &Logits, to: &Logits) -> String {
    format!(
        "mean KL {:.2e} -> {:.2e}, changed top ids {} -> {}, lost answers {} -> {}",
        from.kl,
        to.kl,
        from.flips,
        to.flips,
        from.lost.len(),
        to.lost.len()
    )
}

impl Maker<'_> {
    fn recall(&mut self) {
        let Some(r) = &self.found.recall else { return };
        let mut what = format!(
            "{} conversations, {} answers: {} lost, {} gained; a net loss over {:.1} % is ruled out",
            r.conversations,
            r.answers,
            r.lost,
            r.gained,
            100.0 * r.upper
        );
        for (symptom, n) in &r.symptoms {
            what.push_str(&format!("; {n} look like {symptom}"));
        }
        for (layer, n) in &r.layers {
            what.push_str(&format!("; {n} lost at layer {layer}"));
        }
        self.fact("recall", what);
        if r.lost == 0 && r.answers > 0 {
            let what = format!("a lost conversation: every one of {} answers that golden gives is given", r.answers);
            self.no("recall", what);
        }
    }

    fn logits(&mut self) {
        let Some((all, stock)) = &self.found.logits else { return };
        let phase = |v: Option<f64>| v.map_or("-".to_string(), |v| format!("{v:.2e}"));
        for (name, l) in [("with all patches", all), ("stock alone", stock)] {
            let what = format!(
                "{name}: mean KL {:.2e} over {} positions (prefill {}, decode {}), largest {:.2e} at {}, {} changed top ids, {} \
                 of {} answers lost",
                l.kl,
                l.positions,
                phase(l.prefill),
                phase(l.decode),
                l.worst,
                l.worst_at,
                l.flips,
                l.lost.len(),
                l.given
            );
            self.fact("golden logits", what);
        }
        let share = stock.kl / all.kl;
        if stock.kl > 0.0 && share >= STANDS_OUT {
            // What the profile costs without any patch is no patch's doing; with answers lost there it is the fault itself.
            let broken = if stock.lost.is_empty() { 0.0 } else { 1.0 };
            let evidence = vec![format!(
                "stock alone has {:.0} % of the mean KL of all ({:.2e} of {:.2e})",
                100.0 * share,
                stock.kl,
                all.kl
            )];
            let what = "the stock profile's own number formats".to_string();
            self.suspects.push(Suspect { what, weight: broken + share.min(1.0) * 0.5, evidence });
        }
    }

    fn decode(&mut self) {
        let Some(d) = &self.found.decode else { return };
        if d.patches.is_empty() {
            self.fact("decode kernels", "no patch acts in decode alone".to_string());
            return;
        }
        let names = d.patches.join(", ");
        let (Some(with), Some(without)) = (d.with.decode, d.without.decode) else {
            self.unknown.push(format!("{names}: no position was decoded in these conversations"));
            return;
        };
        let what = format!(
            "{names} off: mean KL of decoded positions {with:.2e} -> {without:.2e}; {}",
            change(&d.with, &d.without)
        );
        self.fact("decode kernels", what);
        let restored = d.with.lost.len() > d.without.lost.len();
        if !restored && with - without < SHARE * with {
            self.no("decode kernels", format!("{names}: without them decoded positions are no nearer to golden"));
        } else if restored {
            let evidence = vec![change(&d.with, &d.without)];
            self.suspects.push(Suspect { what: format!("decode kernels {names}"), weight: 1.5, evidence });
        }
    }

    fn phases(&mut self) {
        let Some(p) = &self.found.phases else { return };
        if p.rows == 0 {
            self.unknown.push("prefill against decode: these conversations have no generated tokens".to_string());
            return;
        }
        let what = format!(
            "{} generated positions, decoded against prefilled: mean KL {:.2e} with all patches ({} changed top ids), {:.2e} \
             under stock ({})",
            p.rows, p.all.0, p.all.1, p.stock.0, p.stock.1
        );
        self.fact("prefill against decode", what);
        if p.stock.0 == 0.0 {
            let what = "decoding as such: under stock a decoded position has the logits of a prefilled one".to_string();
            self.no("prefill against decode", what);
        }
    }

    fn reverts(&mut self) {
        let (Some(reverts), Some((all, _))) = (&self.found.reverts, &self.found.logits) else { return };
        for (patch, without) in reverts {
            let share = (all.kl - without.kl) / all.kl;
            let restored = all.lost.len().saturating_sub(without.lost.len());
            let verdict = self.found.audit.as_ref().and_then(|a| a.patches.iter().find(|p| is_patch(patch, &p.0)));
            let fails = verdict.is_some_and(|p| p.2 == Some(Verdict::Fail));
            let what = format!("{patch} reverted: {}", change(all, without));
            self.fact("one-line reverts", what.clone());
            if !fails && restored == 0 && share < SHARE {
                self.no(
                    "one-line reverts",
                    format!("{patch}: {:.0} % of the mean KL goes with it", 100.0 * share.max(0.0)),
                );
                continue;
            }
            let mut evidence = vec![what];
            if let Some((_, state, Some(verdict))) = verdict {
                evidence.push(format!("its own audit: {}, {state}", verdict.name()));
            }
            let weight = share.max(0.0) + f64::from(u8::from(fails)) + f64::from(u8::from(restored > 0)) * 2.0;
            self.suspects.push(Suspect { what: format!("patch {patch}"), weight, evidence });
        }
        let Some(stage) = self.found.smallest.as_ref().filter(|s| s.ended == Ended::Found && s.found.len() > 1) else {
            return;
        };
        let evidence = vec![format!("{} ({})", stage.sentence, stage.criterion)];
        let what = format!("{} together", stage.found.join(" and "));
        // Where nothing is broken they are what the patches cost in all.
        let weight = if broken(self.found).is_empty() { 1.0 } else { 4.0 };
        self.suspects.push(Suspect { what, weight, evidence });
    }

    fn histories(&mut self) {
        let Some(all) = &self.found.histories else { return };
        let (mut same, mut none) = (Vec::new(), Vec::new());
        for h in all {
            match (&h.differs, &h.lacks) {
                (Some(what), _) => {
                    self.facts.push(Measured { what: format!("{} differs: {what}", h.name), step: "histories" });
                    let mut evidence = vec![format!("not bit for bit the path's own cold run: {what}")];
                    if let Some(broken) = &h.broken {
                        evidence.extend(self.broken(&h.name, broken));
                    }
                    let what = format!("cache or scheduler: history {}", h.name);
                    self.suspects.push(Suspect { what, weight: 5.0, evidence });
                }
                (None, Some(lacks)) => none.push(format!("history {}: no evidence, {lacks}", h.name)),
                (None, None) => same.push(h.name.as_str()),
            }
        }
        self.unknown.extend(none);
        if !same.is_empty() {
            let names = same.join(", ");
            self.fact("histories", format!("bit for bit the path's own cold run: {names}"));
            if all.iter().all(|h| h.differs.is_none()) {
                let what = format!("the cache and the scheduler, as far as these histories go: {names}");
                self.no("histories", what);
            }
        }
    }

    /// What a broken history does, as evidence; what it clears is ruled out.
    fn broken(&mut self, name: &str, b: &Broken) -> Vec<String> {
        let mut out = b.rows.clone();
        out.extend(b.meaning.iter().map(|m| format!("so {m}")));
        let cold = self.found.logits.as_ref().map(|(all, _)| all);
        let before = cold.map_or(String::new(), |c| {
            format!("; served cold the same path has {:.2e}, and {} lost", c.kl, c.lost.len())
        });
        let l = &b.logits;
        out.push(format!(
            "served so: mean KL {:.2e} from golden, {} changed top ids, {} of {} answers lost{before}",
            l.kl,
            l.flips,
            l.lost.len(),
            l.given
        ));
        for f in &b.forgotten {
            let near =
                f.amnesia.map_or(String::new(), |a| format!(", {a:.2} of the way to golden without the history"));
            out.push(format!("`{}` became `{}`: {}{near}", f.expected, f.said, f.symptom));
        }
        if let Some((own, golden)) = b.gzip {
            out.push(format!("seen by no look at the text alone: gzip ratio {own:.2}, golden's {golden:.2}"));
        }
        match &b.decode {
            Some((patches, true, lost)) => {
                let names = patches.join(", ");
                let what = format!(
                    "decode kernels ({names}) as the cause of {name}: without them it differs at the same row, and {lost} \
                     answers are lost"
                );
                self.no("histories", what);
            }
            Some((patches, false, _)) => {
                out.push(format!(
                    "without the decode kernels ({}) it differs elsewhere, or not at all",
                    patches.join(", ")
                ));
            }
            None => {}
        }
        out
    }

    fn audit(&mut self) {
        let Some(a) = &self.found.audit else { return };
        let reason = if a.reason.is_empty() { String::new() } else { format!(": {}", a.reason) };
        self.fact("audit", format!("{} over {} judged rows{reason}", a.verdict.name(), a.judged));
        if let Some((layer, op, tap)) = &a.first_bad {
            let evidence = vec![format!("first place over tolerance: layer {layer}, {tap}, which {op} writes")];
            self.suspects.push(Suspect { what: format!("{op} of layer {layer}"), weight: 3.0, evidence });
        }
    }

    fn layers(&mut self) {
        let Some(layer) = &self.found.layer else { return };
        self.fact("layers and ops", layer.sentence.clone());
        let op = self.found.op.as_ref();
        if let Some(op) = op {
            self.fact("layers and ops", op.sentence.clone());
        }
        let share = layer.share.unwrap_or(0.0);
        let Some(name) = layer.found.first().filter(|_| layer.ended == Ended::Found) else { return };
        if share < STANDS_OUT {
            let what =
                format!("one layer alone: half of the mean KL is reached at {name}, which adds {:.0} %", 100.0 * share);
            self.no("layers and ops", what);
            return;
        }
        let mut evidence = vec![layer.sentence.clone()];
        let mut what = name.clone();
        if let Some(op) = op.filter(|op| op.ended == Ended::Found)
            && let Some(first) = op.found.first()
        {
            what = format!("{first} of {name}");
            evidence.push(op.sentence.clone());
        }
        self.suspects.push(Suspect { what, weight: share.min(1.0), evidence });
    }
}

/// A patch's name with and without its options.
fn is_patch(asked: &str, name: &str) -> bool {
    asked.split(':').next() == Some(name)
}

fn next(ask: &Isolate<'_>, found: &Evidence, suspects: &[Suspect], verdict: Verdict) -> Vec<Next> {
    let base = ask.arguments.as_str();
    let line = |command: &str, rest: &str| {
        let words = ["karat", command, base, rest];
        words.iter().filter(|w| !w.is_empty()).copied().collect::<Vec<_>>().join(" ")
    };
    let path = format!("--stock {} --patches {}", ask.subject.stock, set_name(&ask.subject.patches));
    let mut out = Vec::new();
    let mut add = |why: &str, command: String| out.push(Next { why: why.to_string(), command });
    if let Some(h) = found.histories.iter().flatten().find(|h| h.differs.is_some()) {
        add(
            "the first page, row and byte that differ, in the smallest history that shows it",
            line("audit", &format!("{path} --histories {}", h.name)),
        );
    }
    if let Some(set) = found.smallest.as_ref().filter(|s| s.ended == Ended::Found && !s.found.is_empty()) {
        let path = format!("--stock {} --patches {}", ask.subject.stock, set_name(&set.found));
        add("the layer, op and position at which these patches do it", line("bisect", &format!("{path} --over all")));
    }
    if let Some(first) = suspects.first().and_then(|s| s.what.strip_prefix("patch ")) {
        let bare = first.split(':').next().unwrap_or(first);
        add("the same without the first suspect", line("audit", &format!("{path} --without {bare}")));
    }
    if let Some((layer, ..)) =
        found.audit.as_ref().and_then(|a| a.first_bad.clone()).filter(|b| b.0.parse::<u16>().is_ok())
    {
        add(
            "every tap of the first bad layer, as tables",
            line("audit", &format!("{path} --taps 'layers.{layer}.*' --out bundle")),
        );
    }
    if verdict != Verdict::Fail {
        add("longer conversations, where a cache has more to lose", "karat recall --all".to_string());
        add(
            "the model itself: what a patch costs it only its own checkpoint can tell",
            format!("karat isolate --model DIR {path}"),
        );
    }
    out
}

#[cfg(test)]
mod tests;
