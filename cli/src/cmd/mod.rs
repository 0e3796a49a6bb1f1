//! The subcommands, one file each. Each gives the exit code of its result.

mod audit;
pub(crate) mod bench;
pub(crate) mod bisect;
pub(crate) mod completions;
mod diff;
mod doctor;
pub(crate) mod gate;
mod histories;
pub(crate) mod import;
pub(crate) mod isolate;
pub(crate) mod live;
pub(crate) mod merge;
mod model;
pub(crate) mod op;
mod patches;
mod plan;
mod recall;
mod report;
mod scenario;
mod trace;
mod verify;

use crate::args::{Cli, Command};
use crate::failure::Result;

/// Runs a command.
pub(crate) fn run(cli: Cli) -> Result<u8> {
    let globals = cli.globals;
    match cli.command {
        Command::Audit(args) => audit::run(&args, globals),
        Command::Gate(args) => gate::run(&args, globals),
        Command::Merge(args) => merge::run(&args, globals),
        Command::Recall(args) => recall::run(&args, globals),
        Command::Bisect(args) => bisect::run(&args, globals),
        Command::Isolate(args) => isolate::run(&args, globals),
        Command::Report(args) => report::run(&args, globals),
        Command::Trace(args) => trace::run(&args, globals),
        Command::Diff(args) => diff::run(&args, globals),
        Command::Op(args) => op::run(&args, globals),
        Command::Model { command } => model::run(&command, globals),
        Command::Bench(args) => bench::run(&args, globals),
        Command::Doctor(args) => doctor::run(&args, globals),
        Command::Scenario { command } => scenario::run(&command, globals),
        Command::Patches(args) => patches::run(&args, globals),
        Command::Completions { shell } => {
            completions::run(shell);
            Ok(0)
        }
    }
}
