//! Spec section 5, steps 1 to 3: tool results become blocks of user turns, and thinking is dropped.

use std::collections::HashMap;

use super::EncodeOptions;
use crate::prompt::json::Json;
use crate::prompt::message::{Message, Role, Task, ToolCall};

/// A text or a tool result inside a user turn.
#[derive(Debug, Clone)]
pub(super) struct Block<'a> {
    /// Index of the message that it came from.
    pub(super) message: usize,
    pub(super) text: String,
    /// Id of the call, for a tool result.
    pub(super) result_of: Option<&'a str>,
}

/// What is rendered as one message.
#[derive(Debug, Clone)]
pub(super) struct Turn<'a> {
    pub(super) role: &'a Role,
    /// Index of its first message.
    pub(super) message: usize,
    pub(super) blocks: Vec<Block<'a>>,
    pub(super) reasoning: Option<&'a str>,
    pub(super) tool_calls: &'a [ToolCall],
    pub(super) tools: &'a [Json],
    pub(super) response_format: Option<&'a Json>,
    pub(super) task: Option<Task>,
    pub(super) wo_eos: bool,
}

/// A whole conversation, merged and dropped.
pub(super) struct Turns<'a> {
    pub(super) list: Vec<Turn<'a>>,
    /// Whether thinking of earlier turns is dropped.
    pub(super) drop: bool,
    /// Index of the last user or developer turn.
    pub(super) last: Option<usize>,
}

impl Turns<'_> {
    /// True behind the last user or developer turn (or when there is none).
    pub(super) fn is_after_last(&self, index: usize) -> bool {
        self.last.is_none_or(|last| index > last)
    }
}

/// Merges context and messages, each by itself, and drops. Also returns how many turns of the context are left.
pub(super) fn turns<'a>(
    context: &'a [Message],
    messages: &'a [Message],
    options: &EncodeOptions,
) -> (Turns<'a>, usize) {
    let mut list = merge(context, 0);
    let mut context_turns = list.len();
    list.extend(merge(messages, context.len()));
    order_results(&mut list);
    let drop = options.drop_thinking && list.iter().all(|t| t.tools.is_empty());
    if options.thinking
        && drop
        && let Some(last) = last_asking(&list)
    {
        let mut index = 0;
        let mut left_of_context = 0;
        list.retain_mut(|turn| {
            let here = index;
            index += 1;
            let keep = here >= last || survives(turn);
            left_of_context += usize::from(keep && here < context_turns);
            keep
        });
        context_turns = left_of_context;
    }
    let last = last_asking(&list);
    (Turns { list, drop, last }, context_turns)
}

/// Whether a turn before the last user turn stays. An assistant turn stays without its reasoning.
fn survives(turn: &mut Turn<'_>) -> bool {
    match turn.role {
        Role::Assistant => {
            turn.reasoning = None;
            true
        }
        Role::Developer | Role::Other(_) => false,
        Role::System | Role::User | Role::Tool | Role::LatestReminder => true,
    }
}

fn last_asking(turns: &[Turn<'_>]) -> Option<usize> {
    turns.iter().rposition(|t| matches!(t.role, Role::User | Role::Developer))
}

fn merge(messages: &[Message], offset: usize) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        let index = offset + i;
        let role = if message.role == Role::Tool { &Role::User } else { &message.role };
        let blocks = blocks(message, index);
        match turns.last_mut() {
            Some(before) if *role == Role::User && *before.role == Role::User && before.task.is_none() => {
                before.blocks.extend(blocks);
                before.task = message.task;
            }
            _ => turns.push(Turn {
                role,
                message: index,
                blocks,
                reasoning: message.reasoning_content.as_deref(),
                tool_calls: &message.tool_calls,
                tools: &message.tools,
                response_format: message.response_format.as_ref(),
                task: message.task,
                wo_eos: message.wo_eos,
            }),
        }
    }
    turns
}

/// A user message is a block for each of its texts (one that is empty for none); a tool message is one result.
fn blocks(message: &Message, index: usize) -> Vec<Block<'_>> {
    if message.role == Role::User && message.content.len() > 1 {
        let block = |text: &String| Block { message: index, text: text.clone(), result_of: None };
        return message.content.iter().map(block).collect();
    }
    let result_of = (message.role == Role::Tool).then_some(message.tool_call_id.as_str());
    vec![Block { message: index, text: message.content.join("\n\n"), result_of }]
}

/// Tool results stand in the order of the calls of the last assistant turn that made any; an id that none of them has
/// counts as the first. Texts between the results keep their places.
fn order_results(turns: &mut [Turn<'_>]) {
    let mut order: HashMap<&str, usize> = HashMap::new();
    for turn in turns {
        if *turn.role == Role::Assistant && !turn.tool_calls.is_empty() {
            order = turn.tool_calls.iter().enumerate().map(|(i, call)| (call.id.as_str(), i)).collect();
            order.remove("");
        }
        let places: Vec<usize> = (0..turn.blocks.len()).filter(|&i| turn.blocks[i].result_of.is_some()).collect();
        let mut results: Vec<Block<'_>> = places.iter().map(|&i| turn.blocks[i].clone()).collect();
        results.sort_by_key(|block| block.result_of.and_then(|id| order.get(id)).copied().unwrap_or(0));
        for (place, result) in places.into_iter().zip(results) {
            turn.blocks[place] = result;
        }
    }
}
