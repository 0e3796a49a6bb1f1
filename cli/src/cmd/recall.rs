//! `karat recall`.

use karat_audit::Subject;
use karat_optimized::History;

use super::audit::{low_precision, part_of};
use super::live;
use crate::args::{Globals, Recall};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{inputs, model, output, summary};

pub(crate) fn run(args: &Recall, globals: Globals) -> Result<u8> {
    if !(args.margin > 0.0 && args.margin < 100.0) {
        return Err(Failure::usage(format!("--margin: expected a share over 0 and under 100, found {}", args.margin)));
    }
    if let Some(url) = &args.connect.endpoint {
        return live::recall(args, url, globals);
    }
    let subject = match args.golden {
        true => None,
        false => {
            let (stock, patches) = low_precision(args.stock.as_deref(), args.patches.as_deref(), &args.without)?;
            Some(Subject { stock, patches, history: History::Cold })
        }
    };
    let partition = args.partition.as_deref().map(part_of).transpose()?;
    let source = model::open(args.model.as_deref())?;
    let some = karat_scenarios::list().iter().filter(|b| args.all || !b.long);
    let some: Vec<String> = some.map(|b| b.name.to_owned()).collect();
    let names = if args.scenarios.is_empty() { &some } else { &args.scenarios };
    let inputs = inputs::scenarios(&source.checkpoint, names)?;
    if inputs.asks.iter().all(Vec::is_empty) {
        return Err(Failure::usage("these scenarios ask nothing (no `answers`): there is nothing to recall"));
    }
    let longest = inputs.requests.seqs.iter().map(|s| s.ids.len()).max().unwrap_or(0);
    // Conversations that ask nothing are not run.
    let (inputs, part) = match (inputs.asking(), partition) {
        (all, None) => (all, None),
        (all, Some((index, of))) => {
            let (own, rest) = all.part(index, of);
            (own, Some(rest))
        }
    };
    let progress = Progress::new(globals);
    let job = inputs::job(&source, inputs, globals, &progress);
    let margin = args.margin / 100.0;
    let mut bundle = match &subject {
        Some(subject) if args.stop_early => karat_audit::recall_until(&job, subject, margin)?,
        subject => karat_audit::recall(&job, subject.as_ref(), Some(margin))?,
    };
    progress.finish();
    let trained = model::TRAINED_TOKENS;
    if args.model.is_none() && longest > trained {
        let note =
            format!("the mini golden model was never trained on more than {trained} tokens; these are {longest}");
        bundle.run.notes.push(note);
    }
    if let Some(stopped) = bundle.run.stopped {
        let note = format!("ended after {} of {} conversations: the test had decided", stopped.after, stopped.of);
        bundle.run.notes.push(note);
    }
    if let Some(part) = part {
        karat_bundle::merge::as_part(&mut bundle, part);
    }
    if let Some(out) = &args.out {
        karat_bundle::write(out, &bundle)?;
    }
    if globals.json {
        output::json(&summary::json(&bundle));
    } else {
        output::page(&summary::recall_text(&bundle, args.out.as_deref(), output::Style::of_stdout()));
    }
    Ok(bundle.verdict.exit_code)
}
