//! CUDA at run time: the compiler ([`nvrtc`]), the device with its memory, launches and clocks ([`Device`]), and one typed
//! launcher a kernel, which checks shapes against buffers before anything runs.

mod ceiling;
mod compare;
mod compressor;
mod device;
mod gemm;
mod index;
mod loader;
mod mhc;
mod mla;
mod mma_probe;
mod moe;
mod nccl;
pub mod nvrtc;
mod ways;

pub use ceiling::{CopyRate, MmaRate};
pub use compare::{Compare, CompareCall, Element, NaiveCompare, RECORD, ReadRate, Side, compared};
pub use compressor::{CompressCall, Compressor};
pub use device::{Buffer, Device, Graph};
pub use gemm::{Gemm, GemmCall};
pub use index::{IndexCall, IndexLogits, Select, SelectCall};
pub use loader::{Loaded, Loader};
pub use mhc::{Mhc, MhcCall};
pub use mla::{Mla, MlaCall};
pub use mma_probe::MmaProbe;
pub use moe::{Matrix, Moe, MoeCall, MoePart};
pub use nccl::{Nccl, Wire, nccl_version};
