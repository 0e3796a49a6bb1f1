use karat_seam::Tap;
use proptest::prelude::*;

use super::*;

#[test]
fn keys_have_one_spelling() {
    let key = Key::tap("a", Site::layer(0, Tap::AttnQ), 0);
    assert_eq!(key.to_string(), "a/layers.0.attn.q");
    assert_eq!("a/layers.0.attn.q".parse(), Ok(key));
    assert_eq!("a/rows@3".parse(), Ok(Key::rows("a", 3)));
    let state = Key::tap("a@b", Site::layer(3, Tap::StateWinPos), 1);
    assert_eq!(state.to_string(), "a@b/state/layers.3.win_pos@1");
    assert_eq!("a@b/state/layers.3.win_pos@1".parse(), Ok(state));
    for (text, error) in [
        ("logits", KeyError::Shape),
        ("/logits", KeyError::Sequence),
        ("a%2f/logits", KeyError::Sequence),
        ("%41/logits", KeyError::Sequence),
        ("%/logits", KeyError::Sequence),
        ("%F/logits", KeyError::Sequence),
        ("%+1/logits", KeyError::Sequence),
        ("../logits", KeyError::Sequence),
        ("%FF/logits", KeyError::Sequence),
        ("a/logits@", KeyError::Pass),
        ("a/logits@0", KeyError::Pass),
        ("a/logits@01", KeyError::Pass),
        ("a/logits@+1", KeyError::Pass),
        ("a/logits@4294967296", KeyError::Pass),
        ("a/logits@1@1", KeyError::Pass),
        ("a/layers.0.nope", KeyError::Tap),
        ("a/b/logits", KeyError::Tap),
        ("a/", KeyError::Tap),
    ] {
        assert_eq!(text.parse::<Key>(), Err(error), "{text}");
    }
}

#[test]
fn hostile_ids_are_one_harmless_component() {
    for (id, escaped) in [
        ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd"),
        ("..", "%2E%2E"),
        (".", "%2E"),
        ("...", "..."),
        ("100%", "100%25"),
        ("a\\b\0\n", "a%5Cb%00%0A"),
        ("\u{85}", "%C2%85"),
        ("naïve 木", "naïve 木"),
    ] {
        assert_eq!(escape(id).as_deref(), Some(escaped));
        assert_eq!(unescape(escaped).as_deref(), Some(id));
    }
    assert_eq!(escape(""), None);
}

proptest! {
    #[test]
    fn every_id_reads_back(id in "\\PC{1,20}|[./%\\\\@\\x00-\\x1f]{1,8}", pass: u32) {
        let key = Key::tap(id.clone(), Site::layer(7, Tap::Out), pass);
        let text = key.to_string();
        prop_assert_eq!(text.parse::<Key>(), Ok(key));
        let (sequence, rest) = text.split_once('/').unwrap();
        prop_assert!(!rest.contains('/') && !matches!(sequence, "." | "..") && !sequence.chars().any(char::is_control));
    }

    #[test]
    fn any_text_is_a_key_or_an_error(text in "\\PC{0,30}") {
        if let Ok(key) = text.parse::<Key>() {
            prop_assert_eq!(key.to_string(), text);
        }
    }
}
