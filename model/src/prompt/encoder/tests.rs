//! Expected strings follow the algorithm of spec section 5 by hand. `[T]` stands for the tools text.

use proptest::prelude::*;

use super::{Effort, EncodeOptions, Encoder, Part, Prompt};
use crate::ErrorKind;
use crate::prompt::json::Json;
use crate::prompt::message::{Message, Role};
use crate::prompt::texts::{EncodingTexts, Release, Text};

fn encoder(release: Release) -> Encoder {
    Encoder::new(EncodingTexts {
        origin: "test".to_owned(),
        release,
        tools_template: Text::new(
            "[{dsml_token} {thinking_start_token} {thinking_end_token} {other}]\n{tool_schemas}\n",
        ),
        response_format: Text::new("as {schema}"),
        effort_a: Text::new("EFFORT A\n\n"),
        effort_b: Text::new("EFFORT B\n\n"),
    })
}

fn messages(json: &str) -> Vec<Message> {
    Message::list_from_json(&Json::parse(json).unwrap()).unwrap()
}

/// Spans tile the text: in order, none empty, neighbours differ.
fn check_spans(prompt: &Prompt) {
    let mut at = 0;
    for span in &prompt.spans {
        assert_eq!(span.range.start, at);
        assert!(span.range.end > at);
        assert!(prompt.text.is_char_boundary(span.range.end));
        at = span.range.end;
    }
    assert_eq!(at, prompt.text.len());
}

/// The special tokens shortened, so that expectations can be read.
fn short(text: &str) -> String {
    text.replace("<｜begin▁of▁sentence｜>", "<bos>")
        .replace("<｜end▁of▁sentence｜>", "<eos>")
        .replace("<｜User｜>", "<U>")
        .replace("<｜Assistant｜>", "<A>")
        .replace("｜DSML｜", "|D|")
}

fn render(json: &str, options: &EncodeOptions) -> String {
    let prompt = encoder(Release::Preview).encode(&messages(json), options).unwrap();
    check_spans(&prompt);
    short(&prompt.text)
}

fn thinking() -> EncodeOptions {
    EncodeOptions::default()
}

const TOOL: &str = r#"[{"type": "function", "function": {"name": "f", "description": "é"}}]"#;
const TOOL_BLOCK: &str = "\n\n[|D| <think> </think> {other}]\n{\"name\": \"f\", \"description\": \"é\"}\n";

#[test]
fn every_assistant_turn_of_chat_mode_is_introduced() {
    let text = r#"[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"r","content":"b"},{"role":"user","content":"c"}]"#;
    assert_eq!(render(text, &EncodeOptions::chat()), "<bos><U>a<A></think>b<eos><U>c<A></think>");
}

#[test]
fn thinking_is_dropped_before_the_last_user_turn_only() {
    let text = r#"[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"r","content":"b"},
        {"role":"user","content":"c"},{"role":"assistant","reasoning_content":"s","content":"d"}]"#;
    assert_eq!(render(text, &thinking()), "<bos><U>a<A></think>b<eos><U>c<A><think>s</think>d<eos>");
    let keep = EncodeOptions { drop_thinking: false, ..thinking() };
    assert_eq!(render(text, &keep), "<bos><U>a<A><think>r</think>b<eos><U>c<A><think>s</think>d<eos>");
    // Without reasoning the turn still ends it.
    let bare = r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]"#;
    assert_eq!(render(bare, &thinking()), "<bos><U>a<A><think></think>b<eos>");
}

#[test]
fn tools_anywhere_keep_all_thinking() {
    let text = format!(
        r#"[{{"role":"system","content":"s"}},{{"role":"user","content":"a"}},
        {{"role":"assistant","reasoning_content":"r","content":"b"}},{{"role":"developer","content":"d","tools":{TOOL}}}]"#
    );
    assert_eq!(render(&text, &thinking()), format!("<bos>s<U>a<A><think>r</think>b<eos><U>d{TOOL_BLOCK}<A><think>"));
    // An empty list is no tools.
    let none = r#"[{"role":"system","content":"s","tools":[]},{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"r","content":"b"},{"role":"user","content":"c"}]"#;
    assert_eq!(render(none, &thinking()), "<bos>s<U>a<A></think>b<eos><U>c<A><think>");
}

#[test]
fn a_system_turn_takes_tools_then_format_and_no_role_token() {
    let text = format!(
        r#"[{{"role":"system","content":null,"tools":{TOOL},"response_format":{{"a":1,"b":[true]}}}},{{"role":"user","content":"u"}}]"#
    );
    assert_eq!(
        render(&text, &EncodeOptions::chat()),
        format!("<bos>{TOOL_BLOCK}\n\nas {{\"a\": 1, \"b\": [true]}}<U>u<A></think>")
    );
}

#[test]
fn what_fills_a_placeholder_is_not_filled_again() {
    let text = r#"[{"role":"system","content":"","tools":[{"function":{"d":"{dsml_token}{tool_schemas}"}}]},{"role":"user","content":"u"}]"#;
    assert!(render(text, &thinking()).contains(r#"{"d": "{dsml_token}{tool_schemas}"}"#));
}

#[test]
fn developer_and_unknown_turns_before_the_last_are_removed() {
    let text = r#"[{"role":"developer","content":"d"},{"role":"alien","content":"x"},{"role":"user","content":"a"},
        {"role":"latest_reminder","content":"now"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]"#;
    // The reminder stands where the assistant was introduced already.
    assert_eq!(render(text, &thinking()), "<bos><U>a<A></think><｜latest_reminder｜>nowb<eos><U>c<A><think>");
    // Nothing is dropped in chat mode: the unknown role is refused by name.
    let error = encoder(Release::Preview).encode(&messages(text), &EncodeOptions::chat()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Input);
    assert!(error.to_string().contains("alien") && error.to_string().contains("message 1"), "{error}");
    // A developer turn is a user turn otherwise, and the last one stays.
    let last = r#"[{"role":"user","content":"a"},{"role":"developer","content":"d"}]"#;
    assert_eq!(render(last, &thinking()), "<bos><U>a<U>d<A><think>");
}

#[test]
fn tool_results_merge_into_the_user_turn_in_the_order_of_the_calls() {
    let text = r#"[{"role":"user","content":"q"},
        {"role":"assistant","content":"","tool_calls":[
            {"id":"x","type":"function","function":{"name":"f","arguments":"{}"}},
            {"id":"y","type":"function","function":{"name":"g","arguments":"{\"a\": [1, {\"b\": \"é\"}], \"s\": \"t\"}"}}]},
        {"role":"tool","tool_call_id":"y","content":"Y"},
        {"role":"user","content":"note"},
        {"role":"tool","tool_call_id":"x","content":[{"type":"text","text":"X1"},{"type":"text","text":"X2"}]}]"#;
    let calls = "\n\n<|D|tool_calls>\n<|D|invoke name=\"f\">\n\n</|D|invoke>\n<|D|invoke name=\"g\">\n\
        <|D|parameter name=\"a\" string=\"false\">[1, {\"b\": \"é\"}]</|D|parameter>\n\
        <|D|parameter name=\"s\" string=\"true\">t</|D|parameter>\n</|D|invoke>\n</|D|tool_calls>";
    assert_eq!(
        render(text, &EncodeOptions::chat()),
        format!(
            "<bos><U>q<A></think>{calls}<eos><U><tool_result>X1\n\nX2</tool_result>\n\nnote\n\n\
             <tool_result>Y</tool_result><A></think>"
        )
    );
}

#[test]
fn an_unknown_call_id_sorts_as_the_first() {
    let text = r#"[{"role":"assistant","content":"","tool_calls":[
            {"id":"x","function":{"name":"f","arguments":"{}"}},{"id":"y","function":{"name":"f","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"y","content":"Y"},{"role":"tool","content":"?"},{"role":"tool","tool_call_id":"x","content":"X"}]"#;
    let rendered = render(text, &EncodeOptions::chat());
    let results = "<tool_result>?</tool_result>\n\n<tool_result>X</tool_result>\n\n<tool_result>Y</tool_result>";
    assert!(rendered.contains(results), "{rendered}");
}

#[test]
fn arguments_that_are_no_json_become_one_parameter() {
    for arguments in ["not json", "", "[1]", "{\\\"a\\\": 1"] {
        let text = format!(
            r#"[{{"role":"assistant","content":"c","tool_calls":[{{"function":{{"name":"f","arguments":"{arguments}"}}}}]}}]"#
        );
        let raw = arguments.replace('\\', "");
        assert_eq!(
            render(&text, &EncodeOptions::chat()),
            format!(
                "<bos>c\n\n<|D|tool_calls>\n<|D|invoke name=\"f\">\n\
                 <|D|parameter name=\"arguments\" string=\"true\">{raw}</|D|parameter>\n</|D|invoke>\n</|D|tool_calls><eos>"
            )
        );
    }
    let object = r#"[{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"n":2.0,"z":null}}}]}]"#;
    let rendered = render(object, &EncodeOptions::chat());
    assert!(rendered.contains("name=\"n\" string=\"false\">2.0<") && rendered.contains(">null<"), "{rendered}");
}

#[test]
fn a_task_replaces_the_transition_and_the_reasoning_behind_it() {
    let text = |task: &str| {
        format!(
            r#"[{{"role":"user","content":"a","task":"{task}"}},{{"role":"user","content":"b"}},{{"role":"assistant","reasoning_content":"r","content":"c"}}]"#
        )
    };
    // A user turn with a task takes in nothing behind it.
    assert_eq!(render(&text("query"), &thinking()), "<bos><U>a<U>b<A><think>r</think>c<eos>");
    let asked = |task: &str| {
        format!(
            r#"[{{"role":"user","content":"a","task":"{task}"}},{{"role":"assistant","reasoning_content":"r","content":"c"}}]"#
        )
    };
    assert_eq!(render(&asked("query"), &thinking()), "<bos><U>a<｜query｜>c<eos>");
    assert_eq!(render(&asked("action"), &thinking()), "<bos><U>a<A><think><｜action｜>c<eos>");
    assert_eq!(render(&asked("action"), &EncodeOptions::chat()), "<bos><U>a<A></think><｜action｜>c<eos>");
    // The task of a user message that is merged counts for the whole turn.
    let merged = r#"[{"role":"user","content":"a"},{"role":"user","content":"b","task":"title"}]"#;
    assert_eq!(render(merged, &thinking()), "<bos><U>a\n\nb<｜title｜>");
    let unknown = Json::parse(&asked("sing")).unwrap();
    assert!(Message::list_from_json(&unknown).unwrap_err().to_string().contains("read_url"));
}

#[test]
fn the_effort_prefix_stands_first_and_in_thinking_mode_only() {
    let conversation = messages(r#"[{"role":"system","content":"s"},{"role":"user","content":"a"}]"#);
    let prefix = |release, effort, thinking| {
        let options = EncodeOptions { thinking, effort, ..EncodeOptions::default() };
        let text = encoder(release).encode(&conversation, &options).map(|p| short(&p.text));
        text.map(|t| t.split_once("s<U>").unwrap().0.to_owned())
    };
    use Release::{Preview, V0731};
    for (release, effort, expected) in [
        (Preview, None, "<bos>"),
        (Preview, Some(Effort::High), "<bos>"),
        (Preview, Some(Effort::Max), "<bos>EFFORT A\n\n"),
        (V0731, None, "<bos>"),
        (V0731, Some(Effort::Low), "<bos>"),
        (V0731, Some(Effort::High), "<bos>EFFORT A\n\n"),
        (V0731, Some(Effort::Max), "<bos>EFFORT B\n\n"),
    ] {
        assert_eq!(prefix(release, effort, true).unwrap(), expected);
        assert_eq!(prefix(release, effort, false).unwrap(), "<bos>");
    }
    assert_eq!(prefix(Preview, Some(Effort::Low), true).unwrap_err().kind, ErrorKind::Usage);
}

#[test]
fn what_follows_a_context_has_no_begin_and_sees_its_tools() {
    let context =
        messages(&format!(r#"[{{"role":"system","content":"s","tools":{TOOL}}},{{"role":"user","content":"a"}}]"#));
    let more =
        messages(r#"[{"role":"assistant","reasoning_content":"r","content":"b"},{"role":"user","content":"c"}]"#);
    let options = EncodeOptions { effort: Some(Effort::Max), ..thinking() };
    let encoder = encoder(Release::Preview);
    let tail = encoder.encode_after(&context, &more, &options).unwrap();
    check_spans(&tail);
    assert_eq!(short(&tail.text), "r</think>b<eos><U>c<A><think>");
    // Together they are the whole, because nothing was dropped.
    let head = encoder.encode(&context, &options).unwrap();
    let whole = encoder.encode(&[context, more].concat(), &options).unwrap();
    assert_eq!(format!("{}{}", head.text, tail.text), whole.text);
}

#[test]
fn an_open_turn_has_no_end_token() {
    let text = r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b","wo_eos":true}]"#;
    assert_eq!(render(text, &EncodeOptions::chat()), "<bos><U>a<A></think>b");
}

#[test]
fn spans_name_message_and_part() {
    let text = format!(
        r#"[{{"role":"system","content":"s","tools":{TOOL}}},{{"role":"user","content":"a"}},
        {{"role":"assistant","reasoning_content":"r","content":"b","tool_calls":[{{"id":"x","function":{{"name":"f","arguments":"{{}}"}}}}]}},
        {{"role":"tool","tool_call_id":"x","content":"X"}},{{"role":"user","content":"c"}}]"#
    );
    let prompt = encoder(Release::Preview).encode(&messages(&text), &thinking()).unwrap();
    let parts: Vec<(Option<usize>, Part, String)> =
        prompt.spans.iter().map(|s| (s.message, s.part, short(&prompt.text[s.range.clone()]))).collect();
    let calls = "\n\n<|D|tool_calls>\n<|D|invoke name=\"f\">\n\n</|D|invoke>\n</|D|tool_calls>";
    let expected = [
        (None, Part::Bos, "<bos>"),
        (Some(0), Part::Content, "s"),
        (Some(0), Part::Tools, TOOL_BLOCK),
        (Some(1), Part::RoleToken, "<U>"),
        (Some(1), Part::Content, "a"),
        (Some(1), Part::Transition, "<A><think>"),
        (Some(2), Part::Reasoning, "r"),
        (Some(2), Part::EndThink, "</think>"),
        (Some(2), Part::Content, "b"),
        (Some(2), Part::ToolCalls, calls),
        (Some(2), Part::Eos, "<eos>"),
        (Some(3), Part::RoleToken, "<U>"),
        (Some(3), Part::ToolResult, "<tool_result>X</tool_result>"),
        (Some(4), Part::Content, "\n\nc"),
        (Some(4), Part::Transition, "<A><think>"),
    ];
    assert_eq!(parts, expected.map(|(m, p, t)| (m, p, t.to_owned())));
}

#[test]
fn fields_out_of_place_are_refused_by_name() {
    for (message, named) in [
        (r#"{"content":"x"}"#, "role"),
        (r#"{"role":7}"#, "role"),
        (r#"{"role":"user","contents":"x"}"#, "contents"),
        (r#"{"role":"user","content":7}"#, "content"),
        (r#"{"role":"user","content":[{"type":"image_url","image_url":"x"}]}"#, "image_url"),
        (r#"{"role":"user","reasoning_content":"x"}"#, "reasoning_content"),
        (r#"{"role":"user","content":"x","tools":[{"function":{}}]}"#, "tools"),
        (r#"{"role":"system","content":"x","tools":[{"name":"f"}]}"#, "tools[0].function"),
        (r#"{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}"#, "function.name"),
        (r#"{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}"#, "function.arguments"),
        (r#"{"role":"assistant","tool_calls":[{"type":"custom","custom":{}}]}"#, "custom"),
        (r#"{"role":"user","wo_eos":true}"#, "wo_eos"),
        (r#""x""#, "object"),
    ] {
        let error = Message::list_from_json(&Json::parse(&format!("[{message}]")).unwrap()).unwrap_err();
        assert!(error.to_string().contains(named) && error.to_string().contains("message 0"), "{error}");
    }
    // What clients send as null is absent.
    messages(
        r#"[{"role":"assistant","content":"x","refusal":null,"tool_calls":null,"function_call":null,"name":"n"}]"#,
    );
}

fn any_message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![
        Just(Role::System),
        Just(Role::Developer),
        Just(Role::User),
        Just(Role::Assistant),
        Just(Role::Tool),
        Just(Role::LatestReminder),
    ];
    let tools = || Json::parse(r#"{"name": "f"}"#).unwrap();
    (role, prop::collection::vec(".{0,8}", 0..3), any::<u8>(), ".{0,8}").prop_map(move |(role, content, bits, text)| {
        let mut m = Message::new(role, "");
        m.content = content;
        match m.role {
            Role::Assistant => {
                m.reasoning_content = (bits & 1 > 0).then(|| text.clone());
                m.wo_eos = bits & 2 > 0;
                if bits & 4 > 0 {
                    let arguments = crate::prompt::Arguments::Text(text.clone());
                    m.tool_calls = vec![crate::prompt::ToolCall { id: text, name: "f".to_owned(), arguments }];
                }
            }
            Role::Tool => m.tool_call_id = text,
            Role::System | Role::Developer => m.tools = if bits & 1 > 0 { vec![tools()] } else { Vec::new() },
            _ => {}
        }
        m
    })
}

proptest! {
    #[test]
    fn any_conversation_renders_and_spans_tile_it(
        list in prop::collection::vec(any_message(), 0..8),
        split in 0_usize..8,
        thinking in any::<bool>(),
        drop_thinking in any::<bool>(),
    ) {
        let options = EncodeOptions { thinking, drop_thinking, effort: None };
        let encoder = encoder(Release::Preview);
        let whole = encoder.encode(&list, &options).unwrap();
        check_spans(&whole);
        // What a plain user message says stands in the prompt, in order.
        let mut at = 0;
        for message in list.iter().filter(|m| m.role == Role::User) {
            for text in &message.content {
                let found = whole.text[at..].find(text.as_str());
                prop_assert!(found.is_some());
                at += found.unwrap();
            }
        }
        let (context, rest) = list.split_at(split.min(list.len()));
        check_spans(&encoder.encode_after(context, rest, &options).unwrap());
    }

    #[test]
    fn any_json_is_messages_or_refused(text in r#"(\{|\}|\[|\]|"role"|"user"|"content"|:|,|"assistant"|"tool_calls"|null|1){0,30}"#) {
        if let Ok(json) = Json::parse(&text) {
            let _ = Message::list_from_json(&json);
        }
    }
}
