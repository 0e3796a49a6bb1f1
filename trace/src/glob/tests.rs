use karat_seam::{Block, Tap};

use super::*;

#[test]
fn stars_and_question_marks_fit_as_in_a_shell() {
    let o = Site::layer(12, Tap::AttnO);
    let logits = Site { block: Block::Head, tap: Tap::Logits };
    for (text, fits_o, fits_logits) in [
        ("*", true, true),
        ("layers.*.attn.o", true, false),
        ("layers.??.attn.?", true, false),
        ("layers.?.attn.o", false, false),
        ("layers.*.attn.oa", false, false),
        ("*attn*, logits", true, true),
        ("log*its", false, true),
        ("**.*.**o", true, false),
        ("state/*", false, false),
    ] {
        let glob = TapGlob::new(text).unwrap();
        assert_eq!((glob.admits(o), glob.admits(logits)), (fits_o, fits_logits), "{text}");
    }
    assert!(TapGlob::new("state/*").unwrap().admits(Site::layer(0, Tap::StateWin)));
    assert!(TapGlob::new("").is_err() && TapGlob::new("a,,b").is_err());
    assert!(TapGlob::all().admits(o));
}
