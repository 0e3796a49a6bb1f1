//! Whatever a server sends: a difference is never without a finding, equal prompts are never with one, nothing panics.

use proptest::prelude::*;

use super::{MADE, messages};
use crate::import::{Asked, Served};
use crate::prompt_diff::align::hunks;
use crate::prompt_diff::compare;

/// Pieces of prompts in any order.
fn soup() -> impl Strategy<Value = String> {
    const PIECES: [&str; 15] = [
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<think>",
        "</think>",
        "<tool_result>",
        "</tool_result>",
        "<｜DSML｜tool_calls>",
        "</｜DSML｜tool_calls>",
        "Hi",
        "Be brief.",
        "\n\n",
        "ｱ",
        "OK.",
    ];
    let piece = prop_oneof![4 => prop::sample::select(PIECES.as_slice()).prop_map(str::to_owned), 1 => ".{0,6}"];
    prop::collection::vec(piece, 0..24).prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_difference_is_silent(text in soup(), thinking: bool, tools: bool) {
        let tools = if tools { r#", "tools": [{"function": {"name": "f"}}]"# } else { "" };
        let json = format!(r#"[{{"role": "system", "content": "Be brief."{tools}}}, {{"role": "user", "content": "Hi"}},
            {{"role": "assistant", "reasoning_content": "so", "content": "OK."}}, {{"role": "user", "content": "Bye"}}]"#);
        let asked = Asked { thinking: Some(thinking), effort: None };
        let run = |text: String| {
            compare(&messages(&json), &asked, &Served::Text(text), None, (&MADE.1, &MADE.0), MADE.0.len()).unwrap()
        };
        let compared = run(text);
        prop_assert_eq!(compared.findings.is_empty(), compared.first.is_none(), "{:?}", compared);
        for f in &compared.findings {
            prop_assert!(f.expected_at <= compared.expected_ids && f.found_at <= compared.found_ids);
        }
    }

    /// The hunks turn one sequence into the other, and are no more than a table of the longest common subsequence says.
    #[test]
    fn alignments_are_shortest(a in prop::collection::vec(0u8..4, 0..24), b in prop::collection::vec(0u8..4, 0..24)) {
        let found = hunks(&a, &b);
        let (mut i, mut rebuilt, mut edits) = (0, Vec::new(), 0);
        for h in &found {
            rebuilt.extend_from_slice(&a[i..h.expected.start]);
            rebuilt.extend_from_slice(&b[h.found.clone()]);
            i = h.expected.end;
            edits += h.expected.len() + h.found.len();
        }
        rebuilt.extend_from_slice(&a[i..]);
        prop_assert_eq!(&rebuilt, &b);
        let mut table = vec![vec![0usize; b.len() + 1]; a.len() + 1];
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                table[i + 1][j + 1] = if x == y { table[i][j] + 1 } else { table[i][j + 1].max(table[i + 1][j]) };
            }
        }
        prop_assert_eq!(edits, a.len() + b.len() - 2 * table[a.len()][b.len()]);
    }
}
