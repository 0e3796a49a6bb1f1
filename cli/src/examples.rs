//! Examples of `--help`. A test parses each of them.

pub(crate) const AUDIT: &str = "Examples:
  karat audit
  karat audit --model DIR --stock sglang --patches fp8-indexer,bf16-mhc --out bundle
  karat audit --histories all
  karat audit --model DIR --candidate TRACE_DIR --claims bf16";

pub(crate) const GATE: &str = "Examples:
  karat gate --policy karat.toml --baseline karat.lock --out bundle
  karat gate --from bundle --policy other.toml
  karat gate --baseline karat.lock --update-baseline";

pub(crate) const MERGE: &str = "Example:
  karat merge part-1 part-2 --out whole";

pub(crate) const RECALL: &str = "Examples:
  karat recall needle-2k --patches fp8-kv
  karat recall --golden --model DIR";

pub(crate) const BISECT: &str = "Examples:
  karat bisect
  karat bisect --over all --replay search.jsonl
  karat bisect --patches a,b,c,d --check './my-test.sh {patches}'";

pub(crate) const ISOLATE: &str = "Example:
  karat isolate my.toml --model DIR --out report";

pub(crate) const REPORT: &str =
    "A format without FILE is written to report.html, report.md, junit.xml or report.csv here; - is stdout.

Examples:
  karat report bundle --html
  karat report bundle --html report.html --junit junit.xml --github
  karat report bundle --explain layers.3.attn.o
  karat report before after --markdown moved.md";

pub(crate) const TRACE: &str = "Examples:
  karat trace --path golden --out golden-trace
  karat trace --path optimized --patches fp8-indexer --taps 'layers.*.out,logits' --out trace";

pub(crate) const OP: &str = "Examples:
  karat op --list
  karat op attn.attend --patches mma-sparse-mla --phase decode --save op.safetensors
  karat op attn.attend --inputs repro/op.safetensors --exec './kernel {in} {out}'
  karat op hc_attn.pre --inputs op.safetensors --candidate mine.safetensors --stock none";

pub(crate) const BENCH: &str = "Examples:
  karat bench --evidence kernels/evidence/nvidia-h200.json
  karat bench --evidence kernels/evidence/nvidia-h200.json --bundle bundle --filter mhc";

pub(crate) const DIFF: &str = "Examples:
  karat diff golden-trace trace
  karat diff golden-trace dump.pt --top 0";

pub(crate) const MODEL: &str = "Examples:
  karat model inspect DIR
  karat model new --geometry mini --out mini
  karat model diff A B";

pub(crate) const DOCTOR: &str = "Examples:
  karat doctor
  karat doctor --plan DIR/config.json --plan-tokens 8192 --plan-patches 3";

pub(crate) const SCENARIO: &str = "Examples:
  karat scenario list --grep needle
  karat scenario render tic-tac-toe
  karat scenario import requests.jsonl";

pub(crate) const PATCHES: &str = "Examples:
  karat patches
  karat patches --verify --pid 4711 --log server.log
  karat patches --from-diff change.patch";

pub(crate) const COMPLETIONS: &str = "Examples:
  karat completions bash > ~/.local/share/bash-completion/completions/karat
  karat completions zsh > ~/.zfunc/_karat
  karat completions fish > ~/.config/fish/completions/karat.fish";

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use crate::args::Cli;

    /// Words of a line as a shell takes them, without pipes.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" > ").next().unwrap_or(line);
        let mut out = Vec::new();
        for (i, part) in line.split('\'').enumerate() {
            match i % 2 {
                0 => out.extend(part.split_whitespace().map(String::from)),
                _ => out.push(part.to_string()),
            }
        }
        out
    }

    #[test]
    fn every_example_parses_and_every_command_has_one() {
        let mut command = Cli::command();
        command.build();
        let mut lines = 0;
        for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            let own = help.lines().map(str::trim).filter(|l| l.starts_with("karat "));
            let before = lines;
            for line in own {
                lines += 1;
                assert!(line.starts_with(&format!("karat {}", sub.get_name())), "{line}");
                Cli::try_parse_from(words(line)).unwrap_or_else(|e| panic!("{line}: {e}"));
            }
            assert!(lines > before, "karat {} has no example", sub.get_name());
        }
    }
}
