//! Numbers of a report: short for people, whole for the test that walks them.

use std::fmt::Write as _;

use maud::{Markup, html};

/// Three digits at most: `0`, `12`, `0.0123`, `1.2e-5`.
pub(crate) fn short(v: f64) -> String {
    let size = v.abs();
    if v.is_nan() {
        "NaN".to_string()
    } else if v.is_infinite() {
        if v > 0.0 { "inf".to_string() } else { "-inf".to_string() }
    } else if v == v.trunc() && size < 1e7 {
        format!("{:.0}", v + 0.0)
    } else if (0.01..1e4).contains(&size) {
        let digits = (2 - size.log10().floor() as i32).clamp(0, 4) as usize;
        format!("{v:.digits$}")
    } else {
        format!("{v:.1e}")
    }
}

/// The same, or a dash.
pub(crate) fn option(v: Option<f64>) -> String {
    v.map_or("–".to_string(), short)
}

/// With its sign.
pub(crate) fn signed(v: f64) -> String {
    let text = short(v);
    if v > 0.0 { format!("+{text}") } else { text }
}

/// A cell of the bundle, in html.
pub(crate) fn data(v: f64) -> Markup {
    html! { data value=(format!("{v:?}")) { (short(v)) } }
}

/// A cell that may be empty.
pub(crate) fn maybe(v: Option<f64>) -> Markup {
    html! { @if let Some(v) = v { (data(v)) } @else { "–" } }
}

/// A count that is a cell of the bundle.
pub(crate) fn count(n: u64) -> Markup {
    html! { data value=(n) { (n) } }
}

/// A number that answers a question to the tables, e.g. `mean tokens.csv kl patch_set=stock`.
pub(crate) fn asked(v: f64, question: &str) -> Markup {
    html! { data value=(format!("{v:?}")) data-of=(question) { (short(v)) } }
}

/// A question: what is done (count, mean, max, p50, ...) with which column of which file, where columns hold these values.
pub(crate) fn question(what: &str, file: &str, column: &str, filter: &[(&str, &str)]) -> String {
    let mut text = format!("{what} {file} {column}");
    for (name, value) in filter {
        let _ = write!(text, "; {name}={}", crate::text::clean(value, crate::text::NAME));
    }
    text
}

/// The value that a share `p` of sorted values does not exceed (nearest rank).
pub(crate) fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let rank = (p * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_their_size() {
        let cases = [(0.0, "0"), (-0.0, "0"), (12.0, "12"), (0.0123, "0.0123"), (1.234e-5, "1.2e-5"), (123.456, "123")];
        for (v, text) in cases {
            assert_eq!(short(v), text);
        }
        assert_eq!((short(f64::NAN), short(f64::NEG_INFINITY)), ("NaN".to_string(), "-inf".to_string()));
        assert_eq!((signed(0.5), signed(-0.5), signed(0.0)), ("+0.500".into(), "-0.500".into(), "0".into()));
        assert_eq!((short(9999.5), short(12345.678)), ("10000".into(), "1.2e4".into()));
    }

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let sample: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|p| quantile(&sample, p)), [1.0, 50.0, 99.0, 100.0].map(Some));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
