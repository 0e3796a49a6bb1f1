//! The command line as a user types it: arguments in; stdout, stderr and exit code out.

mod audit;
mod candidate;
mod errors;
mod files;
mod support;
