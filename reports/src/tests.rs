//! Tests over all formats, on a bundle that has one of everything.

mod browser;
mod contrast;
mod devtools;
mod fixture;
mod hostile;
mod junit;
mod moved;
mod size;
mod snapshots;
mod walk;
mod xml;
