//! The command line as a user types it: arguments in; stdout, stderr and exit code out.

mod audit;
mod bench;
mod bisect;
mod broken;
mod cache;
mod candidate;
mod ci;
mod dumps;
mod endpoint;
mod engine;
mod errors;
mod files;
mod gate;
mod import;
mod isolate;
mod machines;
mod op;
mod recall;
mod report;
mod support;
mod verify;
