//! Spec section 5, step 4: turns to text.

use super::merge::{Turn, Turns};
use super::{EncodeOptions, Part, PartSpan, Prompt, tools};
use crate::prompt::message::{Role, Task};
use crate::prompt::special;
use crate::prompt::texts::EncodingTexts;
use crate::{Error, Result};

/// Renders the turns behind the context's. (All turns of a context may have been dropped; its prompt still stands.)
pub(super) fn prompt(
    turns: &Turns<'_>,
    has_context: bool,
    context_turns: usize,
    options: &EncodeOptions,
    texts: &EncodingTexts,
    effort: Option<&str>,
) -> Result<Prompt> {
    let mut out = Builder { prompt: Prompt { text: String::new(), spans: Vec::new() } };
    if !has_context {
        out.push(None, Part::Bos, special::BOS);
    }
    for index in context_turns..turns.list.len() {
        if index == 0 && !has_context && options.thinking {
            out.push(None, Part::Effort, effort.unwrap_or_default());
        }
        turn(&mut out, turns, index, options, texts)?;
        transition(&mut out, turns, index, options);
    }
    Ok(out.prompt)
}

fn turn(
    out: &mut Builder,
    turns: &Turns<'_>,
    index: usize,
    options: &EncodeOptions,
    texts: &EncodingTexts,
) -> Result<()> {
    let turn = &turns.list[index];
    let message = Some(turn.message);
    match turn.role {
        Role::System => {
            blocks(out, turn);
            additions(out, turn, texts);
        }
        Role::Developer => {
            out.push(message, Part::RoleToken, special::USER);
            blocks(out, turn);
            additions(out, turn, texts);
        }
        Role::User | Role::Tool => {
            out.push(message, Part::RoleToken, special::USER);
            blocks(out, turn);
        }
        Role::LatestReminder => {
            out.push(message, Part::RoleToken, special::LATEST_REMINDER);
            blocks(out, turn);
        }
        Role::Assistant => {
            let after_task = index > 0 && turns.list[index - 1].task.is_some();
            if options.thinking && !after_task && (!turns.drop || turns.is_after_last(index)) {
                out.push(message, Part::Reasoning, turn.reasoning.unwrap_or_default());
                out.push(message, Part::EndThink, special::END_THINK);
            }
            blocks(out, turn);
            if !turn.tool_calls.is_empty() {
                out.push(message, Part::ToolCalls, &tools::calls(turn.tool_calls));
            }
            if !turn.wo_eos {
                out.push(message, Part::Eos, special::EOS);
            }
        }
        Role::Other(name) => {
            return Err(Error::input("unknown role")
                .at(format!("message {}: role", turn.message))
                .expected("system, developer, user, assistant, tool or latest_reminder")
                .found(format!("{name:?}")));
        }
    }
    Ok(())
}

/// Texts and tool results, joined by a blank line.
fn blocks(out: &mut Builder, turn: &Turn<'_>) {
    for (i, block) in turn.blocks.iter().enumerate() {
        let join = if i > 0 { "\n\n" } else { "" };
        if block.result_of.is_some() {
            let text = format!("{join}<tool_result>{}</tool_result>", block.text);
            out.push(Some(block.message), Part::ToolResult, &text);
        } else {
            out.push(Some(block.message), Part::Content, join);
            out.push(Some(block.message), Part::Content, &block.text);
        }
    }
}

/// What a system or developer turn carries behind its text.
fn additions(out: &mut Builder, turn: &Turn<'_>, texts: &EncodingTexts) {
    if !turn.tools.is_empty() {
        let block = tools::block(&texts.tools_template.text, turn.tools);
        out.push(Some(turn.message), Part::Tools, &format!("\n\n{block}"));
    }
    if let Some(schema) = turn.response_format {
        let block = tools::response_format(&texts.response_format.text, schema);
        out.push(Some(turn.message), Part::ResponseFormat, &format!("\n\n{block}"));
    }
}

/// What opens the assistant's turn behind a user or developer turn.
fn transition(out: &mut Builder, turns: &Turns<'_>, index: usize, options: &EncodeOptions) {
    let turn = &turns.list[index];
    let opens = turns.list.get(index + 1).is_none_or(|t| matches!(t.role, Role::Assistant | Role::LatestReminder));
    if !opens || !matches!(turn.role, Role::User | Role::Developer) {
        return;
    }
    let message = turn.blocks.last().map_or(turn.message, |b| b.message);
    let mut push = |text: &str| out.push(Some(message), Part::Transition, text);
    let think = |opens: bool| if opens { special::THINK } else { special::END_THINK };
    match turn.task {
        None => {
            push(special::ASSISTANT);
            let is_last = turns.last.is_none_or(|last| index >= last);
            push(think(options.thinking && (!turns.drop || is_last)));
        }
        Some(Task::Action) => {
            push(special::ASSISTANT);
            push(think(options.thinking));
            push(Task::Action.token());
        }
        Some(task) => push(task.token()),
    }
}

struct Builder {
    prompt: Prompt,
}

impl Builder {
    /// Appends a text; one that goes on with the same message and part lengthens its span.
    fn push(&mut self, message: Option<usize>, part: Part, text: &str) {
        if text.is_empty() {
            return;
        }
        let start = self.prompt.text.len();
        self.prompt.text.push_str(text);
        let end = self.prompt.text.len();
        match self.prompt.spans.last_mut() {
            Some(span) if span.message == message && span.part == part => span.range.end = end,
            _ => self.prompt.spans.push(PartSpan { message, part, range: start..end }),
        }
    }
}
