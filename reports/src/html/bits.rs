//! Small pieces that every section uses.

use karat_bundle::Verdict;
use maud::{Markup, html};

use crate::text::{NAME, TEXT, clean};

/// A name of the bundle.
pub(super) fn name(text: &str) -> Markup {
    html! { code { (clean(text, NAME)) } }
}

/// A sentence of the bundle.
pub(super) fn text(text: &str) -> Markup {
    html! { span.s { (clean(text, TEXT)) } }
}

/// Class of a verdict: its colour.
pub(super) fn class(verdict: Verdict) -> &'static str {
    match verdict.exit_code() {
        0 => "pass",
        1 => "fail",
        _ => "warn",
    }
}

/// A verdict as a word.
pub(super) fn verdict(verdict: Option<Verdict>) -> Markup {
    html! {
        @match verdict {
            Some(v) => b class=(class(v)) { (v.name()) },
            None => span.soft { "not judged" },
        }
    }
}

/// A wide thing scrolls within itself, by keyboard too. Labels differ, so that they tell places apart.
pub(super) fn wide(label: &str, body: &Markup) -> Markup {
    html! { div.wide tabindex="0" role="region" aria-label=(label) { (body) } }
}

/// A table with a head line.
pub(super) fn table(label: &str, heads: &[&str], rows: &[Markup]) -> Markup {
    wide(
        label,
        &html! {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { @for row in rows { (row) } }
            }
        },
    )
}

/// So many more rows are in a file.
pub(super) fn more(left: usize, file: &str) -> Markup {
    html! { @if left > 0 { p.soft { "There are more of them, in " code { (file) } "." } } }
}
