//! A launch command: a script, an `ExecStart=`, or `/proc/PID/cmdline`.

use karat_model::{Error, Result};

use crate::data::{ValueKind, data};
use crate::evidence::{Evidence, Kind};
use crate::facts::{Facts, MOUNTED};
use crate::parse::environment::pair;
use crate::parse::words::{self, Word};

/// How deep `bash -c "..."` is followed.
const DEEPEST: usize = 4;

pub(super) fn read(kind: Kind, label: &str, text: &str, facts: &mut Facts) -> Result<()> {
    let words = words::split(label, text, 1)?;
    if words.iter().all(|w| w.ends) {
        return Err(Error::input("the command is empty").at(label));
    }
    script(&words, (kind, label), facts, DEEPEST)?;
    Ok(())
}

/// `/proc/PID/cmdline`: the words with NUL after each.
pub(super) fn read_process(label: &str, bytes: &[u8], facts: &mut Facts) -> Result<()> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    let words: Vec<Word> = bytes
        .split(|b| *b == 0)
        .enumerate()
        .map(|(i, w)| Word { text: super::text(w).into_owned(), line: i + 1, ends: false })
        .collect();
    // The engine's own processes name themselves, and lose their arguments by it: sglang::scheduler_TP0.
    if let Some(title) = words.first().map(|w| w.text.trim()).filter(|t| t.starts_with("sglang::")) {
        facts.told("engine", "sglang", Evidence::new(Kind::Process, label, 1, title));
        facts.note("a process that has named itself shows no arguments: take the one that started it", None);
        return Ok(());
    }
    script(&words, (Kind::Process, label), facts, DEEPEST)?;
    Ok(())
}

/// What a command did with the environment that its caller has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
    /// The server is the caller's own process or child.
    Here,
    /// It runs in a container, which has an environment of its own.
    Container,
}

/// Commands one after the other. Tells where the server runs, if one of them starts it.
pub(super) fn script(words: &[Word], at: (Kind, &str), facts: &mut Facts, depth: usize) -> Result<Option<Runs>> {
    let mut runs = None;
    let mut any = false;
    let commands: Vec<&[Word]> = words.split(|w| w.ends).filter(|c| !c.is_empty()).collect();
    // Without a server in it, a text is read as the server's own arguments.
    let engines = commands.iter().any(|c| engine(c).is_some() || shell(c).is_some());
    for command in &commands {
        // Assignments before a command, and those that `export` keeps.
        let set: Vec<&Word> = command
            .iter()
            .skip_while(|w| {
                matches!(w.text.as_str(), "export" | "env" | "exec" | "sudo" | "nohup" | "time" | "-i" | "-E")
            })
            .take_while(|w| pair(&w.text).is_some())
            .collect();
        let lasting = command[0].text == "export" || set.len() == command.len();
        let starts = engine(command).is_some() || shell(command).is_some();
        if lasting || starts || !engines {
            for word in set {
                if let Some((name, value)) = pair(&word.text) {
                    facts.variable(name, value, (at.0, at.1, word.line));
                }
            }
        }
        if let Some(inner) = shell(command).filter(|_| depth > 0) {
            let inside = words::split(at.1, &inner.text, inner.line)?;
            runs = script(&inside, at, facts, depth - 1)?.or(runs);
        } else if let Some((start, name)) = engine(command) {
            any = true;
            runs = Some(if container(&command[..start], at, facts) { Runs::Container } else { Runs::Here });
            let evidence = Evidence::new(at.0, at.1, command[start].line, &command[start].text);
            facts.told("engine", name, evidence.clone());
            facts.arguments = Some(Evidence { text: format!("the whole command line of {name}"), ..evidence });
            flags(&command[start..], at, facts);
        } else if !engines {
            any |= flags(command, at, facts);
        }
    }
    if !any && runs.is_none() {
        let line = words.first().map_or(1, |w| w.line);
        let text = "no command of SGLang or vLLM and none of its arguments was found";
        facts.note(text, Some(Evidence::new(at.0, at.1, line, "")));
    }
    Ok(runs)
}

/// Where a command names an engine: the word's index and the engine.
fn engine(command: &[Word]) -> Option<(usize, &'static str)> {
    command.iter().enumerate().find_map(|(i, word)| {
        let next = command.get(i + 1).map_or("", |w| w.text.as_str());
        let last = word.text.rsplit('/').next().unwrap_or_default();
        let name = match last {
            "sglang.launch_server" => "sglang",
            "sglang" if next == "serve" => "sglang",
            "launch_server.py" if word.text.contains("sglang") => "sglang",
            "vllm.entrypoints.openai.api_server" => "vllm",
            "vllm" if next == "serve" => "vllm",
            _ => return None,
        };
        Some((i, name))
    })
}

/// The script of `sh -c SCRIPT`, anywhere in a command.
fn shell(command: &[Word]) -> Option<&Word> {
    let is_shell = |w: &Word| matches!(w.text.rsplit('/').next(), Some("sh" | "bash" | "dash" | "zsh"));
    let at = command.iter().position(is_shell)?;
    let mut rest = command[at + 1..].iter();
    let found = rest.find(|w| w.text.starts_with('-') && !w.text.starts_with("--") && w.text.ends_with('c'));
    found.and_then(|_| rest.next())
}

/// Options of `docker run` and its kin before the engine: variables and mounts. False when there is no container.
fn container(before: &[Word], at: (Kind, &str), facts: &mut Facts) -> bool {
    let is_tool = |w: &Word| matches!(w.text.rsplit('/').next(), Some("docker" | "podman" | "nerdctl"));
    let Some(tool) = before.iter().position(is_tool) else { return false };
    let mut words = before[tool + 1..].iter().peekable();
    while let Some(word) = words.next() {
        let (option, given) = match word.text.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value.to_owned())),
            _ => (word.text.as_str(), None),
        };
        if !matches!(option, "-e" | "--env" | "-v" | "--volume" | "--mount" | "--env-file") {
            continue;
        }
        let Some(value) = given.or_else(|| words.next().map(|w| w.text.clone())) else { break };
        let evidence = || Evidence::new(at.0, at.1, word.line, &format!("{option} {value}"));
        match option {
            "-e" | "--env" => match pair(&value) {
                Some((name, value)) => facts.variable(name, value, (at.0, at.1, word.line)),
                None => facts.note(
                    &format!("{}: handed on from the caller's environment", crate::evidence::shown(&value)),
                    Some(evidence()),
                ),
            },
            "--env-file" => facts.note("variables of this file are not seen: give it with --env", Some(evidence())),
            _ => {
                let part = |name: &str| value.split(',').find_map(|p| p.strip_prefix(name)?.strip_prefix('='));
                let inside = if option == "--mount" {
                    part("target").or(part("dst")).or(part("destination"))
                } else {
                    value.split(':').nth(1)
                };
                if let Some(inside) = inside {
                    facts.path(inside, MOUNTED, evidence());
                }
            }
        }
    }
    true
}

/// Server arguments. True when one of them is in the tables.
fn flags(words: &[Word], at: (Kind, &str), facts: &mut Facts) -> bool {
    let mut any = false;
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        let (flag, given) = match word.text.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (word.text.as_str(), None),
        };
        let Some(switch) = data().flag(flag).filter(|_| flag.starts_with("--")) else { continue };
        any = true;
        let value = given.or_else(|| {
            let value = rest.next_if(|w| !w.text.starts_with("--") && switch.value != ValueKind::Bool);
            value.map(|w| w.text.clone())
        });
        match value {
            Some(value) if value.contains('$') => {
                let evidence = Evidence::new(at.0, at.1, word.line, &format!("{flag} {value}"));
                facts.note(&format!("{}: its value is a variable that isn't seen here", switch.name), Some(evidence));
            }
            Some(value) => {
                let evidence = Evidence::new(at.0, at.1, word.line, &format!("{flag} {value}"));
                facts.argument(&switch.name, &value, evidence);
            }
            None if switch.value == ValueKind::Bool => {
                facts.argument(&switch.name, "true", Evidence::new(at.0, at.1, word.line, flag));
            }
            None => facts.note(&format!("{flag} has no value"), Some(Evidence::new(at.0, at.1, word.line, flag))),
        }
    }
    any
}

#[cfg(test)]
mod tests;
