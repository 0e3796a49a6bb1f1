//! Any bytes: an error or a result, never a panic.

use proptest::prelude::*;

use super::LOG;
use crate::import::read;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), grep in prop::option::of(".{0,3}")) {
        let _ = read("f", &bytes, grep.as_deref());
    }

    #[test]
    fn lines_of_the_right_shape(lines in prop::collection::vec(
        r#"(\[2026\] )?(Receive OpenAI: obj=|Receive: obj=|Finish: obj=|\{"messages": |\[\{)?[\[\](){}'"<>\\,:= a-fr0-9.｜]{0,40}"#,
        0..6,
    )) {
        let _ = read("f", lines.join("\n").as_bytes(), None);
    }

    /// A whole log with bytes overwritten, removed or cut.
    #[test]
    fn damaged_logs(edits in prop::collection::vec((0..LOG.len(), any::<u8>()), 1..6), end in 0..LOG.len()) {
        let mut bytes = LOG.as_bytes().to_vec();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        bytes.truncate(end);
        let _ = read("f", &bytes, None);
        let mut shorter = LOG.as_bytes().to_vec();
        shorter.drain(end / 2..end);
        let _ = read("f", &shorter, None);
    }
}
