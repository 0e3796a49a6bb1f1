//! `karat completions SHELL`: what the shell offers after each command, made from the command line itself.

use clap::{CommandFactory, ValueEnum};

use crate::args::Cli;
use crate::output;

/// Shells that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// Bourne again shell.
    Bash,
    /// Z shell.
    Zsh,
    /// Friendly interactive shell.
    Fish,
}

/// A command: its words after `karat`, and what may follow.
struct Place {
    path: Vec<String>,
    about: String,
    /// Subcommands and values of a first argument.
    words: Vec<String>,
    /// Long options: name, help, whether a value follows.
    options: Vec<(String, String, bool)>,
}

pub(crate) fn run(shell: Shell) {
    let mut command = Cli::command();
    command.build();
    let mut places = Vec::new();
    collect(&command, &mut Vec::new(), &mut places);
    output::stdout(&match shell {
        Shell::Bash => bash(&places),
        Shell::Zsh => zsh(&places),
        Shell::Fish => fish(&places),
    });
}

fn collect(command: &clap::Command, path: &mut Vec<String>, into: &mut Vec<Place>) {
    let shown = || command.get_subcommands().filter(|c| !c.is_hide_set());
    let options = command.get_arguments().filter(|a| !a.is_hide_set());
    let options = options.filter_map(|a| {
        let help = a.get_help().map(|h| h.to_string().lines().next().unwrap_or_default().to_string());
        Some((a.get_long()?.to_string(), help.unwrap_or_default(), a.get_action().takes_values()))
    });
    let mut words: Vec<String> = shown().map(|c| c.get_name().to_string()).collect();
    let values = command.get_positionals().flat_map(clap::Arg::get_possible_values);
    words.extend(values.map(|v| v.get_name().to_string()));
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    into.push(Place { path: path.clone(), about, words, options: options.collect() });
    for sub in shown() {
        path.push(sub.get_name().to_string());
        collect(sub, path, into);
        path.pop();
    }
}

impl Place {
    /// `karat`, `karat model`, `karat model inspect`.
    fn name(&self) -> String {
        std::iter::once("karat").chain(self.path.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }

    fn offered(&self) -> String {
        let options = self.options.iter().map(|o| format!("--{}", o.0));
        self.words.iter().cloned().chain(options).collect::<Vec<_>>().join(" ")
    }
}

/// One case a command that follows another.
fn steps(places: &[Place]) -> String {
    let named = places.iter().filter(|p| !p.path.is_empty());
    named.map(|p| format!("      \"{0}\") at=\"{0}\" ;;\n", p.name())).collect()
}

fn bash(places: &[Place]) -> String {
    let cases = places.iter().map(|p| format!("    \"{}\") words=\"{}\" ;;\n", p.name(), p.offered()));
    format!(
        "# bash completions of karat\n_karat() {{\n  local at=karat words= current=\"${{COMP_WORDS[COMP_CWORD]}}\" i\n  \
         for ((i = 1; i < COMP_CWORD; i++)); do\n    case \"$at ${{COMP_WORDS[i]}}\" in\n{}    esac\n  done\n  case \"$at\" in\n\
         {}  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}}\n\
         # Nothing that fits: files.\ncomplete -o default -F _karat karat\n",
        steps(places),
        cases.collect::<String>(),
    )
}

fn zsh(places: &[Place]) -> String {
    let cases = places.iter().map(|p| format!("    \"{}\") offered=({}) ;;\n", p.name(), p.offered()));
    format!(
        "#compdef karat\n_karat() {{\n  local at=karat i\n  local -a offered\n  for ((i = 2; i < CURRENT; i++)); do\n    \
         case \"$at ${{words[i]}}\" in\n{}    esac\n  done\n  case \"$at\" in\n{}  esac\n  compadd -- $offered\n  \
         [[ $PREFIX == -* ]] || _files\n}}\ncompdef _karat karat\n",
        steps(places),
        cases.collect::<String>(),
    )
}

fn fish(places: &[Place]) -> String {
    let quote = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let mut out = String::from("# fish completions of karat\n");
    for place in places {
        // Where it is offered: after all of its words, and none of those that may follow.
        let seen = place.path.iter().map(|word| format!("__fish_seen_subcommand_from {word}; and "));
        let seen: String = seen.collect();
        let subs: Vec<&Place> =
            places.iter().filter(|p| p.path.len() == place.path.len() + 1 && p.path.starts_with(&place.path)).collect();
        let names: Vec<&str> = subs.iter().filter_map(|p| p.path.last().map(String::as_str)).collect();
        let none = match names.is_empty() {
            true => "true".to_string(),
            false => format!("not __fish_seen_subcommand_from {}", names.join(" ")),
        };
        let when = quote(&format!("{seen}{none}"));
        for sub in &subs {
            let name = sub.path.last().map_or("", String::as_str);
            out.push_str(&format!("complete -c karat -n {when} -f -a {name} -d {}\n", quote(&sub.about)));
        }
        for word in place.words.iter().filter(|w| !names.contains(&w.as_str())) {
            out.push_str(&format!("complete -c karat -n {when} -f -a {word}\n"));
        }
        for (name, help, takes_value) in &place.options {
            let value = if *takes_value { " -r" } else { "" };
            out.push_str(&format!("complete -c karat -n {when} -l {name}{value} -d {}\n", quote(help)));
        }
    }
    out
}
