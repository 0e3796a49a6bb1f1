//! Against a server that is scripted to fail in one way.

mod faults;
mod oracle;
mod process;
mod suite;
