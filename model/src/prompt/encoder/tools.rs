//! Tool calls in DSML, the tools block, the response-format block.

use crate::prompt::json::Json;
use crate::prompt::message::{Arguments, ToolCall};
use crate::prompt::special;

/// The calls behind an assistant's content.
pub(super) fn calls(calls: &[ToolCall]) -> String {
    let dsml = special::DSML;
    let calls: Vec<String> = calls.iter().map(call).collect();
    format!("\n\n<{dsml}tool_calls>\n{}\n</{dsml}tool_calls>", calls.join("\n"))
}

fn call(call: &ToolCall) -> String {
    let dsml = special::DSML;
    let parameters: Vec<String> = parameters(&call.arguments)
        .iter()
        .map(|(key, value)| {
            let (is_string, value) = match value {
                Json::Str(text) => (true, text.clone()),
                other => (false, other.dumps()),
            };
            format!("<{dsml}parameter name=\"{key}\" string=\"{is_string}\">{value}</{dsml}parameter>")
        })
        .collect();
    format!("<{dsml}invoke name=\"{}\">\n{}\n</{dsml}invoke>", call.name, parameters.join("\n"))
}

/// Arguments that are no JSON object become one parameter of that name.
fn parameters(arguments: &Arguments) -> Vec<(String, Json)> {
    match arguments {
        Arguments::Object(entries) => entries.clone(),
        Arguments::Text(text) => match Json::parse(text) {
            Ok(Json::Object(entries)) => entries,
            _ => vec![("arguments".to_owned(), Json::Str(text.clone()))],
        },
    }
}

/// The tools block: the template with one JSON line a function.
pub(super) fn block(template: &str, functions: &[Json]) -> String {
    let schemas: Vec<String> = functions.iter().map(Json::dumps).collect();
    fill(
        template,
        &[
            ("{tool_schemas}", &schemas.join("\n")),
            ("{dsml_token}", special::DSML),
            ("{thinking_start_token}", special::THINK),
            ("{thinking_end_token}", special::END_THINK),
        ],
    )
}

/// The response-format block.
pub(super) fn response_format(template: &str, schema: &Json) -> String {
    fill(template, &[("{schema}", &schema.dumps())])
}

/// Fills placeholders in one pass: what is filled in is never searched again.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(brace) = rest.find('{') {
        out.push_str(&rest[..brace]);
        rest = &rest[brace..];
        if let Some((name, value)) = values.iter().find(|(name, _)| rest.starts_with(name)) {
            out.push_str(value);
            rest = &rest[name.len()..];
        } else {
            out.push('{');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}
