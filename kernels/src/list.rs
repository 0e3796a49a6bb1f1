//! `kernels.toml`: the images to build, their knobs, and what they may use.

use std::collections::BTreeMap;

use karat_model::{Error, Result};
use serde::Deserialize;

/// The committed list.
const TEXT: &str = include_str!("../kernels.toml");

/// Every chip that a kernel is compiled for: the one that runs are measured on, and the target.
pub const ARCHES: [&str; 2] = ["sm_90a", "sm_120a"];

/// The image of sketches: no value of golden depends on it.
pub const SKETCH: &str = "golden-sketch";

/// The image of golden's exact-split tier: no value of the tier of bits depends on it.
pub const SPLIT: &str = "golden-split";
/// The image that asks how mma.sync accumulates: it computes nothing for anybody, and has evidence of its own.
pub const PROBE: &str = "mma-probe";

/// Most shared memory of a block, bytes, static and dynamic together (CUDA programming guide, compute capabilities).
pub fn shared_limit(arch: &str) -> u32 {
    if arch.starts_with("sm_90") { 232_448 } else { 101_376 }
}

/// The parsed list.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    format: u32,
    /// Version of NVRTC that the packs are built with.
    pub compiler: String,
    /// The images, in order of the file.
    #[serde(rename = "image")]
    pub images: Vec<Image>,
}

/// One compilation: a source with knobs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Its name in packs and evidence.
    pub name: String,
    /// Path under `cuda/`.
    pub source: String,
    /// What it does to numbers, in words.
    pub knobs: String,
    /// Chips; empty: all.
    #[serde(default)]
    pub arches: Vec<String>,
    /// Macros.
    #[serde(default)]
    pub defines: BTreeMap<String, Define>,
    /// Golden arithmetic: nothing is fused that the source does not fuse, and no instruction approximates.
    #[serde(default)]
    pub golden: bool,
    /// The part of the suite that measures it, where it is not `kernels`: its evidence has a folder of its own.
    #[serde(default)]
    pub part: Option<String>,
    /// Kernels in it.
    pub entries: Vec<Entry>,
}

/// Value of a macro.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Define {
    /// A number.
    Number(i64),
    /// A word.
    Word(String),
}

/// One kernel of an image, and its budget.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name in the image.
    pub name: String,
    /// Threads a block.
    pub threads: u32,
    /// Dynamic shared memory, bytes.
    #[serde(default)]
    pub shared: u32,
    /// Most registers a thread.
    pub registers: u32,
    /// Must hold tensor-core instructions.
    #[serde(default)]
    pub mma: bool,
}

impl List {
    /// The list of this version.
    ///
    /// # Errors
    /// The committed file is broken: a test sees to it that it isn't.
    pub fn read() -> Result<Self> {
        Self::parse(TEXT)
    }

    /// Parses a list.
    ///
    /// # Errors
    /// Unknown or missing keys, a name given twice, an unknown chip.
    pub fn parse(text: &str) -> Result<Self> {
        let list: Self =
            toml::from_str(text).map_err(|e| Error::input(format!("is no list of kernels: {e}")).at("kernels.toml"))?;
        if list.format != 1 {
            let error = Error::input("has another format").expected("format = 1").found(list.format);
            return Err(error.at("kernels.toml"));
        }
        for (i, image) in list.images.iter().enumerate() {
            let at = || format!("kernels.toml, image {}", image.name);
            if list.images[..i].iter().any(|other| other.name == image.name) {
                return Err(Error::input("is listed twice").at(at()));
            }
            if let Some(arch) = image.arches.iter().find(|a| !ARCHES.contains(&a.as_str())) {
                return Err(Error::input("names an unknown chip").expected(ARCHES.join(", ")).found(arch).at(at()));
            }
            for entry in &image.entries {
                for arch in image.arches() {
                    if entry.shared > shared_limit(arch) {
                        let error = Error::input(format!("{} wants more shared memory than {arch} has", entry.name));
                        return Err(error.expected(shared_limit(arch)).found(entry.shared).at(at()));
                    }
                }
            }
        }
        Ok(list)
    }

    /// An image by name.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn image(&self, name: &str) -> Result<&Image> {
        let found = self.images.iter().find(|image| image.name == name);
        found.ok_or_else(|| Error::input(format!("no kernel image is named `{name}`")).at("kernels.toml"))
    }
}

impl Image {
    /// Chips that it is built for.
    pub fn arches(&self) -> Vec<&str> {
        if self.arches.is_empty() { ARCHES.to_vec() } else { self.arches.iter().map(String::as_str).collect() }
    }

    /// A kernel by name.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn entry(&self, name: &str) -> Result<&Entry> {
        let found = self.entries.iter().find(|entry| entry.name == name);
        found.ok_or_else(|| Error::input(format!("kernel image {} has no `{name}`", self.name)))
    }

    /// What the compiler is told, without the chip: the same everywhere, so that it can be part of a key.
    pub fn options(&self) -> Vec<String> {
        let mut out: Vec<String> =
            ["--std=c++17", "-default-device", "--ptxas-options=-v"].iter().map(ToString::to_string).collect();
        if self.golden {
            out.push("--fmad=false".to_string());
        }
        out.extend(self.defines.iter().map(|(name, value)| match value {
            Define::Number(n) => format!("-D{name}={n}"),
            Define::Word(word) => format!("-D{name}={word}"),
        }));
        out
    }
}

#[cfg(test)]
mod tests;
