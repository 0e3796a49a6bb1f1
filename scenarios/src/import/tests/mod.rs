//! Files as people have them, and files as nobody should.

mod random;

use karat_model::prompt::Role;

use super::{Asked, Exchange, Served, read};
use crate::Scenario;

fn texts(exchange: &Exchange) -> Vec<String> {
    exchange.messages.iter().map(|m| format!("{}:{}", m.role.name(), m.content.concat())).collect()
}

/// The log of two interleaved requests, as SGLang 0.5.23 writes it at level 3.
const LOG: &str = concat!(
    "[2026-11-29 21:00:00] server_args=ServerArgs(model_path='m')\n",
    "[2026-11-29 21:00:01] Receive OpenAI: obj={'messages': [{'role': 'user', 'content': \"it's one\"}], 'model': 'm', ",
    "'chat_template_kwargs': {'thinking': True}, 'stream': False}\n",
    "[2026-11-29 21:00:01] Receive OpenAI: obj={'messages': [{'role': 'user', 'content': 'two'}, {'role': 'assistant', ",
    "'content': 'ok', 'reasoning_content': 'hm', 'refusal': 'no'}, {'role': 'user', 'content': 'three\\n'}], ",
    "'tools': [{'type': 'function', 'function': {'name': 'f', 'strict': False}}], 'reasoning_effort': 'max'}\n",
    "[2026-11-29 21:00:01 TP0] Prefill batch, #new-seq: 1\n",
    "[2026-11-29 21:00:02] Receive: obj=GenerateReqInput(rid='b', text=None, input_ids=[0, 5, 6], sampling_params={'n': 1})\n",
    "[2026-11-29 21:00:02] Receive: obj=GenerateReqInput(rid='a', text=None, input_ids=[0, 7], sampling_params={'n': 1})\n",
    "[2026-11-29 21:00:03] Finish: obj=GenerateReqInput(rid='a', text=\"<U>it's one\", input_ids=[0, 7], ",
    "time_stats=<T object at 0x7f>), out={'text': 'fine', 'output_ids': [9], 'meta_info': {'finish_reason': {'type': 'stop'}}}\n",
    "[2026-11-29 21:00:04] Finish: obj=GenerateReqInput(rid='b', text='two three\\n', input_ids=[0, 5, 6]), headers={'x': 'y'}, ",
    "out={'text': 'hal', 'meta_info': {'finish_reason': {'type': 'abort'}}}\n",
);

#[test]
fn a_request_log_is_paired_by_what_was_asked() {
    let found = read("log", LOG.as_bytes(), None).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(texts(&found[0]), ["user:it's one"]);
    assert_eq!((found[0].place.as_str(), found[0].rid.as_deref()), ("log:2", Some("a")));
    assert_eq!(found[0].served, Some(Served::Ids(vec![0, 7])));
    assert_eq!(found[0].asked, Asked { thinking: Some(true), effort: None });
    assert_eq!((found[0].answer.as_deref(), found[0].aborted), (Some("fine"), false));
    assert_eq!(texts(&found[1]), ["system:", "user:two", "assistant:ok", "user:three\n"]);
    assert_eq!((found[1].messages[0].tools.len(), found[1].messages[2].reasoning_content.as_deref()), (1, Some("hm")));
    assert_eq!(found[1].served, Some(Served::Ids(vec![0, 5, 6])));
    assert_eq!((found[1].asked.effort.as_deref(), found[1].aborted), (Some("max"), true));
    assert!(found[1].notes.iter().any(|n| n.contains("refusal")), "{:?}", found[1].notes);
}

#[test]
fn grep_finds_an_exchange_by_question_or_answer() {
    let places =
        |text| read("log", LOG.as_bytes(), Some(text)).unwrap().into_iter().map(|e| e.place).collect::<Vec<_>>();
    assert_eq!(places("three"), ["log:3"]);
    assert_eq!(places("'fine'"), ["log:2"]);
    assert!(places("nowhere").is_empty());
}

#[test]
fn json_logs_are_read_too() {
    let log = concat!(
        r#"[2026-11-29 21:00:01] {"timestamp": "t", "event": "request.received.openai", "obj": {"messages": [{"role": "user", "content": "hi"}]}}"#,
        "\n",
        r#"[2026-11-29 21:00:01] {"timestamp": "t", "event": "request.received", "rid": "a", "obj": {"rid": "a", "text": "hi there"}}"#,
        "\n",
        r#"{"event": "batch", "n": 1}"#,
        "\n",
        r#"[2026-11-29 21:00:01] {"event": "request.finished", "rid": "a", "obj": {"rid": "a", "text": "hi there"}, "out": {"text": "yes", "meta_info": {}}}"#,
    );
    let found = read("log", log.as_bytes(), None).unwrap();
    assert_eq!((found.len(), found[0].served.clone()), (1, Some(Served::Text("hi there".to_owned()))));
    assert_eq!(found[0].answer.as_deref(), Some("yes"));
    let long = "x".repeat(1024);
    let cut = log.replace("\"hi\"", &format!("\"{long}...{long}\""));
    let e = read("log", cut.as_bytes(), None).unwrap_err();
    assert!(e.what.contains("truncated") && e.place.contains("log:1"), "{e}");
}

#[test]
fn conversations_come_as_arrays_objects_and_lines() {
    let one = r#"[{"role": "user", "content": [{"type": "text", "text": "hi"}]}]"#;
    assert_eq!(texts(&read("f", one.as_bytes(), None).unwrap()[0]), ["user:hi"]);
    let object = format!("{{\"messages\": {one}, \"prompt\": \"<U>hi\", \"thinking\": {{\"type\": \"disabled\"}}}}");
    let found = read("f", object.as_bytes(), None).unwrap();
    assert_eq!(found[0].served, Some(Served::Text("<U>hi".to_owned())));
    assert_eq!(found[0].asked.thinking, Some(false));
    let lines = format!("{one}\n\n{}\n", object.replace("hi", "ho"));
    let found = read("f", lines.as_bytes(), None).unwrap();
    assert_eq!(found.iter().map(|e| e.place.as_str()).collect::<Vec<_>>(), ["f:1", "f:3"]);
    assert_eq!(read("f", lines.as_bytes(), Some("ho")).unwrap().len(), 1);
    let list = format!("[{object}, {one}]");
    assert_eq!(read("f", list.as_bytes(), None).unwrap()[1].place, "f: [1]");
    let ids = object.replace("\"prompt\": \"<U>hi\"", "\"input_ids\": [0, 4]");
    assert_eq!(read("f", ids.as_bytes(), None).unwrap()[0].served, Some(Served::Ids(vec![0, 4])));
    assert_eq!(read("f", one.as_bytes(), None).unwrap()[0].messages[0].role, Role::User);
}

#[test]
fn truncated_lines_are_input_errors_with_their_line() {
    // Cut anywhere within the last line, the file is refused, and the line named.
    let last = LOG.trim_end().rfind('\n').unwrap();
    let marked = LOG[last..].find("Finish: obj=").unwrap() + last + "Finish: obj=".len();
    for end in (marked..LOG.len() - 2).filter(|&i| LOG.is_char_boundary(i)).step_by(7) {
        let e = read("log", &LOG.as_bytes()[..end], None).unwrap_err();
        assert!(e.place.contains("log:8"), "{end}: {e}");
        assert!(e.what.contains("truncated"), "{end}: {e}");
        // The other exchange is whole.
        assert_eq!(read("log", &LOG.as_bytes()[..end], Some("it's one")).unwrap().len(), 1);
    }
    let at_level_2 = LOG.replace("'two three\\n'", "'two' ... 'three\\n'");
    let e = read("log", at_level_2.as_bytes(), None).unwrap_err();
    assert!(e.what.contains("truncated") && e.place.ends_with("text") && e.hint.is_some(), "{e}");
    let e = read("f", b"{\"messages\": [{\"role\": \"user\", \"content\": \"a", None).unwrap_err();
    assert!(e.what.contains("truncated") && e.place == "f:1", "{e}");
}

#[test]
fn other_files_are_refused_by_name() {
    for (bytes, says) in [
        (&b"hello\nworld\n"[..], "nothing that could be imported"),
        (b"\xff\xfe", "UTF-8"),
        (b"", "nothing"),
        (b"{\"a\": 1}", "no messages"),
        (b"[]", "needs messages"),
        (b"[{\"role\": \"user\", \"content\": 1}]", "wrong kind"),
        (b"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"input_ids\": [-1]}", "not a token id"),
        (b"Finish: obj=R(rid='a', text='b'), out={'text': 'c'}\n", "no chat requests"),
    ] {
        let e = read("f", bytes, None).unwrap_err();
        assert!(e.to_string().contains(says), "{e}");
        assert!(e.place.starts_with('f'), "{e}");
    }
}

#[test]
fn a_recorded_answer_is_asked_as_it_was_given() {
    let log = LOG.replace("'text': 'fine'", "'text': 'one thing.</think> it is one.<｜end▁of▁sentence｜>'");
    let found = read("log", log.as_bytes(), None).unwrap();
    let answered = found[0].scenario("a", None).unwrap();
    let last = answered.messages.last().unwrap();
    assert_eq!((last.reasoning_content.as_deref(), last.content.concat()), (Some("one thing."), " it is one.".into()));
    assert!(answered.options.thinking && answered.interruptions.iter().all(Option::is_none));
    // The client of the other went away, and its request is in the mode that the person says.
    let cut = found[1].scenario("b", Some(false)).unwrap();
    assert_eq!(cut.messages.last().map(|m| m.content.concat()).as_deref(), Some("hal"));
    assert!(cut.interruptions.last().is_some_and(Option::is_some) && !cut.options.thinking);
    assert_eq!(cut.messages[0].tools.len(), 1);
    for made in [answered, cut] {
        let back = Scenario::from_toml(&made.name, "x.toml", &made.to_toml().unwrap()).unwrap();
        assert_eq!((&back.messages, &back.marks), (&made.messages, &made.marks));
        assert_eq!((&back.options, &back.interruptions), (&made.options, &made.interruptions));
    }
}

#[test]
fn every_field_of_a_message_comes_back_from_a_scenario_file() {
    let object = r#"{"messages": [{"role": "system", "content": "s", "response_format": {"b": 1, "a": [true]}},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "task": "title"},
        {"role": "assistant", "content": "x", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"n": 2.0}}}]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        {"role": "assistant", "content": "it is \"r\".\n", "wo_eos": true}]}"#;
    let found = read("m.json", object.as_bytes(), None).unwrap();
    let made = found[0].scenario("m", None).unwrap();
    let back = Scenario::from_toml("m", "m.toml", &made.to_toml().unwrap()).unwrap();
    assert_eq!((&back.messages, &back.marks), (&made.messages, &made.marks));
    assert!(back.messages[1].task.is_some() && back.messages[0].response_format.is_some() && back.messages[4].wo_eos);
}
