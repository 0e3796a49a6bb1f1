//! Partial results of a long command, one a line, so that it can be ended and gone on with.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use karat_bundle::TapRow;
use serde_json::{Value, json};

/// Results that were kept, and the file that they are in.
#[derive(Debug)]
pub struct Kept {
    file: PathBuf,
    /// Digest of the candidate without a fault that they belong to.
    control: Option<u64>,
    lines: Vec<Value>,
}

impl Kept {
    /// Reads what is there; a last line that was cut is left out.
    pub fn open(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        let mut lines: Vec<Value> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
        let control = lines.first().and_then(|l| l["control"].as_str()).and_then(|c| u64::from_str_radix(c, 16).ok());
        lines.retain(|l| l.get("control").is_none());
        Self { file: file.to_path_buf(), control, lines: if control.is_some() { lines } else { Vec::new() } }
    }

    /// What was kept, oldest first.
    pub fn lines(&self) -> &[Value] {
        &self.lines
    }

    /// Keeps more, of a run whose candidate without a fault has this digest.
    ///
    /// # Errors
    /// What is there already belongs to other numbers; the file can't be written.
    pub fn add(&mut self, control: u64, more: impl Iterator<Item = Value>) -> Result<(), Box<dyn std::error::Error>> {
        let file = self.file.display();
        if let Some(before) = self.control.filter(|before| *before != control) {
            return Err(format!(
                "{file}: its results belong to another build: the candidate without a fault has digest {before:016x} there, \
                 {control:016x} now. Start over with --again"
            )
            .into());
        }
        self.control = Some(control);
        self.lines.extend(more);
        let head = json!({ "control": format!("{control:016x}") });
        let lines: Vec<String> = std::iter::once(&head).chain(&self.lines).map(Value::to_string).collect();
        let to = self.file.with_extension("part");
        let written = || -> std::io::Result<()> {
            fs::create_dir_all(self.file.parent().unwrap_or(Path::new(".")))?;
            let mut out = fs::File::create(&to)?;
            out.write_all((lines.join("\n") + "\n").as_bytes())?;
            fs::rename(&to, &self.file)
        };
        written().map_err(|e| format!("{file}: can't be written: {e}").into())
    }
}

/// FNV-1a over every judged number of a candidate in one sequence: equal when an audit computes the same bits.
pub(crate) fn digest(rows: &[TapRow], sequence: &str) -> u64 {
    let numbers = rows.iter().filter(|r| r.sequence == sequence).flat_map(|r| [r.value, r.tolerance, r.rel_l2]);
    let bytes = numbers.flat_map(|v| v.unwrap_or(-1.0).to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A number as pages show it.
pub(crate) fn number(v: f64) -> String {
    if v.is_nan() { "NaN".to_string() } else { format!("{v:.2e}") }
}

/// A number of a kept line; what was none is NaN.
pub(crate) fn number_of(v: &Value) -> Option<f64> {
    v.as_f64().or_else(|| (v == "NaN").then_some(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_kept_for_the_same_numbers_only() {
        let file = std::env::temp_dir().join(format!("karat-kept-{}/x.jsonl", std::process::id()));
        let mut kept = Kept::open(&file);
        assert!(kept.lines().is_empty());
        kept.add(7, [json!({"a": 1}), json!({"a": 2})].into_iter()).unwrap();
        kept.add(7, std::iter::once(json!({"a": 3}))).unwrap();
        // A run that was killed while it wrote leaves half a line.
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{text}{{\"a\": 4")).unwrap();
        let mut again = Kept::open(&file);
        assert_eq!(again.lines().iter().map(|l| l["a"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
        let error = again.add(8, std::iter::empty()).unwrap_err().to_string();
        assert!(error.contains("another build") && error.contains("--again"), "{error}");
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }
}
