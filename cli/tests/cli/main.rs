//! The command line as a user types it: arguments in; stdout, stderr and exit code out.

mod audit;
mod broken;
mod cache;
mod candidate;
mod errors;
mod files;
mod gate;
mod import;
mod recall;
mod support;
mod verify;
