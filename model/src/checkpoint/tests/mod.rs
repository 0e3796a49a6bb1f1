//! The reader on small checkpoints built by hand (`crate::testing`).

mod headers;
mod names;
mod shards;
mod storage;
