//! SGLang's `/generate` on token ids.

use serde_json::{Value, json};

use super::Reply;
use super::reply::text;
use crate::trouble::{Result, Trouble};

pub(super) fn body(ids: &[u32], most: usize, stream: bool) -> Value {
    json!({
        "input_ids": ids,
        "sampling_params": {"temperature": 0, "max_new_tokens": most, "skip_special_tokens": false},
        "stream": stream,
        // Of the answer alone: the prompt's would take the prefix cache away.
        "return_logprob": true,
        "return_text_in_logprobs": false,
    })
}

/// Takes an answer, or one event of a stream. Events bring the whole text so far; a server can be started so that they bring
/// only what is new.
pub(super) fn read(value: &Value, reply: &mut Reply) -> Result<()> {
    let Some(meta) = value.get("meta_info").filter(|m| m.is_object()) else {
        return Err(Trouble::malformed("the answer has no meta_info"));
    };
    let said = text(value, "text")?;
    let is_whole = said.starts_with(reply.content.as_str());
    if is_whole {
        said.clone_into(&mut reply.content);
    } else {
        reply.content.push_str(said);
    }
    let number = |name: &str| meta.get(name).and_then(Value::as_u64);
    reply.usage.prompt = number("prompt_tokens").or(reply.usage.prompt);
    reply.usage.completion = number("completion_tokens").or(reply.usage.completion);
    reply.usage.cached = number("cached_tokens").or(reply.usage.cached);
    // As the text: all so far, or only what is new.
    if let Some(list) = meta.get("output_token_logprobs").and_then(Value::as_array) {
        let values = list.iter().filter_map(|one| one.get(0).and_then(Value::as_f64));
        let (sum, n) = values.fold((0.0, 0), |(sum, n), p| (sum + p, n + 1));
        let before = if is_whole { (0.0, 0) } else { reply.log_probs };
        reply.log_probs = (before.0 + sum, before.1 + n);
    }
    match meta.get("finish_reason") {
        None | Some(Value::Null) => {}
        Some(Value::String(word)) => reply.finish = Some(word.clone()),
        Some(why) => {
            let word = text(why, "type")?;
            if word == "abort" {
                let said: String = text(why, "message")?.chars().take(300).collect();
                return Err(Trouble::infra(format!("the server gave the request up: {said}")));
            }
            reply.finish = Some(word.to_owned());
        }
    }
    Ok(())
}
