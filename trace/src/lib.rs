//! karat-trace/1: what a path computed, on disk, so that another engine can be audited without being linked in.
//!
//! A trace is a folder with `manifest.json` and safetensors files. Every tensor has a key `SEQUENCE/TAP`, or
//! `SEQUENCE/TAP@PASS` for rows that were computed again, where TAP is the text of a [`karat_seam::Site`] and SEQUENCE
//! is escaped by [`key`]. `SEQUENCE/rows` lists positions when a trace holds only some.
//!
//! | module | what it gives |
//! |---|---|
//! | [`key`] | the grammar of keys |
//! | [`manifest`] | manifest.json |
//! | [`Trace`] | a trace opened for reading: memory-mapped, checked whole, partial traces welcome |
//! | [`TraceWriter`] | writes a trace; a visitor, so any path can be recorded |
//! | [`SketchWriter`] | 88 bytes a row instead of its values |
//! | [`TracePath`] | a trace as a [`karat_seam::Path`]: replays stored streams, knows no ops |
//! | [`dumps`] | named tensors of a trace, a safetensors file or another engine's dump, for a plain diff of two |
//! | [`import`] | other engines' dumps: .pt, .npy, .npz, folders of them, and mapping files |
//! | [`TapGlob`] | which taps to record |
//!
//! Files are input from elsewhere. Arbitrary bytes give an error that names file and tensor, never a panic, and no
//! reader allocates by what a header claims before the bytes are known to be there.

mod blob;
pub mod dumps;
mod glob;
pub mod import;
pub mod key;
pub mod manifest;
mod mmap;
mod path;
mod reader;
mod sketch;
mod store;
mod values;
mod writer;

pub use glob::TapGlob;
pub use manifest::{History, Manifest, Mode, ModelId, SequenceEntry, Step};
pub use path::TracePath;
pub use reader::{IdDifference, SameModel, Trace};
pub use sketch::{RowSketch, SUMS, SketchWriter, told};
pub use store::{RawTensor, TensorFile};
pub use values::Dtype;
pub use writer::{Header, Order, Sample, TraceWriter};

#[cfg(test)]
mod support;
