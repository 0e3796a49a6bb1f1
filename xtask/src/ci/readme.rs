//! The README's commands: every line of its `sh` blocks. What a reader is told to type is what ci runs.

/// Commands in order, continued lines joined, comments left out.
pub(super) fn commands(readme: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut inside = false;
    let mut open = String::new();
    for line in readme.lines() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            inside = !inside && fence.trim() == "sh";
            continue;
        }
        // A comment may follow a command on its line.
        let code = line.split(" #").next().unwrap_or(line).trim();
        if !inside || code.is_empty() || code.starts_with('#') {
            continue;
        }
        if let Some(start) = code.strip_suffix('\\') {
            open += start;
        } else {
            out.push(std::mem::take(&mut open) + code);
        }
    }
    out
}

/// True for the test command, which the step `tests` stands for.
pub(super) fn is_test(command: &str) -> bool {
    command.starts_with("cargo test")
}

/// True for the default audit.
pub(super) fn is_audit(command: &str) -> bool {
    command == "cargo run --release -- audit"
}
