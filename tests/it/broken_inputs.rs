//! Hand-made broken inputs, through the public API: each gives exactly one error, which names file, tensor or field,
//! and never a panic. The right words stand with each input in `karat_tests::broken`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use karat_model::prompt::{Encoder, Tokenizer};
use karat_model::{Checkpoint, Error, ErrorKind};
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
fn broken_traces_do_not_open() {
    each(Kind::Trace, |_, dir| karat_trace::Trace::open(dir).map(|_| ()));
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
