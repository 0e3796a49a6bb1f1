//! `karat audit --endpoint`: a server's log-probabilities against golden's on the same ids.

use std::time::Instant;

use karat_bundle::{Bundle, Candidate, Finding, Policy, Verdict, Walls, judge, row_verdict};
use karat_diff::Claims;
use karat_endpoint::api::{Renderer, Route, Server};
use karat_endpoint::logits::{Compared, rows};
use karat_endpoint::scored::{score, tokenize};
use karat_model::prompt::{Encoder, Role, Tokenizer};
use karat_optimized::Stock;
use karat_scenarios::Content;

use super::{failure, job};
use crate::args::{Audit, Globals};
use crate::failure::{Failure, Result};
use crate::model::Source;
use crate::progress::Progress;
use crate::{inputs, model, stop};

/// The profile whose formats are claimed; `None` for f32.
fn stock(args: &Audit) -> Result<(Claims, Option<Stock>)> {
    let word = args.claims.as_deref().unwrap_or_default();
    let claims = match Claims::from_name(word) {
        Some(Claims::F32) => return Ok((Claims::F32, None)),
        Some(claims) if claims != Claims::Bf16 => claims,
        _ => {
            let found = if word.is_empty() { "nothing" } else { word };
            return Err(Failure::usage(format!("--claims: expected f32, official, sglang or vllm, found {found}")));
        }
    };
    Ok((claims, Some(claims.name().parse()?)))
}

pub(crate) fn audit(args: &Audit, url: &str, globals: Globals) -> Result<Bundle> {
    for (name, given) in [
        ("--stock", args.stock.is_some()),
        ("--patches", args.patches.is_some()),
        ("--without", !args.without.is_empty()),
        ("--histories", args.histories.is_some()),
        ("--candidate", args.candidate.is_some()),
        ("--taps", args.taps.is_some()),
        ("--layers", args.layers.is_some()),
        ("--floor", args.floor),
        ("--partition", args.partition.is_some()),
    ] {
        if given {
            return Err(Failure::usage(format!("{name} has no meaning with --endpoint: {url} tells logits only")));
        }
    }
    let (claims, stock) = stock(args)?;
    let source = model::open(args.model.as_deref())?;
    let mut server = args.connect.server(&source)?;
    // Ids are sent, whatever the route says.
    server.route = Route::Completions;
    let _ = stop::on_interrupt();
    let progress = Progress::new(globals);
    let began = Instant::now();
    let inputs = inputs::read(&source.checkpoint, &args.scenarios, args.tokens.as_deref())?;
    args.connect.name_model(&mut server)?;
    let names = (inputs.scenarios.clone(), inputs.requests.seqs.clone());
    let job = job(&source, inputs, globals, &progress);
    let mut bundle = Bundle { run: job.provenance(), ..Bundle::default() };
    let mut walls = Walls::default();
    template(args, &source, &server, &mut bundle)?;
    // Everything the server says first: it costs little, and may make golden unnecessary.
    let mut told = Vec::new();
    for (i, sequence) in names.1.iter().enumerate() {
        progress.show(i as u64, names.1.len() as u64, &format!("log-probabilities of {}", sequence.id));
        let one = score(&server, &sequence.ids, usize::from(args.top_logprobs)).map_err(|t| failure(t, &server))?;
        if let Some((at, theirs)) = one.differs {
            let theirs = theirs.map_or_else(|| "another one, or none".to_owned(), |id| id.to_string());
            let ours = sequence.ids.get(at).map_or_else(|| "none".to_owned(), ToString::to_string);
            let reason =
                format!("ids differ: {}, position {at}: {ours} was sent, the server has {theirs}", sequence.id);
            bundle.run.findings.push(Finding::new(Verdict::Unproven, reason));
        }
        told.push(one.rows);
    }
    walls.candidate = began.elapsed().as_secs_f64();
    if bundle.run.findings.is_empty() {
        let begun = Instant::now();
        let golden = karat_audit::logits(&job, None)?;
        let cost = stock.map(|s| karat_audit::logits(&job, Some(s))).transpose()?;
        walls.golden = begun.elapsed().as_secs_f64();
        bundle.verdict.forward_equivalents = if cost.is_some() { 2.0 } else { 1.0 };
        for (i, sequence) in names.1.iter().enumerate() {
            let found = rows(&Compared {
                scenario: &names.0[i],
                sequence: &sequence.id,
                ids: &sequence.ids,
                golden: (golden[i].as_f32("logits").map_err(karat_audit::Error::from)?, golden[i].width()),
                stock: match &cost {
                    Some(cost) => Some(cost[i].as_f32("logits").map_err(karat_audit::Error::from)?),
                    None => None,
                },
                told: &told[i],
            });
            bundle.taps.extend(found.taps);
            bundle.tokens.extend(found.tokens);
            bundle.run.findings.extend(found.findings);
        }
    }
    progress.finish();
    finish(args, &server, claims, &mut bundle);
    walls.total = began.elapsed().as_secs_f64();
    walls.diff = walls.total - walls.golden - walls.candidate;
    bundle.run.wall_s = walls;
    Ok(bundle)
}

fn finish(args: &Audit, server: &Server<'_>, claims: Claims, bundle: &mut Bundle) {
    let run = &mut bundle.run;
    run.backend = "endpoint".into();
    run.policy = Policy::default();
    run.candidate = Candidate {
        name: format!("{} at {}", server.model, server.client.address().label()),
        claims: claims.name().to_owned(),
        patch_sets: vec!["endpoint".to_owned()],
    };
    let k = args.top_logprobs;
    run.notes.push(format!(
        "the server tells {k} ids of each position: KL is a lower bound, and nothing is known of the rest of its vocabulary"
    ));
    run.notes
        .push("prompts only, in one pass: decoding, warm caches and aborts are `karat recall --endpoint`'s".to_owned());
    run.notes.push("no layer is named: that takes a trace (adapters/python, `karat audit --candidate`)".to_owned());
    run.notes.push(format!("which weights the server runs is taken on trust: {}", server.model));
    for row in &mut bundle.taps {
        row.verdict = row_verdict(row, &Policy::default());
    }
    let forward = bundle.verdict.forward_equivalents;
    bundle.verdict = judge(&bundle.evidence(), &Policy::default());
    bundle.verdict.forward_equivalents = forward;
}

/// The prompt that the server's template makes of each conversation against golden's encoder, where the server tells.
fn template(args: &Audit, source: &Source, server: &Server<'_>, bundle: &mut Bundle) -> Result<()> {
    if args.tokens.is_some() {
        bundle.run.notes.push("ids were given: nothing is known of the server's template".to_owned());
        return Ok(());
    }
    let story = [karat_scenarios::story().name.to_owned()];
    let names = if args.scenarios.is_empty() { &story[..] } else { &args.scenarios };
    let renderer =
        Renderer { tokenizer: Tokenizer::of(&source.checkpoint)?, encoder: Encoder::of(&source.checkpoint)? };
    for name in names {
        let content: Content = inputs::content(name)?;
        for talk in content.conversations(&renderer.tokenizer, &renderer.encoder)? {
            let end = talk.messages.iter().rposition(|m| m.role == Role::Assistant).unwrap_or(talk.messages.len());
            let (messages, id) = (&talk.messages[..end], &talk.name);
            let ours = renderer.ids(messages, &talk.options)?;
            let theirs = tokenize(server, messages, talk.options.thinking).map_err(|t| failure(t, server))?;
            let Some(theirs) = theirs else {
                let note =
                    "the server has no /tokenize for messages: its template was not compared with golden's encoder";
                bundle.run.notes.push(note.to_owned());
                return Ok(());
            };
            if ours != theirs {
                let at = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
                let around = |ids: &[u32]| {
                    let part = &ids[at.saturating_sub(4).min(ids.len())..ids.len().min(at + 8)];
                    renderer.tokenizer.decode(part).unwrap_or_default()
                };
                let reason = format!(
                    "templates differ: {id}, at token {at} of {} (the server's prompt has {}): golden's encoder writes {:?}, \
                     the server {:?}",
                    ours.len(),
                    theirs.len(),
                    around(&ours),
                    around(&theirs)
                );
                bundle.run.findings.push(Finding::new(Verdict::Unproven, reason));
                return Ok(());
            }
        }
    }
    Ok(())
}
