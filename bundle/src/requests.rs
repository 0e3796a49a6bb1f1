//! `requests.csv`: what an endpoint was sent and how fast it answered. It lies beside a bundle's tables when a run talked to
//! a server; no verdict rests on it.

use std::path::Path;

use crate::Error;
use crate::schema::table;

table! {
    /// One request to an endpoint.
    RequestRow = "requests.csv" {
        /// Scenario.
        scenario: String,
        /// Conversation id.
        conversation: String,
        /// Which toggles the server ran with; `endpoint` when it was running already.
        patch_set: String,
        /// Which time over, from 0.
        repeat: u64,
        /// ask, abort (given up while the answer came), cut (the same where the conversation says so), cold (the same prompt
        /// behind words that no cache knows) or alone (the last turn only).
        kind: String,
        /// Messages in the prompt.
        messages: u64,
        /// Times that it was sent again.
        retries: u64,
        /// answered, closed (by us), infra, refused or malformed.
        outcome: String,
        /// Tokens of the prompt, as the server counts them.
        prompt_tokens: Option<u64>,
        /// Of these from a prefix cache; empty when the server does not say.
        cached_tokens: Option<u64>,
        /// Tokens of the answer.
        completion_tokens: Option<u64>,
        /// Milliseconds from sending to the first text.
        first_ms: Option<f64>,
        /// Milliseconds to the end.
        total_ms: Option<f64>,
        /// Tokens a second behind the first.
        tokens_per_second: Option<f64>,
        /// Why the answer ended.
        finish_reason: String,
    }
}

/// Writes `requests.csv` into the folder of a bundle that has just been written.
pub fn write_requests(dir: &Path, rows: &[RequestRow]) -> crate::Result<()> {
    let path = dir.join(<RequestRow as crate::Row>::FILE);
    let failed = |source| Error::Write { path: path.clone(), source };
    let bytes = crate::write::to_csv(rows).map_err(failed)?;
    let temporary = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
    std::fs::write(temporary.path(), bytes).map_err(failed)?;
    temporary.persist(&path).map(|_| ()).map_err(|e| failed(e.error))
}
