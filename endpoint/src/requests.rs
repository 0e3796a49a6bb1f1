//! What was sent, and what came of it.

use std::sync::atomic::{AtomicU64, Ordering};

use karat_bundle::RequestRow;

use crate::api::Reply;
use crate::trouble::{Result, Trouble};

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A question.
    Ask,
    /// A question that is given up.
    Abort,
    /// An answer of which the client reads a part.
    Cut,
    /// The control without any cache.
    Cold,
    /// The control without the history.
    Alone,
    /// The control with nothing of the history but what the answer was told in.
    Near,
    /// A prompt that is asked before and behind an interruption.
    Again,
    /// Counting a prompt's tokens.
    Count,
}

impl Kind {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Abort => "abort",
            Self::Cut => "cut",
            Self::Cold => "cold",
            Self::Alone => "alone",
            Self::Near => "near",
            Self::Again => "again",
            Self::Count => "count",
        }
    }
}

/// Writes down the requests of one conversation.
#[derive(Debug)]
pub(crate) struct Log<'a> {
    /// What every row says.
    pub like: RequestRow,
    /// Rows so far.
    pub rows: Vec<RequestRow>,
    /// Requests of the whole run so far, repeated ones too.
    pub sent: &'a AtomicU64,
}

impl Log<'_> {
    /// Writes down a request.
    pub(crate) fn add(&mut self, kind: Kind, messages: usize, retries: u32, result: &Result<Reply>) {
        self.sent.fetch_add(u64::from(retries) + 1, Ordering::Relaxed);
        let mut row = RequestRow {
            kind: kind.name().to_owned(),
            messages: messages as u64,
            retries: u64::from(retries),
            ..self.like.clone()
        };
        match result {
            Ok(reply) => {
                row.outcome = String::from(if reply.closed { "closed" } else { "answered" });
                row.prompt_tokens = reply.usage.prompt;
                row.cached_tokens = reply.usage.cached;
                row.completion_tokens = reply.usage.completion;
                row.first_ms = reply.times.first.map(|s| 1e3 * s);
                row.total_ms = Some(1e3 * reply.times.total);
                row.tokens_per_second = reply.tokens_per_second();
                row.finish_reason = reply.finish.clone().unwrap_or_default();
            }
            Err(Trouble::Infra(..) | Trouble::Stopped) => row.outcome = "infra".into(),
            Err(Trouble::Refused(_)) => row.outcome = "refused".into(),
            Err(Trouble::Malformed(_)) => row.outcome = "malformed".into(),
        }
        self.rows.push(row);
    }
}
