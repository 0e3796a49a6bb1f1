//! How fast a server answered, and what its prefix cache did, from its requests.

use karat_bundle::RequestRow;

/// Median and 95th percentile; `None` without values.
pub type Spread = Option<(f64, f64)>;

/// What the requests of a run say together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Speed {
    /// Requests, repeated ones too.
    pub requests: u64,
    /// Streams that we closed.
    pub closed: u64,
    /// Requests that were sent again.
    pub retried: u64,
    /// Milliseconds to the first text, of questions.
    pub first_ms: Spread,
    /// Tokens a second behind the first, of questions: median, and what 95 % are above.
    pub tokens_per_second: Spread,
    /// Questions of which the server says how much came from its prefix cache.
    pub told: u64,
    /// Of these, with something from it.
    pub hits: u64,
    /// Tokens from it, of how many.
    pub cached: (u64, u64),
    /// Controls that were to find nothing in a cache, and found more than a beginning.
    pub warm_controls: u64,
}

/// More than the special tokens and the words that two made sentences may begin with alike.
const BEGINNING: u64 = 64;

fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

fn spread(mut values: Vec<f64>, high: f64) -> Spread {
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| (quantile(&values, 0.5), quantile(&values, high)))
}

impl Speed {
    /// Of these requests.
    pub fn of(rows: &[RequestRow]) -> Self {
        let asks = || rows.iter().filter(|r| r.kind == "ask" && r.outcome == "answered");
        let told = || asks().filter_map(|r| Some((r.cached_tokens?, r.prompt_tokens.unwrap_or(0))));
        let cold = rows.iter().filter(|r| r.kind == "cold");
        Self {
            requests: rows.iter().map(|r| r.retries + 1).sum(),
            closed: rows.iter().filter(|r| r.outcome == "closed").count() as u64,
            retried: rows.iter().map(|r| r.retries).sum(),
            first_ms: spread(asks().filter_map(|r| r.first_ms).collect(), 0.95),
            tokens_per_second: spread(asks().filter_map(|r| r.tokens_per_second).collect(), 0.05),
            told: told().count() as u64,
            hits: told().filter(|(cached, _)| *cached > 0).count() as u64,
            cached: told().fold((0, 0), |(a, b), (cached, prompt)| (a + cached, b + prompt)),
            warm_controls: cold.filter(|r| r.cached_tokens.is_some_and(|n| n > BEGINNING)).count() as u64,
        }
    }

    /// What has to be known of the prefix cache beside the verdict.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.told == 0 {
            notes.push(
                "the server does not say what came from its prefix cache (cached_tokens): that earlier turns were \
                        reused is not proved"
                    .to_owned(),
            );
        } else if self.hits == 0 {
            notes.push(
                "no question was answered from a prefix cache: reuse of earlier turns was not exercised".to_owned(),
            );
        }
        if self.warm_controls > 0 {
            notes.push(format!("{} controls that no cache should know were answered from one", self.warm_controls));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_cache_by_hand() {
        let row = |kind: &str, first: f64, cached: Option<u64>| RequestRow {
            kind: kind.to_owned(),
            outcome: "answered".to_owned(),
            first_ms: Some(first),
            prompt_tokens: Some(100),
            cached_tokens: cached,
            ..RequestRow::default()
        };
        let rows =
            [row("ask", 3.0, Some(0)), row("ask", 1.0, Some(60)), row("ask", 2.0, None), row("cold", 9.0, Some(70))];
        let speed = Speed::of(&rows);
        assert_eq!(speed.first_ms, Some((2.0, 3.0)));
        assert_eq!((speed.told, speed.hits, speed.cached, speed.warm_controls), (2, 1, (60, 200), 1));
        assert_eq!(Speed::of(&[]).first_ms, None);
        assert_eq!(Speed::of(&rows[2..3]).notes().len(), 1);
    }
}
