//! `/server_info` of SGLang: what arguments were resolved to, the schedulers' own state, the launch command.

use karat_model::{Error, Result};
use serde_json::{Map, Value};

use crate::data::data;
use crate::evidence::{Evidence, Kind};
use crate::facts::Facts;
use crate::parse::command;

/// Keys that every version has some of.
const EXPECTED: &[&str] = &["version", "internal_states", "model_path", "tp_size", "server_args"];

pub(super) fn read(label: &str, bytes: &[u8], facts: &mut Facts) -> Result<()> {
    let value: Value = serde_json::from_slice(bytes).map_err(|e| {
        Error::input("this is no JSON, or it is cut")
            .at(format!("{label}:{}", e.line()))
            .expected("the answer of /server_info")
            .found(format!("an error at column {}", e.column()))
    })?;
    let Some(top) = value.as_object().filter(|top| EXPECTED.iter().any(|key| top.contains_key(*key))) else {
        return Err(Error::input("this is no answer of /server_info")
            .at(format!("{label}:1"))
            .expected(format!("an object with one of {}", EXPECTED.join(", ")))
            .found("none of them"));
    };
    let text = super::text(bytes);
    let reader = Reader { label, text: &text };
    reader.object(top, "", Kind::ServerInfo, facts);
    if let Some(args) = top.get("server_args").and_then(Value::as_object) {
        reader.object(args, "server_args.", Kind::ServerInfo, facts);
    }
    for (i, state) in top.get("internal_states").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let Some(state) = state.as_object() else { continue };
        let path = format!("internal_states[{i}].");
        reader.object(state, &path, Kind::Scheduler, facts);
        for (name, value) in state.get("env_vars").and_then(Value::as_object).into_iter().flatten() {
            let value = plain(value);
            facts.variable(name, &value, (Kind::Scheduler, label, reader.line(name)));
        }
    }
    if let Some(version) = top.get("version").and_then(Value::as_str) {
        let evidence = reader.evidence("version", "", version, Kind::ServerInfo);
        facts.told("version", version, evidence.clone());
        // Only SGLang answers like this.
        facts.told("engine", "sglang", evidence);
    }
    if top.contains_key("tp_size") {
        let line = reader.line("tp_size");
        facts.arguments = Some(Evidence::new(Kind::ServerInfo, label, line, "every server argument"));
    }
    if let Some(launched) = top.get("launch_command").and_then(Value::as_str) {
        command::read(Kind::Process, &format!("{label}: launch_command"), launched, facts)?;
    }
    Ok(())
}

struct Reader<'a> {
    label: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn object(&self, object: &Map<String, Value>, path: &str, kind: Kind, facts: &mut Facts) {
        for (key, value) in object {
            if data().argument(key).is_none() || value.is_object() || value.is_array() {
                continue;
            }
            let value = plain(value);
            facts.argument(key, &value, self.evidence(key, path, &value, kind));
        }
    }

    fn evidence(&self, key: &str, path: &str, value: &str, kind: Kind) -> Evidence {
        Evidence::new(kind, self.label, self.line(key), &format!("{path}{key}: {value}"))
    }

    /// Where the key first stands.
    fn line(&self, key: &str) -> usize {
        let at = self.text.find(&format!("\"{key}\"")).unwrap_or(0);
        1 + self.text[..at].matches('\n').count()
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
