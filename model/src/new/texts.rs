//! The four fixed texts of a made model, in our own words.

use crate::prompt::{EncodingTexts, Release, Text};

/// Short on purpose: every byte of it is a token of a made model.
const TOOLS: &str = "## Tools\n\n\
    To call tools, end the answer with:\n\
    <{dsml_token}tool_calls>\n\
    <{dsml_token}invoke name=\"NAME\">\n\
    <{dsml_token}parameter name=\"KEY\" string=\"true\">TEXT</{dsml_token}parameter>\n\
    </{dsml_token}invoke>\n\
    </{dsml_token}tool_calls>\n\
    With string=\"false\" the value is JSON. Thoughts come first, up to {thinking_end_token}.\n\n\
    {tool_schemas}\n";

const RESPONSE_FORMAT: &str = "## Format of the answer\n\nThe answer is JSON that this schema accepts:\n{schema}";

const EFFORT_A: &str = "Take all the time that the problem needs. Weigh other ways, look for the case that breaks \
    each one, and check the result before answering.\n\n";

const EFFORT_B: &str = "Spare no effort at all. Take the problem apart, prove every step that the answer rests on, \
    try to refute it, and start again from the first doubt that remains.\n\n";

/// encoding.json of a made model.
pub(super) fn encoding_json() -> Vec<u8> {
    EncodingTexts {
        origin: "karat".to_owned(),
        release: Release::Preview,
        tools_template: Text::new(TOOLS),
        response_format: Text::new(RESPONSE_FORMAT),
        effort_a: Text::new(EFFORT_A),
        effort_b: Text::new(EFFORT_B),
    }
    .to_json()
}
