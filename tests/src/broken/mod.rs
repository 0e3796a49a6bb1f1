//! Hand-made broken inputs: checkpoints, configs, tokenizers, token files and traces, each broken in one way.
//!
//! Each says what words the one message about it must hold, so that the same list serves the public API
//! (`tests/it/broken_inputs.rs`) and the command line (`cli/tests/broken.rs`).

mod checkpoints;
mod configs;
mod edit;
mod prompts;
mod tokens;
mod traces;

use std::collections::BTreeMap;
use std::path::Path;

pub use edit::Files;

/// A broken input in short: its name, words of its message, what breaks it.
type Row<'a> = (&'a str, &'a [&'a str], fn(&mut Files));

/// What kind of input is broken, and so which reader has to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A checkpoint folder that must not open.
    Checkpoint,
    /// A checkpoint folder that opens, but whose values `model verify` must refuse.
    Values,
    /// A checkpoint folder whose tokenizer or prompt texts are broken.
    Prompt,
    /// A token file, `tokens.json`.
    Tokens,
    /// A trace folder.
    Trace,
}

/// One broken input.
pub struct Broken {
    /// Names it in a test's output.
    pub name: &'static str,
    /// Which reader has to tell.
    pub kind: Kind,
    /// Words that the message must hold: file, tensor or field first.
    pub says: &'static [&'static str],
    breaks: fn(&mut Files),
}

impl Broken {
    /// Its files by relative name: a whole input of that kind, then broken.
    pub fn files(&self) -> Files {
        let mut files = whole(self.kind);
        (self.breaks)(&mut files);
        files
    }

    /// Writes its files under `dir`.
    pub fn write(&self, dir: &Path) {
        write(&self.files(), dir);
    }
}

/// An input of that kind before it is broken; readers must take it.
pub fn whole(kind: Kind) -> Files {
    match kind {
        Kind::Checkpoint | Kind::Values => super::tiny_v4_files().into_iter().map(|(n, b)| (n, b.to_vec())).collect(),
        Kind::Prompt => {
            let made = karat_model::new_model(karat_model::Geometry::Mini, 1);
            made.into_iter().map(|(n, b)| (n, b.to_vec())).collect()
        }
        Kind::Tokens => BTreeMap::from([("tokens.json".to_string(), tokens::WHOLE.as_bytes().to_vec())]),
        Kind::Trace => traces::whole(),
    }
}

/// Writes files under `dir`; a name that ends in `/` is a folder.
pub fn write(files: &Files, dir: &Path) {
    for (name, bytes) in files {
        let path = dir.join(name);
        let folder = if name.ends_with('/') { Some(path.as_path()) } else { path.parent() };
        std::fs::create_dir_all(folder.expect("a folder")).expect("the test's folder is writable");
        if !name.ends_with('/') {
            std::fs::write(path, bytes).expect("the test's folder is writable");
        }
    }
}

/// Every broken input.
pub fn all() -> Vec<Broken> {
    [checkpoints::all(), configs::all(), prompts::all(), tokens::all(), traces::all()].into_iter().flatten().collect()
}
