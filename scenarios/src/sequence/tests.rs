//! Who wrote which ids. The made model's tokenizer has one id a byte, so that positions follow from the text by hand.

use std::fmt::Write as _;
use std::sync::LazyLock;

use karat_model::prompt::{Encoder, EncodingTexts, Tokenizer};
use karat_model::{Geometry, new_model};
use karat_seam::SpanKind::{Generated, Prompt};
use proptest::prelude::*;

use super::Rendered;
use crate::Scenario;

static MADE: LazyLock<(Tokenizer, Encoder)> = LazyLock::new(|| {
    let files = new_model(Geometry::Mini, 1);
    let tokenizer = Tokenizer::from_json("tokenizer.json", &files["tokenizer.json"]).unwrap();
    (tokenizer, Encoder::new(EncodingTexts::from_json(&files["encoding.json"]).unwrap()))
});

fn render(scenario: &Scenario) -> karat_model::Result<Rendered> {
    scenario.render(&MADE.0, &MADE.1)
}

/// A scenario of `role content extra` lines, thinking dropped as by default unless `tools`.
fn scenario(tools: bool, messages: &[(&str, &str, &str)]) -> Scenario {
    let mut text = "format = \"karat-scenario/1\"\ntitle = \"t\"\n".to_owned();
    if tools {
        text += "tools = '[{\"function\": {\"name\": \"f\"}}]'\n";
    }
    for (role, content, extra) in messages {
        text += "[[messages]]\n";
        let _ = writeln!(text, "role = \"{role}\"\ncontent = \"{content}\"\n{extra}");
    }
    Scenario::from_toml("s", "s.toml", &text).unwrap()
}

/// Turns as (kind, text) with special tokens shortened; `!` marks an interrupted turn.
fn turns(r: &Rendered) -> Vec<String> {
    let mut at = 0;
    let shown = r.sequence.turns.iter().map(|turn| {
        let mut shown = String::new();
        for span in &turn.spans {
            assert!(span.start == at && span.end > at, "spans tile the ids");
            at = span.end;
            let text = MADE.0.decode(&r.sequence.ids[span.start as usize..span.end as usize]).unwrap();
            let kind = if span.kind == Prompt { "P" } else { "G" };
            let _ = write!(shown, "{kind}[{text}]");
        }
        shown + if turn.interrupted { "!" } else { "" }
    });
    let shown: Vec<String> = shown
        .map(|t| {
            t.replace("<｜begin▁of▁sentence｜>", "^")
                .replace("<｜end▁of▁sentence｜>", "$")
                .replace("<｜User｜>", "<U>")
                .replace("<｜Assistant｜>", "<A>")
        })
        .collect();
    assert_eq!(at as usize, r.sequence.ids.len());
    shown
}

#[test]
fn a_finished_answer_is_generated_with_its_end() {
    let s = scenario(false, &[("user", "q", ""), ("assistant", "a", "reasoning_content = \"r\"")]);
    assert_eq!(turns(&render(&s).unwrap()), ["P[^<U>q<A><think>]G[r</think>a$]"]);
    let asked = scenario(false, &[("user", "q", "")]);
    assert_eq!(turns(&render(&asked).unwrap()), ["P[^<U>q<A><think>]"]);
}

#[test]
fn the_end_behind_a_cut_is_the_encoders() {
    for cut in ["cut = { characters = 4 }", "cut = { tokens = 5 }"] {
        // Three characters of reasoning, one of content; among tokens the end of the reasoning counts too.
        let s = scenario(
            true,
            &[
                ("user", "q", ""),
                ("assistant", "abc", &format!("reasoning_content = \"xyz\"\n{cut}")),
                ("user", "more", ""),
                ("assistant", "done", ""),
            ],
        );
        let r = render(&s).unwrap();
        let shown = turns(&r);
        assert!(shown[0].ends_with("<U>q<A><think>]G[xyz</think>a]!"), "{shown:?}");
        assert_eq!(shown[1], "P[$<U>more<A><think>]G[</think>done$]");
        assert_eq!(r.rerendered, Vec::<usize>::new());
    }
}

#[test]
fn a_cut_inside_the_reasoning_leaves_its_end_to_the_encoder() {
    for extra in
        ["reasoning_content = \"xyz\"\ncut = { characters = 2 }", "reasoning_content = \"xyz\"\ncut = { tokens = 2 }"]
    {
        let s = scenario(true, &[("user", "q", ""), ("assistant", "abc", extra), ("user", "more", "")]);
        let shown = turns(&render(&s).unwrap());
        assert!(shown[0].ends_with("G[xy]!"), "{shown:?}");
        assert_eq!(shown[1], "P[</think>$<U>more<A><think>]");
    }
    // As written: the client's own record of a part.
    let s = scenario(
        true,
        &[("user", "q", ""), ("assistant", "", "reasoning_content = \"xy\"\ninterrupted = true"), ("user", "more", "")],
    );
    assert!(turns(&render(&s).unwrap())[0].ends_with("G[xy]!"));
}

#[test]
fn a_cut_inside_a_character_keeps_its_generated_bytes_out_of_the_next_request() {
    // é has two bytes: after two tokens the client has one whole character, and the model has generated half of another.
    let s = scenario(true, &[("user", "q", ""), ("assistant", "aé!", "cut = { tokens = 3 }"), ("user", "more", "")]);
    let r = render(&s).unwrap();
    let shown = turns(&r);
    assert!(shown[0].ends_with("G[</think>a]!"), "{shown:?}");
    assert_eq!(shown[1], "P[$<U>more<A><think>]");
    // The last turn ends with what was generated, half a character included.
    let last = scenario(true, &[("user", "q", ""), ("assistant", "aé!", "cut = { tokens = 3 }")]);
    let shown = turns(&render(&last).unwrap());
    assert!(shown.len() == 1 && shown[0].ends_with("G[</think>a\u{fffd}]!"), "{shown:?}");
}

#[test]
fn turns_that_are_rendered_again_are_prompt() {
    let turn = |q: &'static str| [("user", q, ""), ("assistant", "a", "reasoning_content = \"r\"")];
    // Without tools the reasoning is dropped: what was generated behind <think> is nowhere in the last request.
    let dropped = scenario(false, &[turn("q"), turn("p")].concat());
    let r = render(&dropped).unwrap();
    assert_eq!(turns(&r), ["P[^<U>q<A></think>a$<U>p<A><think>]G[r</think>a$]"]);
    assert_eq!(r.rerendered, [1]);
    // With tools the first turn is a prefix of the whole.
    let kept = scenario(true, &[turn("q"), turn("p")].concat());
    let whole = render(&kept).unwrap();
    assert_eq!(whole.sequence.turns.len(), 2);
    let first = render(&scenario(true, &turn("q"))).unwrap();
    assert!(whole.sequence.ids.starts_with(&first.sequence.ids));
}

#[test]
fn a_cut_behind_the_text_is_refused() {
    for cut in ["cut = { characters = 4 }", "cut = { tokens = 5 }", "cut = { tokens = 50 }"] {
        let call = "tool_calls = [{ function = { name = \"f\", arguments = \"{}\" } }]";
        let s = scenario(
            true,
            &[("user", "q", ""), ("assistant", "abc", &format!("reasoning_content = \"x\"\n{cut}\n{call}"))],
        );
        let error = render(&s).unwrap_err().to_string();
        assert!(error.contains("scenario s") && error.contains("message 2") && error.contains("cut"), "{error}");
    }
}

#[test]
fn the_story_has_its_shape() {
    let story = Scenario::builtin("tic-tac-toe").unwrap();
    let r = render(&story).unwrap();
    let shown = turns(&r);
    assert_eq!(shown.iter().map(|t| t.ends_with('!')).collect::<Vec<_>>(), [false, true, false, false, false, false]);
    assert!(shown[1].contains("write a page about the tiny tower.<A><think>]G[i write the page.</think><page>"));
    assert!(shown[2].starts_with("P[$<U>to a file<A><think>]G[the user wants the page"), "{}", shown[2]);
    assert!(shown[2].contains("invoke name=\"write_file\"") && shown[2].ends_with("</｜DSML｜tool_calls>$]"));
    assert!(shown[5].ends_with("</think>the owner of the tiny tower is petra.$]"), "{}", shown[5]);
    let n = r.sequence.ids.len();
    assert!(r.sequence.ids.iter().all(|&id| id < 512));
    // Both kinds of phase are worth auditing.
    let of = |kind| r.sequence.spans().iter().filter(|s| s.kind == kind).map(|s| s.end - s.start).sum::<u32>();
    assert!(of(Prompt) > 500 && of(Generated) > 500, "{} prompt, {} generated", of(Prompt), of(Generated));
    // The first turns, rendered alone, are a prefix: tools keep the reasoning.
    let mut first = story.clone();
    first.messages.truncate(5);
    first.interruptions.truncate(5);
    first.marks.truncate(5);
    let first = render(&first).unwrap().sequence;
    assert!(r.sequence.ids.starts_with(&first.ids));
    assert_eq!(first.turns, r.sequence.turns[..2]);
    assert_eq!(r.text, MADE.0.decode(&r.sequence.ids).unwrap());
    assert_eq!(r.parts.last().map(|p| p.range.end), Some(n));
}

#[test]
fn the_story_asks_what_it_told() {
    let r = render(&Scenario::builtin("tic-tac-toe").unwrap()).unwrap();
    let asked: Vec<(&str, &str)> = r.asks.iter().map(|a| (a.kind, a.expected.as_str())).collect();
    assert_eq!(asked, [("interrupted", "tiny tower"), ("fact", "K472"), ("fact", "petra")]);
    for ask in &r.asks {
        // One id a byte: the answer begins with the space before it.
        assert_eq!(MADE.0.decode(&r.sequence.ids[ask.positions()]).unwrap(), format!(" {}", ask.expected));
        let alone = MADE.0.decode(&ask.alone).unwrap();
        assert!(alone.ends_with(&format!(" {}", ask.expected)) && alone.contains("be brief."), "{alone}");
        assert_eq!(alone.matches("<｜User｜>").count(), 1, "{alone}");
        let told = ask.told.unwrap() as usize;
        assert_eq!(
            MADE.0.decode(&r.sequence.ids[told..told + ask.answer.len()]).unwrap(),
            format!(" {}", ask.expected)
        );
    }
}

proptest! {
    #[test]
    fn spans_tile_any_conversation(
        roles in prop::collection::vec((0_usize..5, "[a-zé ]{0,6}", 1_usize..12), 1..8),
        tools in any::<bool>(),
    ) {
        let messages: Vec<(&str, String, String)> = roles.iter().map(|(role, text, n)| match role {
            0 => ("user", text.clone(), String::new()),
            1 => ("developer", text.clone(), String::new()),
            2 => ("assistant", text.clone(), "reasoning_content = \"rr\"".to_owned()),
            3 => ("assistant", text.clone(), format!("reasoning_content = \"rrr\"\ncut = {{ tokens = {n} }}")),
            _ => ("assistant", text.clone(), "interrupted = true".to_owned()),
        }).collect();
        let messages: Vec<(&str, &str, &str)> = messages.iter().map(|(r, c, e)| (*r, c.as_str(), e.as_str())).collect();
        if let Ok(r) = render(&scenario(tools, &messages)) {
            turns(&r);
            let generated = r.sequence.spans().iter().filter(|s| s.kind == Generated).count();
            prop_assert!(generated <= messages.len());
        }
    }
}
