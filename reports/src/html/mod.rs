//! `report.html`: one file, no script, no network, light and dark by the reader's settings.

mod bits;
mod drill;
mod head;
mod histories;
mod logits;
mod overview;
mod patches;
mod provenance;
mod recall;
mod signature;

use karat_bundle::Bundle;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::facts;

/// The style sheet; a test works out the contrast of its colours.
pub(crate) const STYLE: &str = include_str!("style.css");

/// No script runs and nothing is fetched, whatever slipped into the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// A part of the page: anchor, title, content. A part without content is left out.
type Section = (&'static str, &'static str, Option<Markup>);

/// The report as one self-contained html file.
pub fn html(bundle: &Bundle) -> String {
    let gated = facts::gated(bundle);
    let bundle = &*facts::as_judged(bundle);
    let set = facts::last_set(bundle);
    let layers = facts::layers(bundle, set);
    let places = facts::places(bundle, &layers);
    let sections: [Section; 14] = [
        ("layers", "Error by layer", overview::by_layer(&layers, set)),
        ("heat", "Layer by position", overview::heat(bundle, &layers, set)),
        ("patches", "Speed patches", patches::section(bundle)),
        ("limits", "Limits of the policy", patches::limits(&gated)),
        ("logits", "KL ladder", logits::ladder(bundle)),
        ("flips", "Changed decisions and their margins", logits::flips(bundle)),
        ("recall", "Recall", recall::section(bundle)),
        ("histories", "Histories", histories::section(bundle)),
        ("coverage", "Coverage and probes", patches::coverage(bundle)),
        ("signature", "Signature, and what to try", signature::section(bundle)),
        ("drill", "From layer to op to token", drill::section(&layers, &places)),
        ("power", "What this gate could have seen", provenance::power(bundle, &gated)),
        ("provenance", "Provenance", Some(provenance::section(bundle))),
        ("limits-of-evidence", "What this run is not evidence for", Some(provenance::not_evidence(bundle))),
    ];
    let shown: Vec<(&str, &str, Markup)> =
        sections.into_iter().filter_map(|(id, title, body)| Some((id, title, body?))).collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "karat: " (bundle.verdict.verdict.name()) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "Skip to the report" }
                (head::header(bundle, &layers))
                nav aria-label="Sections" {
                    ul { @for (id, title, _) in &shown { li { a href={ "#" (id) } { (title) } } } }
                }
                main id="main" {
                    @for (id, title, body) in &shown {
                        section id=(id) { h2 { (title) } (body) }
                    }
                }
                footer { p { "Made from a bundle of " (bits::text(&bundle.run.producer)) " alone: every number is a cell of its tables or follows from them." } }
            }
        }
    };
    page.into_string()
}
