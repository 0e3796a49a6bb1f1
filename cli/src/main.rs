//! karat: how much of the golden reference is left in an optimized LLM inference kernel path.
//!
//! Arguments and printing only; one short file a subcommand. Progress and errors go to stderr, results to stdout.

mod args;
mod backend;
mod cache;
mod cmd;
mod examples;
mod failure;
mod inputs;
mod later;
mod model;
mod output;
mod progress;
mod stop;
mod summary;

use std::panic;
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser;

use crate::args::Cli;
use crate::failure::Failure;

/// What the last panic said, for the one message that is printed about it.
static PANIC: Mutex<String> = Mutex::new(String::new());

fn main() -> ExitCode {
    karat_model::checkpoint::tune_allocator();
    panic::set_hook(Box::new(|info| {
        if let Ok(mut said) = PANIC.lock() {
            said.clear();
            said.push_str(&info.to_string().replace('\n', " "));
        }
    }));
    // clap prints its own messages: usage errors to stderr with exit code 2, help and version to stdout with 0.
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let json = cli.globals.json;
    let result = panic::catch_unwind(|| cmd::run(cli)).unwrap_or_else(|_| {
        let said = PANIC.lock().map(|s| s.clone()).unwrap_or_default();
        Err(Failure::bug(&said))
    });
    let result = result.and_then(|code| match output::lost() {
        None => Ok(code),
        Some(why) => Err(Failure::output(&why)),
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print(json);
            ExitCode::from(failure.exit)
        }
    }
}
