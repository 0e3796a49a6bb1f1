//! `karat recall --endpoint`.

use std::time::Instant;

use karat_audit::Inputs;
use karat_bundle::{Bundle, Candidate, Finding, Model, Policy, RecallRow, RequestRow, Verdict, Walls, judge};
use karat_endpoint::api::Server;
use karat_endpoint::recall::{Found, Suite, run};
use karat_endpoint::{Conversation, Habits, Process, Set, Speed, Toggles, interrupted, template, verdict};
use karat_model::prompt::{Encoder, Tokenizer};

use super::{failure, job};
use crate::args::{Globals, Recall};
use crate::failure::{Failure, Result};
use crate::model::Source;
use crate::progress::Progress;
use crate::{inputs, model, output, stop, summary};

/// Every conversation of these scenarios, and the same as inputs of a run (for the provenance).
fn conversations(source: &Source, names: &[String]) -> Result<(Vec<Conversation>, Inputs)> {
    let (tokenizer, encoder) = (Tokenizer::of(&source.checkpoint)?, Encoder::of(&source.checkpoint)?);
    let (mut out, mut all) = (Vec::new(), Inputs::default());
    for name in names {
        let content = inputs::content(name)?;
        let scenario = content.name().to_owned();
        if all.scenarios.contains(&scenario) {
            return Err(Failure::usage(format!("scenario `{scenario}` is named twice")));
        }
        for talk in content.conversations(&tokenizer, &encoder)? {
            all.requests.seqs.push(talk.to_sequence(&tokenizer, &encoder)?);
            all.scenarios.push(scenario.clone());
            out.push(Conversation::new(&scenario, talk));
        }
    }
    out.retain(|c| c.exchanges.iter().any(|e| !e.questions.is_empty()));
    if out.is_empty() {
        return Err(Failure::usage("these scenarios ask nothing (no `answers`): there is nothing to recall"));
    }
    Ok((out, all))
}

pub(crate) fn recall(args: &Recall, url: &str, globals: Globals) -> Result<u8> {
    for (name, given) in [
        ("--stock", args.stock.is_some()),
        ("--patches", args.patches.is_some()),
        ("--without", !args.without.is_empty()),
        ("--golden", args.golden),
    ] {
        if given {
            return Err(Failure::usage(format!("{name} has no meaning with --endpoint: what runs is at {url}")));
        }
    }
    let source = model::open(args.model.as_deref())?;
    let mut server = args.connect.server(&source)?;
    let some = karat_scenarios::list().iter().filter(|b| args.all || !b.long).map(|b| b.name.to_owned());
    let some: Vec<String> = some.collect();
    let names = if args.scenarios.is_empty() { &some } else { &args.scenarios };
    let (conversations, all) = conversations(&source, names)?;
    let progress = Progress::new(globals);
    let began = Instant::now();
    let mut run = job(&source, all, globals, &progress).provenance();
    let found = match &args.holding.ab {
        None => vec![hold(args, &mut server, &conversations, "endpoint", &progress)?],
        Some(file) => {
            let toggles = Toggles::load(file)?;
            let mut found: Vec<Found> = Vec::new();
            for set in toggles.sets(args.holding.toggles.as_deref())? {
                let mut one = with(args, &mut server, &toggles, &set, &conversations, &progress)?;
                if let Some(stock) = found.first() {
                    one.against(stock);
                }
                found.push(one);
            }
            found
        }
    };
    progress.finish();
    run.model = Model { label: format!("{} at {}", server.model, server.client.address().label()), ..Model::default() };
    run.backend = "endpoint".into();
    run.policy = Policy { recall_margin: Some(args.margin / 100.0), ..Policy::default() };
    let mut patch_sets: Vec<String> = Vec::new();
    let mut requests: Vec<RequestRow> = Vec::new();
    let mut recall: Vec<RecallRow> = Vec::new();
    let (mut unsteady, mut repeated) = (0, 0);
    for one in found {
        patch_sets.extend(one.rows.first().map(|r| r.patch_set.clone()));
        run.findings.extend(verdict::lost(&one, args.margin / 100.0, run.policy.delta));
        run.findings.extend(verdict::forgotten(&one, args.margin / 100.0, run.policy.delta));
        let (some, all) = one.unsteady();
        unsteady += some;
        repeated += all;
        run.findings.extend(one.findings);
        run.notes.extend(one.notes);
        requests.extend(one.requests);
        recall.extend(one.rows);
    }
    run.candidate = Candidate { name: "endpoint".to_owned(), claims: server.api.name().to_owned(), patch_sets };
    let speed = Speed::of(&requests);
    run.notes.extend(speed.notes());
    if repeated > 0 {
        run.notes.push(format!("{unsteady} of {repeated} repeated questions were answered now rightly, now wrongly"));
    }
    if !server.streams {
        run.notes.push("answers came whole: no stream was closed, so nothing is known of interruptions".to_owned());
    }
    run.notes.push("what a number format or kernel costs in logits: `karat audit --endpoint` compares them".to_owned());
    run.wall_s = Walls { total: began.elapsed().as_secs_f64(), ..Walls::default() };
    run.wall_s.candidate = run.wall_s.total;
    let mut bundle = Bundle { run, recall, ..Bundle::default() };
    bundle.verdict = judge(&bundle.evidence(), &bundle.run.policy);
    if let Some(out) = &args.out {
        karat_bundle::write(out, &bundle)?;
        karat_bundle::write_requests(out, &requests)?;
    }
    if globals.json {
        output::json(&summary::endpoint::json(&bundle, &speed));
    } else {
        let style = output::Style::of_stdout();
        output::stdout(&summary::endpoint::text(&bundle, &requests, args.out.as_deref(), style));
    }
    Ok(bundle.verdict.exit_code)
}

/// The suite under one set of toggles.
fn with(
    args: &Recall,
    server: &mut Server<'_>,
    toggles: &Toggles,
    set: &Set,
    conversations: &[Conversation],
    progress: &Progress,
) -> Result<Found> {
    progress.show(0, 1, &format!("starting the server, {}", set.name));
    let process = match Process::start(&toggles.start(set), &server.client, stop::on_interrupt()) {
        Ok(process) => process,
        Err(trouble) if trouble.is_infra() => {
            let reason = format!("{}: {trouble}", set.name);
            return Ok(Found { findings: vec![Finding::new(Verdict::Infra, reason)], ..Found::default() });
        }
        Err(trouble) => return Err(failure(trouble, server)),
    };
    let found = hold(args, server, conversations, &set.name, progress);
    // Stopped before anything else is done with its port.
    drop(process);
    found
}

/// The suite on a server that runs.
fn hold(
    args: &Recall,
    server: &mut Server<'_>,
    conversations: &[Conversation],
    patch_set: &str,
    progress: &Progress,
) -> Result<Found> {
    args.connect.name_model(server)?;
    let holding = &args.holding;
    let counted = template::count(server).map_err(|t| failure(t, server))?;
    // Different in every run: a control must be unlike what an earlier run left in a cache.
    let seed = std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_micros() as u64);
    let left = holding.requests.map(|n| n.saturating_sub(counted.requests));
    let delta = Policy::default().delta;
    progress.show(0, 1, "prompts before and behind an interruption");
    let checked = match holding.abort_every {
        0 => interrupted::Interrupted::default(),
        _ => {
            interrupted::check(server, conversations, seed, left, (delta, patch_set)).map_err(|t| failure(t, server))?
        }
    };
    let sent = Speed::of(&checked.requests).requests;
    let habits = Habits {
        abort_every: holding.abort_every,
        most: holding.max_tokens,
        seed,
        repeat: 0,
        budget: left.map(|n| n.saturating_sub(sent)),
    };
    let suite = Suite {
        conversations,
        habits,
        concurrency: usize::from(holding.concurrency),
        repeats: u64::from(holding.repeats),
        patch_set,
    };
    let step = |done, total, what: &str| progress.show(done, total, what);
    let mut found = run(server, &suite, &step).map_err(|t| failure(t, server))?;
    found.findings.extend(counted.findings.into_iter().chain(checked.findings));
    found.notes.extend(counted.notes.into_iter().chain(checked.notes));
    found.requests.splice(0..0, checked.requests);
    Ok(found)
}
