//! The detection matrix: what was put where, what one audit named, and what it looked like there.

use std::fmt::Write as _;

use crate::catalogue::{self, Expected};
use crate::{Fault, Found, Outcomes, accepted_patches, faults};

/// The lines of a page that [`matrix`] wrote, as [`rows`] gives them.
pub fn rows_of(page: &str) -> Vec<[String; 5]> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").map(|c| c.trim_matches(['|', ' '])).collect();
        let [id, _, _, seeded, named, outcome, _, _, _, _, _, seen, ..] = cells[..] else { return None };
        Some([id.trim_end_matches('*'), seeded, named, outcome, seen].map(str::to_string))
    };
    let table = page.lines().skip_while(|l| !l.starts_with("| fault | kind"));
    table.skip(2).take_while(|l| l.starts_with('|')).filter_map(row).collect()
}

/// The columns that must not get worse: id, where the fault is, what was named, outcome, the levels of evidence that see it.
pub fn rows(found: &[Found]) -> Vec<[String; 5]> {
    let row = |f: &Found| {
        let fault = faults().into_iter().find(|x| x.id == f.id);
        [f.id.to_string(), fault.map_or("-".into(), seeded), named(f), f.outcome.name().to_string(), seen_by(f)]
    };
    found.iter().map(row).collect()
}

fn seeded(fault: &Fault) -> String {
    if fault.ids.is_some() {
        return "ids".to_string();
    }
    let report = catalogue::report(fault.id);
    let taps = match report.as_ref().and_then(catalogue::expected) {
        Some(Expected::Taps(taps)) => taps.iter().map(|t| t.name()).collect::<Vec<_>>().join(", "),
        _ => "any tap".to_string(),
    };
    format!("{}: {taps}", fault.layer())
}

fn named(found: &Found) -> String {
    match &found.report.first_bad {
        Some(bad) => format!("{}: {}", bad.layer, bad.tap),
        None if found.outcome == Outcomes::Named => "ids".to_string(),
        None => "-".to_string(),
    }
}

/// The whole page.
pub fn matrix(found: &[Found]) -> String {
    let mut out = HEAD.to_string();
    let controls = found.iter().filter(|f| matches!(f.outcome, Outcomes::Silent | Outcomes::FalseAlarm)).count();
    let all: Vec<&Found> = found.iter().collect();
    let count = |o: Outcomes| all.iter().filter(|f| f.outcome == o).count();
    let rows_right = all.iter().filter(|f| f.outcome == Outcomes::Named && f.is_in_rows == Some(true)).count();
    let _ = writeln!(
        out,
        "{} faults: {} named at layer and tap ({} of them with the position of a row that was changed), {} in the right layer\nonly, {} elsewhere, {} missed. Of {} controls, the candidates without a fault\namong them, {} are silent.\n\nPatches: {}.\n",
        all.len() - controls,
        count(Outcomes::Named),
        rows_right,
        count(Outcomes::Layer),
        count(Outcomes::Elsewhere),
        count(Outcomes::Missed),
        controls,
        count(Outcomes::Silent),
        accepted_patches().join(", "),
    );
    out.push_str(&levels(found));
    out.push_str("| fault | kind | what is changed | expected | named | outcome | gate | value / tolerance | row | cosine | gain | seen by | by outputs alone |\n");
    out.push_str("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (found, row) in found.iter().zip(rows(found)) {
        let fault = faults().into_iter().find(|x| x.id == found.id);
        let report = catalogue::report(found.id);
        let core = if report.as_ref().is_some_and(|r| r.core) { "*" } else { "" };
        let [id, seeded, named, outcome, seen] = row;
        let bad = found.report.first_bad.as_ref();
        let numbers = |gate: &str, v: f64, t: f64| (gate.to_string(), format!("{v:.2e} / {t:.2e}"));
        let (gate, ratio) = match (bad, &found.at_place) {
            (Some(b), _) => numbers(&b.gate, b.injected, b.tolerance),
            (None, Some((row, control))) => {
                let (gate, text) = numbers(&row.gate, row.value.unwrap_or(0.0), row.tolerance.unwrap_or(0.0));
                (gate, format!("({text}, control {:.2e})", control.unwrap_or(0.0)))
            }
            (None, None) => ("-".to_string(), "-".to_string()),
        };
        let at = bad.map_or("-".into(), |b| {
            let position = b.position.map_or(String::new(), |p| format!(" {p}"));
            format!("{}{position}{}", b.phase, if found.is_in_rows == Some(false) { " (not changed)" } else { "" })
        });
        let metrics = found.row.as_ref().or(found.at_place.as_ref().map(|p| &p.0));
        let number = |v: Option<f64>| v.map_or("-".to_string(), |v| format!("{v:.4}"));
        let _ = writeln!(
            out,
            "| {id}{core} | {} | {} | {seeded} | {named} | {outcome} | {gate} | {ratio} | {at} | {} | {} | {} | {} |",
            report.as_ref().map_or("control", |r| r.kind),
            fault.map_or("nothing", |f| f.change),
            number(metrics.and_then(|m| m.cosine)),
            number(metrics.and_then(|m| m.gain)),
            seen,
            by_outputs(found),
        );
    }
    out.push_str(NOTES);
    out.push_str(&loads(found));
    out.push_str(NOT_SEEDED);
    for (id, why) in catalogue::unseeded() {
        let title = catalogue::report(id).map_or("", |r| r.title);
        let _ = writeln!(out, "| {id} | {title} | {why} |");
    }
    out
}

/// True for a candidate about which an audit should be silent.
fn is_control(found: &Found) -> bool {
    matches!(found.outcome, Outcomes::Silent | Outcomes::FalseAlarm)
}

fn is_seen(found: &Found) -> bool {
    !matches!(found.outcome, Outcomes::Missed | Outcomes::Silent)
}

/// What is named where layer outputs are all that is seen, and by which statistic.
fn by_outputs(found: &Found) -> String {
    found.outputs.as_ref().map_or("-".to_string(), |bad| {
        let by = bad.part.strip_prefix("unmixed.").map_or(String::new(), |part| format!(" {part}"));
        format!("{}: {}{by}", bad.layer, bad.tap)
    })
}

/// With layer outputs alone the layer that the fault is in is named, or other ids are.
fn is_layer_right(found: &Found) -> bool {
    let fault = faults().into_iter().find(|x| x.id == found.id);
    match &found.outputs {
        Some(bad) => fault.is_some_and(|f| f.layer() == bad.layer),
        None => found.levels.layers,
    }
}

/// The levels of evidence that see it, each a letter.
fn seen_by(found: &Found) -> String {
    let l = found.levels;
    let letters = [(is_seen(found), 'T'), (l.layers, 'L'), (l.logits, 'G'), (l.text, 'X')];
    let seen: String = letters.iter().filter(|(seen, _)| *seen).map(|(_, letter)| letter).collect();
    if seen.is_empty() { "-".to_string() } else { seen }
}

/// Counts by family and level of evidence, and the misses by name.
fn levels(found: &[Found]) -> String {
    let faults: Vec<(&Found, catalogue::Report)> =
        found.iter().filter(|f| !is_control(f)).filter_map(|f| Some((f, catalogue::report(f.id)?))).collect();
    let mut out =
        "| family | faults | all taps | layer and tap right | layer outputs | layer right | logits | text |\n"
            .to_string();
    out.push_str("|---|---|---|---|---|---|---|---|\n");
    let mut families: Vec<&str> = faults.iter().map(|(_, r)| r.family).collect();
    families.dedup();
    families.sort_unstable();
    families.dedup();
    let mut line = |name: &str, is_in: &dyn Fn(&catalogue::Report) -> bool| {
        let some: Vec<&Found> = faults.iter().filter(|(_, r)| is_in(r)).map(|(f, _)| *f).collect();
        let count = |what: &dyn Fn(&Found) -> bool| some.iter().filter(|f| what(f)).count();
        let _ = writeln!(
            out,
            "| {name} | {} | {} | {} | {} | {} | {} | {} |",
            some.len(),
            count(&is_seen),
            count(&|f| f.outcome == Outcomes::Named),
            count(&|f| f.levels.layers),
            count(&is_layer_right),
            count(&|f| f.levels.logits),
            count(&|f| f.levels.text),
        );
    };
    for family in families {
        line(family, &|r| r.family == family);
    }
    line("core rows", &|r| r.core);
    line("all", &|_| true);
    let missed: Vec<&str> = faults.iter().filter(|(f, _)| !is_seen(f)).map(|(f, _)| f.id).collect();
    let unseen: Vec<&str> = faults.iter().filter(|(f, _)| !f.levels.layers).map(|(f, _)| f.id).collect();
    let alarms: Vec<&str> = found
        .iter()
        .filter(|f| is_control(f) && (f.levels.layers || f.levels.logits || f.levels.text || is_seen(f)))
        .map(|f| f.id)
        .collect();
    let names = |ids: Vec<&str>| if ids.is_empty() { "none".to_string() } else { ids.join(", ") };
    let _ = writeln!(
        out,
        "\nMissed with all taps: {}. Missed with layer outputs alone: {}. Controls that some level takes for a fault: {}.\n",
        names(missed),
        names(unseen),
        names(alarms)
    );
    out
}

/// What the load audit says of faults that live in files.
fn loads(found: &[Found]) -> String {
    let mut out = LOADS.to_string();
    for f in found {
        let Some(load) = &f.load else { continue };
        let words = |text: &Option<String>| text.clone().unwrap_or("-".to_string()).replace('|', "/");
        let _ = writeln!(out, "| {} | {} | {} |", f.id, words(&load.alone), words(&load.against));
    }
    out
}

const HEAD: &str = "# What one audit says about known bugs

Written by `cargo xtask faults`; a test compares ids, places and outcomes with a run. Every fault is made after a public
report (`faults/catalogue.tsv` has the links; `*`: a core row, cheap and unambiguous in a small model) and put on top of
stock `official` with the accepted patches, in the mini geometry with random weights, on two turns of 300 ids whose answers are
decoded; a fault that needs two requests (INDEX-04, STATE-12, SPEC-03, BATCH-05) has a second of 118 ids beside it, whose rows it changes by what the
first left. *Expected* follows from the report's own tap by `faults/taps.tsv`, which was written before any fault was
audited; several taps: any of them, or another result of the same op. *Named* is the first bad place of a single audit.

";

const LOADS: &str = "
## Before any forward pass

Faults that change the candidate's files, as `karat model verify` sees them without anything to compare with, and as
`karat model diff` names them beside the original. The model here has random weights: gates, channels and the order of packed
codes show in trained weights only (`tests/it/load_audit.rs`). Some of these faults stand for what a kernel does with right
bytes (QUANT-03, ATTN-01); a real one of that kind leaves the files as they are.

| fault | the bytes alone | beside the original |
|---|---|---|
";

const NOT_SEEDED: &str = "
## Reports that no fault is made after

| report | what was reported | why |
|---|---|---|
";

const NOTES: &str = "
*Seen by*: T all taps, L the streams that leave each layer and the logits, G logits alone, X the text of generated
positions (greedy ids). With L, a run of its own in which nothing else is shown, golden still runs every layer on the candidate's own
streams, with its own decisions; *by outputs alone* has the layer and branch that are named first, and the statistic
([catches.md](catches.md)). With
G a fault is seen where ids change more often than stock's noise explains (4 standard deviations) or the mean KL is over four
times that of the path without a fault; with X where generated ids differ at so many more positions. The model has random
weights, whose choices are closer than a trained model's: G and X are no measure of what a conversation would show.

*Value / tolerance* is the gate's number at the first bad row, in brackets that at the expected tap where nothing is bad,
with what it is without the fault; *cosine* and *gain* are of the same row. A cosine of
1.0000 beside a failing gate is a fault that a check by cosine doesn't see; a gain of 1.0000 one that a check of norms
doesn't. STATE rows are put into what attention or the compressor reads in one layer: they show that wrong state is seen where it is
read, not that a scheduler's fault is traced to its event ([histories.md](histories.md) does that).
";
