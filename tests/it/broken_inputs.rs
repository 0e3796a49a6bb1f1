//! Hand-made broken inputs, through the public API: each gives exactly one error, which names file, tensor or field,
//! and never a panic. The right words stand with each input in `karat_tests::broken`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use karat_model::checkpoint::Severity;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_model::{Checkpoint, Error, ErrorKind};
use karat_reference::{Golden, Mode};
use karat_seam::{Lane, NoTaps, Path as _, Requests, Sequence};
use karat_tests::broken::{self, Broken, Kind};
use karat_tests::tiny_v4_files;

/// Runs a reader on each broken input of a kind and collects everything that isn't as it should be.
fn each(kind: Kind, read: impl Fn(&Broken, &std::path::Path) -> Result<(), Error>) {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for case in broken::all().into_iter().filter(|case| case.kind == kind) {
        seen += 1;
        let dir = tempfile::tempdir().expect("a folder to write in");
        case.write(dir.path());
        let outcome = catch_unwind(AssertUnwindSafe(|| read(&case, dir.path())));
        let complaint = match outcome {
            Err(_) => "it panicked".to_string(),
            Ok(Ok(())) => "it was taken".to_string(),
            Ok(Err(error)) => {
                let text = error.to_string();
                let missing: Vec<_> = case.says.iter().filter(|words| !text.contains(**words)).collect();
                if missing.is_empty() && error.kind == ErrorKind::Input && !text.contains('\n') {
                    continue;
                }
                format!("{:?} error without {missing:?}, or not in one line: {text}", error.kind)
            }
        };
        wrong.push(format!("{}: {complaint}", case.name));
    }
    assert!(seen > 0, "there are inputs of {kind:?}");
    assert!(wrong.is_empty(), "{} of {seen} inputs:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn broken_checkpoints_do_not_open() {
    each(Kind::Checkpoint, |_, dir| Checkpoint::open(dir).map(|_| ()));
}

#[test]
fn the_checkpoint_that_the_broken_ones_come_from_opens() {
    Checkpoint::from_memory("tiny-v4", tiny_v4_files()).expect("it is whole");
}

#[test]
fn broken_tokenizers_and_prompt_texts_are_refused() {
    each(Kind::Prompt, |_, dir| {
        let checkpoint = Checkpoint::open(dir)?;
        Tokenizer::of(&checkpoint)?;
        Encoder::of(&checkpoint).map(|_| ())
    });
}

#[test]
fn broken_token_files_are_refused() {
    each(Kind::Tokens, |_, dir| {
        let path = dir.join("tokens.json");
        let bytes = std::fs::read(&path).map_err(|e| Error::input("file can't be read").at(path.display()).found(e))?;
        karat_scenarios::read_tokens("tokens.json", &bytes, 512).map(|_| ())
    });
}

#[test]
fn broken_traces_do_not_open() {
    each(Kind::Trace, |_, dir| {
        let trace = karat_trace::Trace::open(dir)?;
        // What opening leaves unread: the values.
        for (at, seq, pass) in trace.held().collect::<Vec<_>>() {
            trace.tensor(at, seq, pass)?;
        }
        Ok(())
    });
}

/// The first finding of `model verify`; the checkpoint itself opens.
#[test]
fn broken_values_are_found_by_verification() {
    each(Kind::Values, |case, dir| {
        Checkpoint::open(dir)?;
        let report = karat_model::verify::verify(dir, &|_, _| ())?;
        assert_eq!(report.count(Severity::Error), 1, "{}: {report}", case.name);
        report.findings.first().map_or(Ok(()), |finding| Err(finding.error.clone()))
    });
}

/// Golden refuses what verification would: on a damaged checkpoint it would be no measure of anything.
#[test]
fn golden_does_not_run_on_broken_values() {
    for case in broken::all().into_iter().filter(|case| case.kind == Kind::Values) {
        let files = case.files().into_iter().map(|(name, bytes)| (name, Arc::from(bytes))).collect();
        let checkpoint = Arc::new(Checkpoint::from_memory("damaged", files).expect("it opens"));
        // Every token, so that every row of the embedding and every expert is used.
        let ids: Vec<u32> = (0..checkpoint.config().vocab_size as u32).collect();
        let requests = Requests { seqs: vec![Sequence::prompt("all", ids)] };
        let text = match run(checkpoint, requests) {
            Ok(()) => panic!("{}: golden ran on it", case.name),
            Err(text) => text,
        };
        let tensor = case.says[0].trim_end_matches(".weight");
        assert!(text.contains(tensor) && text.contains("damaged"), "{}: {text}", case.name);
    }
}

/// Golden from the embedding to the logits.
fn run(checkpoint: Arc<Checkpoint>, requests: Requests) -> Result<(), String> {
    let text = |e: karat_seam::Error| e.to_string();
    let golden = Golden::new(checkpoint, requests, Mode::F32, 2).map_err(|e| e.to_string())?;
    let mut x = golden.embed(&mut NoTaps).map_err(text)?;
    for l in 0..golden.blocks().layers {
        let mut see = NoTaps;
        let mut lanes = [Lane::new(&x, &mut see)];
        golden.layer(l).map_err(text)?.run(&mut lanes).map_err(text)?;
        let out = lanes[0].out.take().expect("a layer fills its lane");
        x = out.streams;
    }
    golden.head(&mut [Lane::new(&x, &mut NoTaps)]).map_err(text)?;
    Ok(())
}
