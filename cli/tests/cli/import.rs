//! `karat scenario import` on files as people have them.

use crate::support::{Ran, karat};

const RIGHT: &str = "<｜begin▁of▁sentence｜><｜User｜>write page<｜Assistant｜></think><!DOCTYPE<｜end▁of▁sentence｜><｜User｜>to a file<｜Assistant｜></think>";

/// A log of one chat request and the prompt that the server made of it.
fn log(prompt: &str) -> String {
    let obj = "GenerateReqInput(rid='r1', text=None, input_ids=None)";
    format!(
        "[2026-11-29 21:00:00] INFO: started\n\
         [2026-11-29 21:00:01] Receive OpenAI: obj={{'messages': [{{'role': 'user', 'content': 'write page'}}, {{'role': \
         'assistant', 'content': '<!DOCTYPE'}}, {{'role': 'user', 'content': 'to a file'}}], 'chat_template_kwargs': \
         {{'thinking': False}}}}\n\
         [2026-11-29 21:00:01] Receive: obj={obj}\n\
         [2026-11-29 21:00:02] Finish: obj=GenerateReqInput(rid='r1', text={prompt:?}), out={{'text': 'ok', 'meta_info': {{}}}}\n"
    )
}

fn import(name: &str, content: &str, more: &[&str]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(name), content).unwrap();
    karat(dir.path(), &["model", "new", "--geometry", "mini", "--out", "mini"]).expect(0);
    karat(dir.path(), &[&["scenario", "import", name, "--model", "mini"][..], more].concat())
}

#[test]
fn a_right_prompt_is_equal_and_a_wrong_one_names_its_rule() {
    let equal = import("a.log", &log(RIGHT), &[]).expect(0).stdout;
    assert!(equal.contains("a.log:2, request r1: 3 messages") && equal.contains("the prompts are equal"), "{equal}");
    let broken = log(&RIGHT.replace("<｜end▁of▁sentence｜>", ""));
    let text = import("a.log", &broken, &[]).expect(1).stdout;
    assert!(text.contains("message 1: end-token-missing"), "{text}");
    let data = import("a.log", &broken, &["--json"]).expect(1).json();
    let finding = &data["exchanges"][0]["comparison"]["findings"][0];
    assert_eq!((&finding["rule"], &finding["message"]), (&"end-token-missing".into(), &1.into()), "{data}");
    // The made model has one id a byte: BOS, the role, ten letters, two tags, nine letters.
    assert_eq!(finding["expected_at"], 1 + 1 + 10 + 2 + 9, "{data}");
    let chat = import("a.log", &log(&RIGHT.replacen("</think>", "<think>", 1)), &["--mode", "chat"]).expect(1).stdout;
    assert!(chat.contains("think-tag-in-chat"), "{chat}");
}

#[test]
fn what_can_t_be_compared_or_read_says_so() {
    let messages = r#"[{"role": "user", "content": "hi"}]"#;
    let text = import("m.json", messages, &[]).expect(4).stdout;
    assert!(text.contains("not compared"), "{text}");
    let whole = log(RIGHT);
    let cut = &whole[..whole.len() - 20];
    let ran = import("a.log", cut, &[]).expect(3);
    assert!(ran.error().contains("a.log:4") && ran.error().contains("truncated"), "{}", ran.stderr);
    let ran = import("a.log", &whole, &["--grep", "no such text"]).expect(3);
    assert!(ran.error().contains("no such text"), "{}", ran.stderr);
    let ran = import("m.json", "words", &[]).expect(3);
    assert!(ran.error().contains("m.json"), "{}", ran.stderr);
    let dir = tempfile::tempdir().unwrap();
    karat(dir.path(), &["scenario", "import", "absent.log"]).expect(3);
}

#[test]
fn an_imported_conversation_is_a_scenario_that_renders_and_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    std::fs::write(at.join("my server.log"), log(RIGHT)).unwrap();
    karat(at, &["model", "new", "--geometry", "mini", "--out", "mini"]).expect(0);
    let import = ["scenario", "import", "my server.log", "--model", "mini", "--out", "talks"];
    let text = karat(at, &import).expect(0).stdout;
    assert!(text.ends_with("talks: 1 conversation\n"), "{text}");
    let file = "talks/my-server-000.toml";
    let shown = karat(at, &["scenario", "render", file, "--model", "mini", "--json"]).expect(0).json();
    assert_eq!(shown["text"], format!("{RIGHT}ok<｜end▁of▁sentence｜>"));
    let asked = &shown["questions"][0];
    assert_eq!((&asked["kind"], &asked["expected"]), (&"recorded".into(), &"ok".into()), "{shown}");
    let recall = karat(at, &["recall", file, "--model", "mini", "--golden", "--quiet", "--json"]).expect(0).json();
    assert_eq!(recall["recall"][0]["answers"], 1, "{recall}");
    // The folder is a new one, and without a prompt to compare with the conversations are all that is wanted.
    karat(at, &import).expect(2);
    std::fs::write(at.join("m.json"), r#"[{"role": "user", "content": "hi"}]"#).unwrap();
    karat(at, &["scenario", "import", "m.json", "--out", "more"]).expect(0);
    let mute = karat(at, &["scenario", "render", "more/m-000.toml", "--json"]).expect(0).json();
    assert_eq!(mute["questions"].as_array().map(Vec::len), Some(0), "{mute}");
}
