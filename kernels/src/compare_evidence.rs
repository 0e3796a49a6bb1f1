//! What comparing two tensors on a GPU was seen to do: the diff engine's record, and how near to the rate at which the device reads.
//! One file a device under `evidence/compare/`.

use std::collections::BTreeMap;
use std::path::Path;

use karat_model::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::evidence::Place;
use crate::list::List;
use crate::source::digest;

/// The part of the suite, and the folder.
pub const PART: &str = "compare";
/// Largest error of a sum, over the sum of its terms' magnitudes: what `cuda/diff/compare.cu` says, and as much for the engine that
/// it is compared with.
pub const BOUND: f64 = 1e-13;
/// What of the read rate the comparison is to reach (told, not judged).
pub const GOAL: f64 = 0.75;

/// One run of the suite's part `compare`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareEvidence {
    /// 1.
    pub format: u32,
    /// Day of the run.
    pub date: String,
    /// Where it ran.
    pub device: Place,
    /// What the peers ran in: versions by name; empty where there were none.
    pub peers: BTreeMap<String, String>,
    /// The images and the digests of their sources, options and compiler.
    pub images: BTreeMap<String, String>,
    /// Bytes a second, in TB/s, at which the device read both tensors and did nothing with them: the best of some numbers of blocks.
    pub read_tb_s: f64,
    /// By image and types.
    pub correctness: Vec<SameRecord>,
    /// By image and types.
    pub speed: Vec<CompareSpeed>,
}

/// Records of an image for two types.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameRecord {
    /// Image.
    pub image: String,
    /// `x/y`.
    pub types: String,
    /// Seeds, each with its own length, offsets and contents.
    pub cases: u32,
    /// Pairs of all of them.
    pub pairs: u64,
    /// Cases in which a count, an extreme or a place is not that of the diff engine.
    pub differing: u64,
    /// Cases in which other offsets or another number of blocks gave other bits.
    pub unsteady: u64,
    /// Largest error of a sum against the diff engine and against the naive counterpart, over the sum of its terms' magnitudes.
    pub worst: f64,
    /// The case of it.
    pub worst_case: String,
}

/// Speed of an image for two types.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareSpeed {
    /// Image.
    pub image: String,
    /// `x/y`.
    pub types: String,
    /// Pairs.
    pub pairs: u64,
    /// Bytes of both tensors.
    pub bytes: u64,
    /// Elements before the first, of either: 0 unless it was measured where loads are not aligned.
    pub offset: u64,
    /// Microseconds, median of graph replays, before the peers and after them.
    pub us: [f64; 2],
    /// Bytes over the mean time, TB/s.
    pub tb_s: f64,
    /// The same over the read rate of the run.
    pub of_read: f64,
    /// Microseconds of the naive counterpart; none where it wasn't timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naive_us: Option<f64>,
    /// Microseconds of peers by name.
    pub peers: BTreeMap<String, f64>,
}

/// Digests of the images that this part measures.
///
/// # Errors
/// The committed list is broken.
pub fn digests() -> Result<BTreeMap<String, String>> {
    let list = List::read()?;
    let of_part = list.images.iter().filter(|image| image.part.as_deref() == Some(PART));
    of_part.map(|image| Ok((image.name.clone(), digest(image, &list.compiler)?))).collect()
}

impl CompareEvidence {
    /// Reads a file.
    ///
    /// # Errors
    /// Unreadable, or no evidence of this format.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::input(format!("evidence cannot be read: {e}")).at(path.display()))?;
        Self::parse(&text).map_err(|e| e.at(path.display()))
    }

    /// Parses a file's text.
    ///
    /// # Errors
    /// It is no evidence of this format.
    pub fn parse(text: &str) -> Result<Self> {
        let it: Self =
            serde_json::from_str(text).map_err(|e| Error::input(format!("is no evidence on comparing: {e}")))?;
        if it.format != 1 {
            return Err(Error::input("is evidence on comparing of another format").expected(1).found(it.format));
        }
        Ok(it)
    }

    /// Everything that keeps it from saying that the comparison is right there. How fast it is is told, not judged.
    ///
    /// # Errors
    /// The committed list is broken.
    pub fn faults(&self) -> Result<Vec<String>> {
        let mut out = Vec::new();
        for (name, wanted) in digests()? {
            if self.images.get(&name) != Some(&wanted) {
                out.push(format!("{name}: its source, options or compiler changed since the run"));
            }
            // The naive counterpart is compared as well: every row of another image holds it.
            let measured =
                self.correctness.iter().any(|it| it.image == name) && self.speed.iter().any(|it| it.image == name);
            if !name.starts_with("naive") && !measured {
                out.push(format!("{name}: nothing says that it is right, or how fast"));
            }
        }
        for it in &self.correctness {
            let at = format!("{} {}", it.image, it.types);
            if it.cases == 0 || it.differing + it.unsteady > 0 {
                let (n, apart, unsteady) = (it.cases, it.differing, it.unsteady);
                out.push(format!("{at}: of {n} cases {apart} differ and {unsteady} depend on more than the values"));
            }
            // A NaN holds no bound.
            if it.worst.is_nan() || it.worst > BOUND {
                out.push(format!("{at}: error {:.1e} over {BOUND:.1e} in {}", it.worst, it.worst_case));
            }
        }
        if self.read_tb_s.is_nan() || self.read_tb_s <= 0.0 {
            out.push("the read rate was not measured".to_string());
        }
        Ok(out)
    }

    /// One row a measurement, in words.
    pub fn said(&self) -> String {
        let rows = self.speed.iter().map(|it| {
            let odd = if it.offset > 0 { ", not aligned" } else { "" };
            format!("; {} {}{odd}: {:.1} % of the read rate", it.image, it.types, 100.0 * it.of_read)
        });
        let cases: u32 = self.correctness.iter().map(|it| it.cases).sum();
        let (name, date) = (&self.device.name, &self.date);
        format!("comparing on {name} of {date}: {cases} records right{}", rows.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_of_other_sources_or_with_a_wrong_record_is_refused() {
        let images = digests().unwrap();
        let of = |image: &String| SameRecord {
            image: image.clone(),
            types: "f32/f32".into(),
            cases: 20,
            pairs: 9,
            differing: 0,
            unsteady: 0,
            worst: 1e-15,
            worst_case: "seed 3".into(),
        };
        let fast = |image: &String| CompareSpeed {
            image: image.clone(),
            types: "f32/f32".into(),
            pairs: 9,
            bytes: 72,
            offset: 0,
            us: [1.0; 2],
            tb_s: 3.0,
            of_read: 0.8,
            naive_us: None,
            peers: BTreeMap::new(),
        };
        let good = CompareEvidence {
            format: 1,
            date: "2026-12-01".into(),
            device: Place { name: "a GPU".into(), arch: "sm_90a".into(), driver: 13_000, processors: 1 },
            peers: BTreeMap::new(),
            correctness: images.keys().map(of).collect(),
            speed: images.keys().map(fast).collect(),
            images,
            read_tb_s: 4.0,
        };
        assert!(good.images.len() >= 2 && good.images.contains_key("naive-compare"));
        assert_eq!(good.faults().unwrap(), Vec::<String>::new());
        let again = CompareEvidence::parse(&serde_json::to_string(&good).unwrap()).unwrap();
        assert!(again.said().contains("compare f32/f32: 80.0 % of the read rate"), "{}", again.said());
        type Break = fn(&mut CompareEvidence);
        let broken: [(Break, &str); 7] = [
            (|it| it.images.clear(), "changed since the run"),
            (|it| it.correctness[0].differing = 1, "1 differ"),
            (|it| it.correctness[0].unsteady = 2, "2 depend on more"),
            (|it| it.correctness[0].worst = 1e-9, "error 1.0e-9"),
            (|it| it.correctness[0].worst = f64::NAN, "error NaN"),
            (|it| it.speed.clear(), "how fast"),
            (|it| it.read_tb_s = 0.0, "read rate was not measured"),
        ];
        for (change, said) in broken {
            let mut it = good.clone();
            change(&mut it);
            assert!(it.faults().unwrap().iter().any(|fault| fault.contains(said)), "{said}");
        }
    }
}
