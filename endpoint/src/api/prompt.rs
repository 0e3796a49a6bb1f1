//! `/v1/completions` on token ids.

use serde_json::{Value, json};

use super::reply::text;
use super::{Api, Reply, Server, common};
use crate::trouble::{Result, Trouble};

pub(super) fn body(server: &Server<'_>, ids: &[u32], most: usize) -> Value {
    let mut fields = common(server, most);
    fields.insert("prompt".to_owned(), json!(ids));
    if server.api != Api::OpenAi {
        // The ids are whole, and the reasoning's end has to be seen.
        fields.insert("skip_special_tokens".to_owned(), json!(false));
        // That of the chosen token alone.
        fields.insert("logprobs".to_owned(), json!(1));
    }
    if server.api == Api::Vllm {
        fields.insert("add_special_tokens".to_owned(), json!(false));
    }
    Value::Object(fields)
}

/// Takes an answer, or one event of a stream: both have the same shape.
pub(super) fn read(value: &Value, reply: &mut Reply) -> Result<()> {
    reply.count(value.get("usage"));
    let Some(choices) = value.get("choices").and_then(Value::as_array) else {
        return Err(Trouble::malformed("the answer has no list of choices"));
    };
    let Some(choice) = choices.first() else { return Ok(()) };
    reply.content.push_str(text(choice, "text")?);
    let log_probs = choice.get("logprobs").and_then(|l| l.get("token_logprobs")).and_then(Value::as_array);
    for p in log_probs.into_iter().flatten().filter_map(Value::as_f64) {
        reply.log_probs.0 += p;
        reply.log_probs.1 += 1;
    }
    let finish = text(choice, "finish_reason")?;
    if !finish.is_empty() {
        reply.finish = Some(finish.to_owned());
    }
    Ok(())
}
