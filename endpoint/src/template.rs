//! Whether what is sent arrives in the prompt: the server's own count of its tokens must change with every part.

use karat_bundle::{Finding, Verdict};
use karat_model::prompt::{EncodeOptions, Json, Message, Role};

use crate::api::Server;
use crate::trouble::{Result, Trouble};

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counted {
    /// What bears on the verdict.
    pub findings: Vec<Finding>,
    /// What should be known.
    pub notes: Vec<String>,
    /// Requests that it took.
    pub requests: u64,
}

struct Part {
    name: &'static str,
    /// Messages of [`whole`] that are left out.
    without: &'static [usize],
}

/// Every part whose loss would be a lost context. Tools are part of message 0.
const PARTS: [Part; 4] = [
    Part { name: "the system message", without: &[0] },
    Part { name: "an earlier turn", without: &[1, 2] },
    Part { name: "an earlier answer", without: &[2] },
    Part { name: "a tool's result, with its call", without: &[3, 4] },
];

fn whole() -> Vec<Message> {
    let mut system = Message::new(Role::System, "you are a careful assistant. be brief.");
    let lookup = r#"{"name": "lookup", "description": "finds a value", "parameters": {"type": "object", "properties": {"name": {"type": "string"}}}}"#;
    system.tools = Json::parse(lookup).into_iter().collect();
    let mut call = Message::new(Role::Assistant, "");
    call.tool_calls.push(karat_model::prompt::ToolCall {
        id: "call_0".to_owned(),
        name: "lookup".to_owned(),
        arguments: karat_model::prompt::Arguments::Text(r#"{"name": "rain"}"#.to_owned()),
    });
    let mut result = Message::new(Role::Tool, "the value is K472");
    result.tool_call_id = "call_0".into();
    vec![
        system,
        Message::new(Role::User, "remember: the owner of the tiny tower is petra."),
        Message::new(Role::Assistant, "noted."),
        call,
        result,
        Message::new(Role::User, "what is the value?"),
    ]
}

/// Counts prompts with and without each part, by answers of one token.
///
/// # Errors
/// What ends a request: no answer, a refusal, garbage.
pub fn count(server: &Server<'_>) -> Result<Counted> {
    let mut counted = Counted::default();
    // A chat template has a rule for calls without a user before them: in front of the call stands one.
    let mut all = whole();
    all.insert(3, Message::new(Role::User, "look up the value of the rain."));
    let options = EncodeOptions::chat();
    let mut tokens = |messages: &[Message]| -> Result<Option<u64>> {
        counted.requests += 1;
        let (reply, _) = server.client.patiently(|| server.ask(messages, &options, 1, None));
        Ok(reply?.usage.prompt)
    };
    let Some(full) = tokens(&all)? else {
        counted
            .notes
            .push("the server counts no prompt tokens: that its template holds every part is not proved".to_owned());
        return Ok(counted);
    };
    let mut lost = Vec::new();
    let mut refused = Vec::new();
    let mut check = |name: &'static str, less: Vec<Message>, full: u64| match tokens(&less) {
        Ok(Some(n)) if n < full => Ok(()),
        Ok(Some(n)) => {
            lost.push(format!("{name} ({full} tokens with, {n} without)"));
            Ok(())
        }
        Ok(None) => Ok(()),
        // A template may not take a conversation with a gap.
        Err(Trouble::Refused(_)) => {
            refused.push(name);
            Ok(())
        }
        Err(other) => Err(other),
    };
    for part in &PARTS {
        // Behind the inserted user turn the indices move by one; a call goes with the turn that asked for it.
        let leave = |i: usize| part.without.contains(&if i > 3 { i - 1 } else { i });
        let less = all.iter().enumerate().filter(|(i, _)| !leave(*i)).map(|(_, m)| m.clone()).collect();
        check(part.name, less, full)?;
    }
    let mut bare = all.clone();
    bare[0].tools.clear();
    check("the tools", bare, full)?;
    if !lost.is_empty() {
        let reason = format!("the server's prompt does not hold {}: it has no more tokens for it", lost.join(", nor "));
        counted.findings.push(Finding::new(Verdict::Fail, reason));
    }
    if !refused.is_empty() {
        counted.notes.push(format!("the server takes no conversation without {}: not counted", refused.join(", ")));
    }
    Ok(counted)
}
