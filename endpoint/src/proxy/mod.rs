//! Plumbing of a proxy in front of a model: karat stands behind it in the model's place, so that both ends are known.
//!
//! Every field that the client sends is looked for behind the proxy, and every piece of a scripted answer before it.

mod request;
mod response;
mod upstream;

use std::time::Duration;

use crate::client::Client;
use crate::trouble::{Result, Trouble};

pub use upstream::Upstream;

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Right,
    /// Lost, changed, late or out of order.
    Wrong,
    /// It could not be seen.
    Unseen,
    /// The proxy did not answer in time, was over its limit or failed: another try may go well.
    NoAnswer,
}

impl State {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Wrong => "wrong",
            Self::Unseen => "not seen",
            Self::NoAnswer => "no answer",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// What was found.
    pub state: State,
    /// In words, where it isn't right.
    pub detail: String,
}

impl Check {
    fn of(name: &'static str, wrong: &[String]) -> Self {
        let state = if wrong.is_empty() { State::Right } else { State::Wrong };
        Self { name, state, detail: wrong.join("; ") }
    }

    fn unseen(name: &'static str, trouble: &Trouble) -> Self {
        let state = if trouble.is_infra() { State::NoAnswer } else { State::Unseen };
        Self { name, state, detail: trouble.to_string() }
    }
}

/// Sends the scripted requests through the proxy at `client` to `upstream`, and compares both ends.
///
/// # Errors
/// The proxy does not answer, or nothing of what it is sent reaches `upstream`.
pub fn check(client: &Client<'_>, upstream: &Upstream) -> Result<Vec<Check>> {
    let mut out = Vec::new();
    let body = request::everything();
    let answer = client.post("/v1/chat/completions", &body);
    let arrived = upstream.last();
    let Some(arrived) = arrived else {
        return Err(match answer {
            Err(trouble) => trouble,
            Ok(_) => Trouble::Refused(
                "the proxy answers, but nothing came through it: does it stand before --listen?".to_owned(),
            ),
        });
    };
    out.extend(request::compare(&body, &arrived));
    out.extend(match answer {
        Ok(answer) => response::whole(&answer),
        Err(trouble) => vec![Check::unseen("whole answer", &trouble)],
    });
    out.extend(response::streams(client));
    out.push(response::limit(client));
    out.push(closing(client, upstream));
    Ok(out)
}

/// A stream that the client closes must be closed behind the proxy as well, or the model generates for nobody and its cache
/// keeps what nobody saw.
fn closing(client: &Client<'_>, upstream: &Upstream) -> Check {
    let name = "interruption reaches the model";
    match client.stream("/v1/chat/completions", &request::simple("endless", true)) {
        Err(trouble) => Check::unseen(name, &trouble),
        Ok(mut events) => {
            let first = events.next_data();
            drop(events);
            match first {
                Err(trouble) => Check::unseen(name, &trouble),
                Ok(_) if upstream.was_closed_within(Duration::from_secs(1)) => Check::of(name, &[]),
                Ok(_) => {
                    Check::of(name, &["1 s after the client left, the model's answer was still being read".to_owned()])
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
