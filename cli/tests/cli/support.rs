//! Runs the binary and looks at what came out.

use std::path::Path;
use std::process::{Command, Output};

/// What a command left.
pub(crate) struct Ran {
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The exit code, with everything that was said when it is another one.
    pub(crate) fn expect(self, exit: i32) -> Self {
        assert_eq!(self.exit, exit, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// stdout as json.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// The one error message: a line that begins with `error: `, and nothing else on stderr.
    pub(crate) fn error(&self) -> &str {
        let lines: Vec<&str> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "one message: {}", self.stderr);
        lines[0].strip_prefix("error: ").unwrap_or_else(|| panic!("{}", self.stderr))
    }
}

/// Runs `karat` in a folder, without a cache.
pub(crate) fn karat(dir: &Path, args: &[&str]) -> Ran {
    karat_in(dir, args, &[("KARAT_NO_CACHE", "1")])
}

/// Runs `karat` in a folder with these variables set. Nobody's own cache is ever used.
pub(crate) fn karat_in(dir: &Path, args: &[&str], environment: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_karat"));
    command.current_dir(dir).args(args).env_remove("NO_COLOR").env("COLUMNS", "100");
    for name in ["KARAT_NO_CACHE", "KARAT_CACHE_DIR", "KARAT_CACHE_LIMIT", "XDG_CACHE_HOME", "HOME"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    let Output { status, stdout, stderr } = command.output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    Ran { exit: status.code().expect("no signal"), stdout: text(stdout), stderr: text(stderr) }
}

/// A folder with a mini model, a short token file and the same ids with one changed.
pub(crate) fn workplace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    karat(dir.path(), &["model", "new", "--geometry", "mini", "--seed", "5", "--out", "mini"]).expect(0);
    let ids: Vec<u32> = (0..40).map(|i| (i * 37 + 11) % 500).collect();
    let file = |ids: &[u32]| serde_json::json!({"sequences": [{"id": "a", "input_ids": ids}]}).to_string();
    std::fs::write(dir.path().join("ids.json"), file(&ids)).unwrap();
    let mut other = ids.clone();
    other[7] += 1;
    std::fs::write(dir.path().join("other.json"), file(&other)).unwrap();
    dir
}

/// Numbers, times and paths taken out of a text, so that a snapshot shows its shape.
pub(crate) fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if line.contains(" forward passes") || line.starts_with("bundle: ") {
            continue;
        }
        let words: Vec<String> =
            line.split_whitespace().map(|w| if is_number(w) { "#".into() } else { w.into() }).collect();
        out.push_str(&words.join(" "));
        out.push('\n');
    }
    out
}

fn is_number(word: &str) -> bool {
    let word = word.trim_matches(|c: char| "(),+".contains(c));
    word != "-" && word.split('|').all(|part| part == "-" || part.parse::<f64>().is_ok())
}
