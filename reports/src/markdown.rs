//! `report.md`: an engineering report: summary, method, each optimization with bound and evidence, dead ends, open
//! questions, provenance.

use karat_bundle::judge::recall::{bounds, paired, patch_sets};
use karat_bundle::{Bundle, PatchRow, Verdict, history_verdict};

use crate::facts::{self, Layer, Sentence};
use crate::number::{option, short, signed};
use crate::text::{code, markdown as plain};

/// The report as markdown.
pub fn markdown(bundle: &Bundle) -> String {
    let bundle = &*facts::as_judged(bundle);
    let set = facts::last_set(bundle);
    let layers = facts::layers(bundle, set);
    let mut out = summary(bundle);
    out.extend(method(bundle));
    out.extend(by_layer(&layers, set));
    out.extend(optimizations(bundle));
    out.extend(ladder(bundle));
    out.extend(recall(bundle));
    out.extend(histories(bundle));
    out.extend(dead_ends(bundle));
    out.extend(open_questions(bundle));
    out.extend(provenance(bundle));
    out.join("\n") + "\n"
}

/// A table; nothing without rows.
pub(crate) fn table(heads: &[&str], rows: Vec<Vec<String>>) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let mut out = vec![String::new(), format!("| {} |", heads.join(" | ")), format!("|{}", "---|".repeat(heads.len()))];
    out.extend(rows.into_iter().map(|cells| format!("| {} |", cells.join(" | "))));
    out
}

/// Verdict, sentence, reasons, what to do.
pub(crate) fn summary(bundle: &Bundle) -> Vec<String> {
    let report = &bundle.verdict;
    let mut out = vec![format!("# karat: {}", report.verdict.name()), String::new(), format!("{}.", sentence(bundle))];
    let reasons = facts::reasons(bundle);
    if !reasons.is_empty() {
        out.push(String::new());
        out.extend(reasons.iter().take(20).map(|r| format!("- {}", plain(r))));
    }
    if let Some(signature) = &report.signature {
        out.extend([String::new(), format!("It looks like: {}.", plain(signature))]);
    }
    if !report.next_step.is_empty() && report.next_step != "nothing" {
        out.extend([String::new(), format!("Next: {}.", plain(&report.next_step))]);
    }
    out
}

/// The sentence after the verdict, without its full stop.
pub(crate) fn sentence(bundle: &Bundle) -> String {
    match facts::sentence(bundle) {
        Sentence::Told(told) => plain(told).trim_end_matches('.').to_string(),
        Sentence::First(bad) => format!(
            "{} is the first place over tolerance, in {} of {}: {}, allowed {} ({})",
            code(&facts::place(&bad.layer, &bad.tap)),
            code(&bad.phase),
            code(&bad.patch_set),
            short(bad.injected),
            short(bad.tolerance),
            code(&bad.gate)
        ),
        Sentence::Counted { judged, over: 0 } => format!("all {judged} judged rows are within tolerance"),
        Sentence::Counted { judged, over } => {
            format!("{over} of {judged} judged rows are over tolerance, and allowed for now")
        }
        Sentence::Recalled { lost, gained, answers } => format!("{lost} lost and {gained} gained of {answers} answers"),
        Sentence::Served { histories } => format!("every judged comparison of {histories} histories passes"),
        Sentence::Nothing => "nothing more was found".to_string(),
    }
}

fn method(bundle: &Bundle) -> Vec<String> {
    let run = &bundle.run;
    let made = if run.model.random_weights { " (random weights)" } else { "" };
    let mut out = vec![
        String::new(),
        "## Method".to_string(),
        String::new(),
        format!(
            "Golden f32 and the candidate ({}, claims {}, on {}) ran the same ids layer by layer on {}{made}. Golden also ran on \
             the candidate's own layer inputs, which tells what a layer inherited from what it injected; an error is judged by \
             what the number formats must cost there.",
            code(&run.candidate.name),
            code(&run.candidate.claims),
            code(&run.backend),
            plain(&run.model.label),
        ),
    ];
    let rows = run.scenarios.iter().take(40).map(|s| vec![code(&s.name), s.sequences.to_string(), s.rows.to_string()]);
    out.extend(table(&["scenario", "sequences", "rows"], rows.collect()));
    out
}

fn by_layer(layers: &[Layer<'_>], set: Option<&str>) -> Vec<String> {
    let line = |layer: &Layer<'_>| {
        let (out, worst) = (layer.out, layer.worst());
        let place = worst
            .map_or("–".to_string(), |r| format!("{} in {} of {}", code(&r.tap), code(&r.phase), code(&r.patch_set)));
        vec![
            code(layer.name),
            option(out.and_then(|r| r.inherited)),
            option(out.and_then(|r| r.injected)),
            place,
            option(worst.and_then(|r| r.value)),
            option(worst.and_then(|r| r.predicted)),
            option(worst.and_then(|r| r.tolerance)),
            word(layer.verdict()),
        ]
    };
    let heads = ["layer", "inherited", "injected", "nearest to tolerance", "error", "predicted", "allowed", "verdict"];
    let rows: Vec<Vec<String>> = layers.iter().take(200).map(line).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let under = set.map(|s| format!(" under {}", code(s))).unwrap_or_default();
    let mut out = vec![String::new(), "## Error by layer".to_string(), String::new()];
    out.push(format!(
        "Inherited and injected: rel-L2 of what leaves the layer{under}, in the worse phase and sequence."
    ));
    out.extend(table(&heads, rows));
    out
}

fn word(verdict: Option<Verdict>) -> String {
    verdict.map_or("not judged", Verdict::name).to_string()
}

/// Each optimization with its bound and the evidence.
fn optimizations(bundle: &Bundle) -> Vec<String> {
    if bundle.patches.is_empty() {
        return Vec::new();
    }
    let mut out = vec![String::new(), "## Optimizations".to_string()];
    for p in &bundle.patches {
        out.extend([String::new(), format!("### {}: {}", code(&p.patch), word(p.verdict)), String::new()]);
        out.push(format!("- acts in {}, on profile {}; risk {}", code(&p.phases), code(&p.profile), code(&p.risk)));
        out.push(format!(
            "- bound: {} claimed at its own ops; measured {}",
            short(p.claimed_error),
            option(p.measured_error)
        ));
        out.push(format!(
            "- cost: added KL {}, added flips {}, answers lost {}",
            p.added_kl.map_or("–".into(), signed),
            p.added_flips.map_or("–".into(), |n| signed(n as f64)),
            p.recall_lost.map_or("–".into(), |n| signed(n as f64)),
        ));
        out.push(match p.speedup {
            Some(s) => format!("- gain: {} times as fast", short(s)),
            None => "- gain: not measured (a contract on the CPU has no speed)".to_string(),
        });
        out.push(format!(
            "- ran: {} executions in prefill, {} in decode, at most {} rows at once; effect probe: {}",
            p.calls_prefill,
            p.calls_decode,
            p.largest_prefill,
            code(&p.state)
        ));
        if p.expected_verdict.is_some() && p.expected_verdict != p.verdict {
            out.push(format!("- the committed table expects {}", word(p.expected_verdict)));
        }
    }
    out
}

fn ladder(bundle: &Bundle) -> Vec<String> {
    let line = |r: &facts::Rung<'_>| {
        let [half, most, nearly, all] = r.quantiles;
        let mut cells = vec![code(r.set), r.positions.to_string(), short(r.mean)];
        cells.extend([half, most, nearly, all].map(short));
        cells.extend([r.flips.to_string(), option(r.expected)]);
        cells
    };
    let rows: Vec<Vec<String>> = facts::ladder(bundle).iter().map(line).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let mut out = vec![String::new(), "## Distribution of the next token".to_string()];
    out.extend(table(&facts::RUNG_HEADS, rows));
    out
}

fn recall(bundle: &Bundle) -> Vec<String> {
    let line = |set: &&str| {
        let b = bounds(&paired(bundle.recall.iter().filter(|r| r.patch_set == **set)));
        vec![code(set), b.answers.to_string(), b.lost.to_string(), b.gained.to_string(), short(b.upper)]
    };
    let rows: Vec<Vec<String>> = patch_sets(&bundle.recall).iter().map(line).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let mut out = vec![String::new(), "## Recall".to_string()];
    out.extend(table(&["patch set", "answers", "lost", "gained", "loss ruled out from (share)"], rows));
    out
}

fn histories(bundle: &Bundle) -> Vec<String> {
    if bundle.histories.is_empty() {
        return Vec::new();
    }
    let judged = bundle.histories.iter().filter_map(|r| Some((r, history_verdict(r, &bundle.run.policy)?)));
    let rows: Vec<Vec<String>> = judged
        .filter(|(_, v)| *v != Verdict::Pass)
        .take(40)
        .map(|(r, v)| {
            let place = code(&facts::place(&r.layer, &r.tensor));
            vec![
                code(&r.history),
                format!("{}: {}", code(&r.against), code(&r.what)),
                option(r.value),
                option(r.tolerance),
                place,
                word(Some(v)),
            ]
        })
        .collect();
    let mut out = vec![String::new(), "## Histories".to_string()];
    if rows.is_empty() {
        out.extend([String::new(), "Every history that was judged passes.".to_string()]);
    }
    out.extend(table(&["history", "against", "value", "allowed", "first place", "verdict"], rows));
    out
}

/// What was tried and does not go in, and what the error does not look like.
fn dead_ends(bundle: &Bundle) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let why = |p: &PatchRow| match p.verdict {
        Some(Verdict::Fail | Verdict::Regressed) => Some("costs more than its formats explain"),
        _ if p.state == "inert" => Some("asked for, and without effect"),
        _ if p.state.starts_with("applied") => Some("does not apply once"),
        _ if p.calls_prefill + p.calls_decode == 0 => Some("never ran here"),
        _ => None,
    };
    for patch in &bundle.patches {
        lines.extend(why(patch).map(|why| format!("- {}: {why}", code(&patch.patch))));
    }
    if let Some(found) = &bundle.verdict.examination {
        let not = found.signatures.iter().filter(|s| s.fits.is_none());
        lines.extend(not.map(|s| format!("- not {} (explains a share of {})", plain(&s.name), short(s.share))));
    }
    section("Dead ends", lines)
}

fn open_questions(bundle: &Bundle) -> Vec<String> {
    let mut lines: Vec<String> =
        facts::not_evidence(bundle).iter().take(60).map(|note| format!("- {}", plain(note))).collect();
    let unproven = bundle.patches.iter().filter(|p| p.verdict == Some(Verdict::Unproven));
    lines.extend(unproven.map(|p| format!("- {} is unproven here", code(&p.patch))));
    section("Open questions, and what this run is not evidence for", lines)
}

fn section(title: &str, lines: Vec<String>) -> Vec<String> {
    if lines.is_empty() {
        return Vec::new();
    }
    [String::new(), format!("## {title}"), String::new()].into_iter().chain(lines).collect()
}

fn provenance(bundle: &Bundle) -> Vec<String> {
    let run = &bundle.run;
    let mut lines = vec![
        format!("- program {}, command {}", code(&run.producer), code(&run.command.join(" "))),
        format!("- config {}, weights {}", code(&run.model.config_sha256), code(&run.model.weights_sha256)),
        format!("- bundle {}, schema {} {}", code(&run.format), run.schema.version, code(&run.schema.hash)),
        format!(
            "- {} s on {} threads, forward passes {}",
            short(run.wall_s.total),
            run.threads,
            short(bundle.verdict.forward_equivalents)
        ),
    ];
    lines.extend(run.scenarios.iter().take(40).map(|s| format!("- ids of {}: {}", code(&s.name), code(&s.ids_sha256))));
    lines.extend(run.kernels.iter().take(60).map(|(k, hash)| format!("- kernel {}: {}", code(k), code(hash))));
    section("Provenance", lines)
}
