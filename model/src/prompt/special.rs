//! The special tokens of the V4 prompt format, exactly as spec section 5 writes them. Bars are U+FF5C, the low line is
//! U+2581.

/// Begins a prompt.
pub const BOS: &str = "<｜begin▁of▁sentence｜>";
/// Ends an assistant turn.
pub const EOS: &str = "<｜end▁of▁sentence｜>";
/// Fills a batch.
pub const PAD: &str = "<｜▁pad▁｜>";
/// Begins a user turn.
pub const USER: &str = "<｜User｜>";
/// Begins an assistant turn.
pub const ASSISTANT: &str = "<｜Assistant｜>";
/// Begins reasoning.
pub const THINK: &str = "<think>";
/// Ends reasoning.
pub const END_THINK: &str = "</think>";
/// The token inside the tags of tool calls; the brackets around it are ordinary text.
pub const DSML: &str = "｜DSML｜";
/// Begins a reminder.
pub const LATEST_REMINDER: &str = "<｜latest_reminder｜>";
/// Task: decide on an action.
pub const ACTION: &str = "<｜action｜>";
/// Task: write a search query.
pub const QUERY: &str = "<｜query｜>";
/// Task: judge authority.
pub const AUTHORITY: &str = "<｜authority｜>";
/// Task: name the domain.
pub const DOMAIN: &str = "<｜domain｜>";
/// Task: write a title.
pub const TITLE: &str = "<｜title｜>";
/// Task: read a URL.
pub const READ_URL: &str = "<｜read_url｜>";

/// All of them: the three that frame a text, then the others in the order of a made vocabulary.
pub const ALL: [&str; 15] = [
    BOS,
    EOS,
    PAD,
    USER,
    ASSISTANT,
    THINK,
    END_THINK,
    DSML,
    LATEST_REMINDER,
    ACTION,
    QUERY,
    AUTHORITY,
    DOMAIN,
    TITLE,
    READ_URL,
];
