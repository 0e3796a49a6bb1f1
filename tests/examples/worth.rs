//! What each mechanism of attention is worth to the golden model, in any scenario:
//! `cargo run --release -p karat-tests --example worth -- hca,csa NAME|FILE.toml...`. Prints, for each question, golden's worst
//! margin whole and without the mechanisms, then the sums.
#![expect(clippy::print_stdout, reason = "printing is what a tool is for")]

#[path = "../it/ablate.rs"]
mod ablate;

use std::path::Path;

use ablate::{Mechanism, Models, given};
use karat_scenarios::Content;

/// Tokens of one pass, unless one conversation is longer.
const TOKENS: usize = 8192;

fn main() {
    let mut args = std::env::args().skip(1);
    let words = args.next().expect("mechanisms: hca, csa, indexer, window, with commas between");
    let off: Vec<Mechanism> = Mechanism::ALL
        .into_iter()
        .filter(|m| words.split(',').any(|w| m.name().to_lowercase().ends_with(&w.to_lowercase())))
        .collect();
    let models = Models::new();
    for name in args {
        let file = Path::new(&name);
        let content = if file.extension().is_some() { Content::load(file) } else { Content::builtin(&name) };
        let all = models.conversations(content.expect("a scenario"));
        let mut kinds: Vec<(String, &'static str, u32)> = Vec::new();
        let mut margins: Vec<Vec<f64>> = vec![Vec::new(); off.len() + 1];
        let mut at = 0;
        while at < all.len() {
            let mut end = at + 1;
            let mut tokens = all[at].0.ids.len();
            while end < all.len() && tokens + all[end].0.ids.len() <= TOKENS {
                tokens += all[end].0.ids.len();
                end += 1;
            }
            let batch = &all[at..end];
            for (column, off) in margins.iter_mut().zip(std::iter::once(None).chain(off.iter().copied().map(Some))) {
                column.extend(models.margins(batch, off));
            }
            for (s, asks) in batch {
                kinds.extend(asks.iter().map(|a| (s.id.clone(), a.kind, a.answer.start - a.told.unwrap_or(0))));
            }
            at = end;
        }
        for (i, (id, kind, distance)) in kinds.iter().enumerate() {
            let row: String = margins.iter().map(|c| format!(" {:8.2}", c[i])).collect();
            println!("{id} {kind:<12} {distance:6}{row}");
        }
        for (column, what) in margins.iter().zip(std::iter::once("golden").chain(off.iter().map(|m| m.name()))) {
            println!(
                "{name}: {} of {} with {what} {}",
                given(column),
                column.len(),
                if what == "golden" { "whole" } else { "off" }
            );
        }
    }
}
