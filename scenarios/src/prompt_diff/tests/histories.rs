//! One broken history each.

use karat_model::prompt::Part;

use super::{MADE, Rule, against, ids, long, one};

const PLAIN: &str = r#"[{"role": "user", "content": "Remember K7Q."},
    {"role": "assistant", "reasoning_content": "A code.", "content": "OK."},
    {"role": "user", "content": "Which code?"}]"#;
const THINKS: &str = "^<U>Remember K7Q.<A></think>OK.$<U>Which code?<A><think>";
const CHATS: &str = "^<U>Remember K7Q.<A></think>OK.$<U>Which code?<A></think>";

const TOOLS: &str = r#"[{"role": "system", "content": "Be brief.", "tools": [{"type": "function", "function": {"name": "time"}}]},
    {"role": "user", "content": "Time?"},
    {"role": "assistant", "reasoning_content": "I ask twice.", "content": "", "tool_calls": [
        {"id": "a", "function": {"name": "time", "arguments": "{\"zone\": \"UTC\"}"}},
        {"id": "b", "function": {"name": "time", "arguments": "{\"zone\": \"CET\"}"}}]},
    {"role": "tool", "tool_call_id": "a", "content": "12:00"},
    {"role": "tool", "tool_call_id": "b", "content": "13:00"},
    {"role": "assistant", "reasoning_content": "Both are here.", "content": "Noon and one."},
    {"role": "user", "content": "Thanks."}]"#;

const CALLS: &str = "\n\n<DSMLtool_calls>\n<DSMLinvoke name=\"time\">\n<DSMLparameter name=\"zone\" string=\"true\">UTC</DSMLparameter>\n</DSMLinvoke>\n\
    <DSMLinvoke name=\"time\">\n<DSMLparameter name=\"zone\" string=\"true\">CET</DSMLparameter>\n</DSMLinvoke>\n</DSMLtool_calls>";

/// The tools block of the made model, in short form.
fn block() -> String {
    let template = &MADE.1.texts().tools_template.text;
    let filled = template.replace("{dsml_token}", "DSML").replace("{thinking_end_token}", "</think>");
    filled.replace("{tool_schemas}", "{\"name\": \"time\"}")
}

fn with_tools() -> String {
    format!(
        "^Be brief.\n\n{}<U>Time?<A><think>I ask twice.</think>{CALLS}$<U><tool_result>12:00</tool_result>\n\n\
         <tool_result>13:00</tool_result><A><think>Both are here.</think>Noon and one.$<U>Thanks.<A><think>",
        block()
    )
}

/// The text before the first place where `at` stands.
fn up_to<'a>(text: &'a str, at: &str) -> &'a str {
    text.split_once(at).unwrap().0
}

#[test]
fn reasoning_dropped_though_tools_are_present() {
    let right = with_tools();
    let broken = right.replace("<think>Both are here.</think>", "</think>");
    let before = up_to(&right, "<think>Both");
    let found = one(TOOLS, true, None, &right, &broken, before);
    assert_eq!((found.rule, found.message, found.part), (Rule::ReasoningDropped, Some(5), Some(Part::Transition)));
    assert_eq!((found.expected_at, found.expected.as_str()), (ids(before), "<think>Both are here."));
    assert_eq!(found.detail.as_deref(), Some("tools are present"));
    // The tags left behind, the text gone.
    let emptied = right.replace("<think>Both are here.</think>", "<think></think>");
    let before = up_to(&right, "Both are");
    let found = one(TOOLS, true, None, &right, &emptied, before);
    assert_eq!((found.rule, found.message, found.expected_at), (Rule::ReasoningDropped, Some(5), ids(before)));
}

#[test]
fn reasoning_kept_though_there_are_no_tools() {
    let broken = THINKS.replace("<A></think>OK", "<A><think>A code.</think>OK");
    let before = "^<U>Remember K7Q.<A>";
    let found = one(PLAIN, true, None, THINKS, &broken, before);
    assert_eq!((found.rule, found.message, found.found_at), (Rule::ReasoningKept, Some(1), ids(before)));
    assert_eq!(found.found, "<think>A code.");
    let found = one(PLAIN, false, None, CHATS, &CHATS.replace("<A></think>OK", "<A><think>A code.</think>OK"), before);
    assert_eq!((found.rule, found.detail.as_deref()), (Rule::ReasoningKept, Some("chat mode")));
}

#[test]
fn assistant_turn_without_its_end_token() {
    let before = "^<U>Remember K7Q.<A></think>OK.";
    let found = one(PLAIN, true, None, THINKS, &THINKS.replace('$', ""), before);
    assert_eq!((found.rule, found.message, found.part), (Rule::EndTokenMissing, Some(1), Some(Part::Eos)));
    assert_eq!((found.expected_at, found.found_at), (ids(before), ids(before)));
    // The interrupted answer of the story: a part of a page, and no end token behind it.
    let story = r#"[{"role": "user", "content": "write page"}, {"role": "assistant", "content": "<!DOCTYPE"},
        {"role": "user", "content": "to a file"}]"#;
    let right = "^<U>write page<A></think><!DOCTYPE$<U>to a file<A></think>";
    let found = one(story, false, None, right, &right.replace('$', ""), "^<U>write page<A></think><!DOCTYPE");
    assert_eq!((found.rule, found.message), (Rule::EndTokenMissing, Some(1)));
    let found = one(story, false, None, right, "^<U>write page<U>to a file<A></think>", "^<U>write page");
    assert_eq!((found.rule, found.message), (Rule::TurnMissing, Some(1)));
    let merged = "^<U>write page\n\nto a file<A></think>";
    let found = one(story, false, None, right, merged, "^<U>write page");
    assert_eq!((found.rule, found.message), (Rule::TurnMissing, Some(1)));
    let found = one(story, false, None, right, &right.replace("<!DOCTYPE", "<!DOC"), "^<U>write page<A></think><!DOC");
    assert_eq!((found.rule, found.message), (Rule::TurnCut, Some(1)));
}

#[test]
fn tool_result_in_the_wrong_place() {
    let right = with_tools();
    let (a, b) = ("<tool_result>12:00</tool_result>", "<tool_result>13:00</tool_result>");
    // In the order in which they came instead of that of the calls.
    let swapped = right.replace(&format!("{a}\n\n{b}"), &format!("{b}\n\n{a}"));
    let before = up_to(&right, "2:00</tool");
    let found = one(TOOLS, true, None, &right, &swapped, before);
    assert_eq!((found.rule, found.part), (Rule::ToolResultPlace, Some(Part::ToolResult)));
    assert!(found.message == Some(3) || found.message == Some(4), "{found:?}");
    // Behind the token of the answer.
    let behind = right.replace(&format!("\n\n{b}<A><think>"), &format!("<A><think>{b}"));
    let found = one(TOOLS, true, None, &right, &behind, up_to(&right, "\n\n<tool_result>13"));
    assert_eq!((found.rule, found.message), (Rule::ToolResultPlace, Some(4)));
    // In the turn of the person's next question.
    let later = right.replace(&format!("\n\n{b}"), "").replace("Thanks.", &format!("Thanks.\n\n{b}"));
    let found = one(TOOLS, true, None, &right, &later, up_to(&right, "\n\n<tool_result>13"));
    assert_eq!((found.rule, found.message), (Rule::ToolResultPlace, Some(4)));
    assert_eq!(found.expected, b);
    // Without its tags.
    let bare = right.replace(b, "13:00");
    let found = one(TOOLS, true, None, &right, &bare, up_to(&right, "<tool_result>13"));
    assert_eq!((found.rule, found.message), (Rule::ToolResultPlace, Some(4)));
    // Another text in its place.
    let found = one(TOOLS, true, None, &right, &right.replace("13:00", "13:01"), up_to(&right, "0</tool_result><A>"));
    assert_eq!((found.rule, found.message), (Rule::ToolResultText, Some(4)));
    let gone =
        one(TOOLS, true, None, &right, &right.replace(&format!("\n\n{b}"), ""), up_to(&right, "\n\n<tool_result>13"));
    assert_eq!((gone.rule, gone.message), (Rule::ToolResultText, Some(4)), "{gone:?}");
}

#[test]
fn opening_think_tag_in_chat_mode() {
    let before = "^<U>Remember K7Q.<A></think>OK.$<U>Which code?<A>";
    let found = one(PLAIN, false, None, CHATS, THINKS, before);
    assert_eq!((found.rule, found.expected_at, found.found_at), (Rule::ThinkTagInChat, ids(before), ids(before)));
    assert_eq!((found.expected.as_str(), found.found.as_str()), ("</think>", "<think>"));
    let before = "^<U>Remember K7Q.<A>";
    let history = CHATS.replacen("<A></think>", "<A><think>", 1);
    let found = one(PLAIN, false, None, CHATS, &history, before);
    assert_eq!((found.rule, found.message, found.found_at), (Rule::ThinkTagInChat, Some(1), ids(before)));
    let both = CHATS.replacen("<A></think>", "<A><think></think>", 1);
    let found = one(PLAIN, false, None, CHATS, &both, before);
    assert_eq!((found.rule, found.message), (Rule::ThinkTagInChat, Some(1)));
    // In thinking mode the same tag is another rule's.
    let found = one(PLAIN, true, None, THINKS, &THINKS.replacen("<A></think>", "<A><think>", 1), before);
    assert_eq!((found.rule, found.message), (Rule::ThinkTag, Some(1)));
}

#[test]
fn effort_prefix_misplaced() {
    let system = r#"[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]"#;
    let effort = &MADE.1.texts().effort_a.text;
    let right = format!("^{effort}Be brief.<U>Hi<A><think>");
    let found = one(system, true, Some("max"), &right, &format!("^Be brief.\n\n{}<U>Hi<A><think>", effort.trim()), "^");
    assert_eq!((found.rule, found.expected_at), (Rule::EffortPlace, 1));
    assert_eq!(found.found_at, ids("^Be brief.\n\n"), "where it stands instead");
    let found = one(system, true, Some("max"), &right, &format!("{effort}^Be brief.<U>Hi<A><think>"), "");
    assert_eq!(found.rule, Rule::EffortPlace);
    let found = one(system, true, Some("max"), &right, "^Be brief.<U>Hi<A><think>", "^");
    assert_eq!((found.rule, found.detail.as_deref()), (Rule::Effort, Some("it is missing")));
    let plain = "^Be brief.<U>Hi<A><think>";
    let found = one(system, true, None, plain, &right, "^");
    assert_eq!((found.rule, found.detail.as_deref()), (Rule::Effort, Some("nobody asked for one")));
    let tier_b = right.replace(effort.as_str(), &MADE.1.texts().effort_b.text);
    let found = one(system, true, Some("max"), &right, &tier_b, "^");
    assert_eq!((found.rule, found.detail.as_deref()), (Rule::Effort, Some("it is that of another tier")));
}

#[test]
fn begin_token_missing_or_doubled() {
    let found = one(PLAIN, true, None, THINKS, &THINKS.replace('^', ""), "");
    assert_eq!((found.rule, found.expected_at, found.found_at), (Rule::Bos, 0, 0));
    let found = one(PLAIN, true, None, THINKS, &format!("^{THINKS}"), "^");
    assert_eq!(found.rule, Rule::Bos);
}

#[test]
fn tools_block_missing_misplaced_or_written_otherwise() {
    let right = with_tools();
    let behind = format!("\n\n{}", block());
    let found = one(TOOLS, true, None, &right, &right.replace(&behind, ""), "^Be brief.");
    assert_eq!(
        (found.rule, found.message, found.detail.as_deref()),
        (Rule::ToolsBlock, Some(0), Some("it is missing"))
    );
    let spaced = right.replace("{\"name\": \"time\"}", "{\"name\":\"time\"}");
    let found = one(TOOLS, true, None, &right, &spaced, up_to(&right, " \"time\"}\n"));
    assert_eq!((found.rule, found.message), (Rule::ToolsBlock, Some(0)));
    assert_eq!(found.expected_at, ids(up_to(&right, " \"time\"}\n")));
    let first = right.replace(&format!("Be brief.{behind}"), &format!("{}\n\nBe brief.", block().trim()));
    let found = one(TOOLS, true, None, &right, &first, "^");
    assert_eq!((found.rule, found.detail.as_deref()), (Rule::ToolsBlock, Some("it stands elsewhere")));
}

#[test]
fn calls_roles_merging_and_the_end() {
    let right = with_tools();
    let json = right.replace(CALLS, "\n\n[{\"name\": \"time\"}]");
    let found = one(
        TOOLS,
        true,
        None,
        &right,
        &json,
        up_to(&right, "<DSMLtool_calls>\n<DSMLinvoke name=\"time\">\n<DSMLparameter name=\"zone\""),
    );
    assert_eq!((found.rule, found.message), (Rule::ToolCalls, Some(2)));
    let two = r#"[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]"#;
    let found = one(two, false, None, "^<U>a\n\nb<A></think>", "^<U>a<U>b<A></think>", "^<U>a");
    assert_eq!((found.rule, found.message), (Rule::Merging, Some(0)));
    let found = one(PLAIN, false, None, CHATS, &CHATS.replacen("<U>", "", 1), "^");
    assert_eq!((found.rule, found.message), (Rule::RoleToken, Some(0)));
    let before = "^<U>Remember K7Q.<A></think>OK.$<U>Which code?";
    let found = one(PLAIN, false, None, CHATS, before, before);
    assert_eq!((found.rule, found.detail.as_deref()), (Rule::GenerationPrompt, Some("it is missing")));
    let found = one(PLAIN, false, None, CHATS, &CHATS.replace("K7Q", "K7R"), "^<U>Remember K7");
    assert_eq!((found.rule, found.message, found.expected_at), (Rule::Content, Some(0), ids("^<U>Remember K7")));
    let found = one(PLAIN, false, None, CHATS, &CHATS.replace("K7Q.", "K7Q. "), "^<U>Remember K7Q.");
    assert_eq!(found.rule, Rule::WhiteSpace);
    let found = one(PLAIN, false, None, CHATS, &format!("{CHATS}<｜title｜>"), CHATS);
    assert_eq!(found.rule, Rule::Unknown);
    let found = one(
        PLAIN,
        false,
        None,
        CHATS,
        &CHATS.replace("<U>Which", "<U>Hello<A></think>Hi.$<U>Which"),
        before.strip_suffix("Which code?").unwrap(),
    );
    assert_eq!(found.rule, Rule::TurnExtra);
}

#[test]
fn several_broken_rules_are_all_reported_in_order() {
    let right = with_tools();
    let broken = right
        .replace('^', "")
        .replace("<think>I ask twice.</think>", "</think>")
        .replace("Noon and one.$", "Noon and one.")
        .replace("Thanks.<A><think>", "Thanks.<A></think>");
    let rules: Vec<Rule> = against(TOOLS, true, None, &broken).findings.iter().map(|f| f.rule).collect();
    assert_eq!(rules, [Rule::Bos, Rule::ReasoningDropped, Rule::EndTokenMissing, Rule::ThinkTag]);
}

#[test]
fn a_lost_history_is_one_finding() {
    let five = r#"[{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "three"}]"#;
    let right = "^<U>one<A></think>1$<U>two<A></think>2$<U>three<A></think>";
    let found = one(five, false, None, right, "^<U>three<A></think>", "^<U>");
    assert_eq!((found.rule, found.message), (Rule::TurnMissing, Some(0)));
    assert_eq!(found.detail.as_deref(), Some("messages 0 to 3"));
    assert_eq!(long("^"), "<｜begin▁of▁sentence｜>");
}
