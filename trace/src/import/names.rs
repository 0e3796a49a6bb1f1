//! What the place of a file says about its tensors.

#[cfg(test)]
mod tests;

use std::path::Path;

/// Tags that are left out of a name: a counter that another run numbers differently, and what is said when nothing is.
const SILENT: &[(&str, Option<&str>)] = &[("dump_index", None), ("recompute_status", Some("disabled"))];

/// A file's part in the names of its tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Before the name within the file.
    before: String,
    /// After it.
    after: String,
    /// SGLang's counter: tells apart tensors that were dumped twice under the same tags.
    pub(crate) index: u64,
}

impl Origin {
    /// Of a path relative to the dump's folder.
    ///
    /// - `step=1___rank=0___dump_index=7___name=x___layer_id=3.pt` (SGLang's dumper): `x/layer_id=3/rank=0/step=1`;
    /// - `TP0_PP0_Rank0_pid9/Pass00002.pt` (SGLang's forward hooks): `MODULE/pass=2/pp=0/tp=0`;
    /// - anything else: its path without the ending, then the name within the file.
    pub(crate) fn of(relative: &Path) -> Self {
        let stem = relative.file_stem().unwrap_or_default().to_string_lossy();
        let folder = relative.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        if let Some(found) = dumper(&stem) {
            return found;
        }
        if let (Some((tp, pp)), Some(pass)) = (ranks(&folder), stem.strip_prefix("Pass").and_then(number)) {
            return Self { before: String::new(), after: format!("/pass={pass}/pp={pp}/tp={tp}"), index: 0 };
        }
        let parts = relative.with_extension("");
        let parts: Vec<_> = parts.iter().map(|part| part.to_string_lossy()).collect();
        Self { before: parts.join("/"), after: String::new(), index: 0 }
    }

    /// Name of a tensor that the file calls so.
    pub(crate) fn name(&self, inner: &str) -> String {
        match (self.before.as_str(), inner) {
            ("", inner) => format!("{inner}{}", self.after),
            (before, "value") => format!("{before}{}", self.after),
            (before, inner) => format!("{before}/{inner}{}", self.after),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// SGLang's dumper: tags joined by `___`, one of them `name`.
fn dumper(stem: &str) -> Option<Origin> {
    let mut tags: Vec<(&str, &str)> = stem.split("___").map(|tag| tag.split_once('=')).collect::<Option<_>>()?;
    let name = value_of(&tags, "name")?;
    let index = value_of(&tags, "dump_index").and_then(number).unwrap_or(0);
    tags.retain(|(k, v)| {
        *k != "name" && !SILENT.iter().any(|(key, value)| key == k && value.is_none_or(|value| value == *v))
    });
    tags.sort_unstable();
    let after = tags.iter().map(|(k, v)| format!("/{k}={v}")).collect();
    Some(Origin { before: name.to_string(), after, index })
}

fn value_of<'s>(tags: &[(&str, &'s str)], key: &str) -> Option<&'s str> {
    tags.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
}

/// Tensor and pipeline rank of `TP0_PP0_Rank0_pid123`.
fn ranks(folder: &str) -> Option<(u64, u64)> {
    let mut parts = folder.split('_');
    let mut next = |prefix: &str| parts.next()?.strip_prefix(prefix).and_then(number);
    let (tp, pp) = (next("TP")?, next("PP")?);
    next("Rank")?;
    next("pid")?;
    Some((tp, pp))
}
