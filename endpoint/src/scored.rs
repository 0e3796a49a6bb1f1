//! What a server says of given ids: log-probabilities of its most likely ids at every position.

use serde_json::{Value, json};

use crate::api::{Api, Server};
use crate::trouble::{Result, Trouble};

/// The most likely ids of one position, with their log-probabilities (nats); the id that follows is among them when the
/// server tells it.
pub type Top = Vec<(u32, f64)>;

/// What a server says of a sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scored {
    /// Row `i` is about the id behind position `i`; one row less than ids.
    pub rows: Vec<Top>,
    /// The first position at which the server's ids are not the ones that were sent, with the server's.
    pub differs: Option<(usize, Option<u32>)>,
}

/// Asks for the `k` most likely ids at every position of `ids`. Ids go in, and ids come back: nothing is decoded.
///
/// # Errors
/// A refusal for an API that tells no ids; what ends a request.
pub fn score(server: &Server<'_>, ids: &[u32], k: usize) -> Result<Scored> {
    match server.api {
        Api::OpenAi => Err(Trouble::Refused(
            "the OpenAI API tells texts, not ids, and nothing of the prompt: its logits can't be compared (use --api vllm or \
             sglang where the server speaks it)"
                .to_owned(),
        )),
        Api::Vllm => {
            let mut body = json!({
                "model": server.model, "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": k,
                "return_token_ids": true, "add_special_tokens": false,
            });
            extend(&mut body, server);
            let (answer, _) = server.client.patiently(|| server.client.post("/v1/completions", &body));
            vllm(&answer?, ids)
        }
        Api::Sglang => {
            let mut body = json!({
                "input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": 1}, "return_logprob": true,
                "logprob_start_len": 0, "top_logprobs_num": k, "return_text_in_logprobs": false,
            });
            extend(&mut body, server);
            let (answer, _) = server.client.patiently(|| server.client.post("/generate", &body));
            sglang(&answer?, ids)
        }
    }
}

fn extend(body: &mut Value, server: &Server<'_>) {
    if let Value::Object(fields) = body {
        fields.extend(server.extra.clone());
    }
}

fn broken(what: impl Into<String>) -> Trouble {
    Trouble::malformed(what)
}

fn log_prob(value: &Value) -> Result<f64> {
    match value {
        Value::Number(n) => n.as_f64().filter(|p| *p <= 1e-3),
        // JSON has no infinity.
        Value::String(text) if text.starts_with("-Inf") || text == "-inf" => Some(f64::NEG_INFINITY),
        _ => None,
    }
    .ok_or_else(|| broken(format!("not a log-probability: {}", value.to_string().chars().take(40).collect::<String>())))
}

fn id(value: &Value) -> Result<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| broken("not a token id"))
}

fn vllm(answer: &Value, ids: &[u32]) -> Result<Scored> {
    let choice = answer.get("choices").and_then(|c| c.get(0)).ok_or_else(|| broken("the answer has no choice"))?;
    let list = choice.get("prompt_logprobs").and_then(Value::as_array);
    let list = list.ok_or_else(|| broken("the answer has no prompt_logprobs: is this vLLM?"))?;
    let mut scored = Scored::default();
    match choice.get("prompt_token_ids").and_then(Value::as_array) {
        Some(theirs) => {
            let theirs: Vec<u32> = theirs.iter().map(id).collect::<Result<_>>()?;
            scored.differs = first_difference(ids, &theirs);
        }
        None if list.len() != ids.len() => {
            scored.differs = Some((list.len().min(ids.len()), None));
        }
        None => {}
    }
    if scored.differs.is_some() {
        return Ok(scored);
    }
    if list.len() != ids.len() {
        return Err(broken(format!("{} prompt_logprobs for {} ids", list.len(), ids.len())));
    }
    for (at, entry) in list.iter().enumerate().skip(1) {
        let entry = entry.as_object().ok_or_else(|| broken(format!("prompt_logprobs[{at}] is no object")))?;
        let mut top: Top = Vec::with_capacity(entry.len());
        for (name, value) in entry {
            let id: u32 = name.parse().map_err(|_| broken(format!("prompt_logprobs[{at}]: {name:?} is no id")))?;
            top.push((id, log_prob(value.get("logprob").unwrap_or(value))?));
        }
        // Each position holds the id that stands there, whatever its rank.
        if !top.iter().any(|(id, _)| *id == ids[at]) {
            scored.differs = Some((at, None));
            return Ok(scored);
        }
        scored.rows.push(sorted(top));
    }
    Ok(scored)
}

fn sglang(answer: &Value, ids: &[u32]) -> Result<Scored> {
    let meta = answer.get("meta_info").ok_or_else(|| broken("the answer has no meta_info: is this SGLang?"))?;
    let list =
        |name: &str| meta.get(name).and_then(Value::as_array).ok_or_else(|| broken(format!("meta_info has no {name}")));
    let own = list("input_token_logprobs")?;
    let theirs: Vec<u32> = own.iter().map(|e| id(e.get(1).unwrap_or(&Value::Null))).collect::<Result<_>>()?;
    let differs = first_difference(ids, &theirs);
    if differs.is_some() {
        return Ok(Scored { differs, ..Scored::default() });
    }
    let tops = list("input_top_logprobs")?;
    if tops.len() != ids.len() {
        return Err(broken(format!("{} input_top_logprobs for {} ids", tops.len(), ids.len())));
    }
    let mut scored = Scored::default();
    for (at, (entry, own)) in tops.iter().zip(own).enumerate().skip(1) {
        let entry = entry.as_array().ok_or_else(|| broken(format!("input_top_logprobs[{at}] is no list")))?;
        let pair = |e: &Value| Ok((id(e.get(1).unwrap_or(&Value::Null))?, log_prob(e.get(0).unwrap_or(&Value::Null))?));
        let mut top: Top = entry.iter().map(pair).collect::<Result<_>>()?;
        if !top.iter().any(|(id, _)| *id == ids[at]) {
            top.push((ids[at], log_prob(own.get(0).unwrap_or(&Value::Null))?));
        }
        scored.rows.push(sorted(top));
    }
    Ok(scored)
}

/// Most likely first; the lower id of two alike.
fn sorted(mut top: Top) -> Top {
    top.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    top.dedup_by_key(|(id, _)| *id);
    top
}

fn first_difference(ours: &[u32], theirs: &[u32]) -> Option<(usize, Option<u32>)> {
    let at = ours.iter().zip(theirs).position(|(a, b)| a != b);
    let at = at.or((ours.len() != theirs.len()).then_some(ours.len().min(theirs.len())))?;
    Some((at, theirs.get(at).copied()))
}

/// Ids that the server makes of messages by its own template, with the end that asks for an answer. `None` where it has no
/// `/tokenize`.
pub fn tokenize(
    server: &Server<'_>,
    messages: &[karat_model::prompt::Message],
    thinking: bool,
) -> Result<Option<Vec<u32>>> {
    let mut body = json!({
        "model": server.model,
        "messages": messages.iter().map(crate::api::message_json).collect::<Vec<_>>(),
        "add_generation_prompt": true,
        "chat_template_kwargs": {"thinking": thinking},
    });
    let tools = crate::api::tools_json(messages);
    if !tools.is_empty() {
        body["tools"] = Value::Array(tools);
    }
    let (answer, _) = server.client.patiently(|| server.client.post("/tokenize", &body));
    let answer = match answer {
        Err(Trouble::Refused(_)) => return Ok(None),
        other => other?,
    };
    let tokens = answer.get("tokens").and_then(Value::as_array).ok_or_else(|| broken("/tokenize gives no tokens"))?;
    Ok(Some(tokens.iter().map(id).collect::<Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sglang_and_vllm_say_the_same_in_their_own_ways() {
        let sgl = json!({"meta_info": {
            "input_token_logprobs": [[null, 5, null], [-3.0, 7, null], [-0.1, 9, null]],
            "input_top_logprobs": [null, [[-0.5, 8, null], [-1.0, 9, null]], [[-0.1, 9, null], [-3.5, 1, null]]],
        }});
        let vllm_ = json!({"choices": [{"prompt_token_ids": [5, 7, 9], "prompt_logprobs": [null,
            {"8": {"logprob": -0.5, "rank": 1}, "9": {"logprob": -1.0, "rank": 2}, "7": {"logprob": -3.0, "rank": 9}},
            {"9": {"logprob": -0.1, "rank": 1}, "1": {"logprob": -3.5, "rank": 2}}]}]});
        let expected = vec![vec![(8, -0.5), (9, -1.0), (7, -3.0)], vec![(9, -0.1), (1, -3.5)]];
        assert_eq!(sglang(&sgl, &[5, 7, 9]).unwrap().rows, expected);
        assert_eq!(vllm(&vllm_, &[5, 7, 9]).unwrap().rows, expected);
        // Other ids, in either form: no rows to compare.
        assert_eq!(sglang(&sgl, &[5, 6, 9]).unwrap(), Scored { rows: vec![], differs: Some((1, Some(7))) });
        assert_eq!(vllm(&vllm_, &[5, 7, 9, 9]).unwrap().differs, Some((3, None)));
        let silent = json!({"choices": [{"prompt_logprobs": [null, {"8": {"logprob": -0.5}}]}]});
        assert_eq!(vllm(&silent, &[5, 7]).unwrap().differs, Some((1, None)));
    }

    #[test]
    fn what_is_no_log_probability_is_refused() {
        for (value, fine) in [
            (json!(-1.5), true),
            (json!("-Infinity"), true),
            (json!(0.5), false),
            (json!(null), false),
            (json!("x"), false),
        ] {
            assert_eq!(log_prob(&value).is_ok(), fine, "{value}");
        }
        assert!(vllm(&json!({"choices": []}), &[1]).is_err() && sglang(&json!({}), &[1]).is_err());
    }
}
