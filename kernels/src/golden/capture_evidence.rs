//! What capturing on a GPU was seen to do: the same lines and bytes as on the CPU, and what it cost. One file a device under
//! `evidence/capture/`.

use std::collections::BTreeMap;
use std::path::Path;

use karat_model::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{SameFile, digests, sketch_digest};
use crate::evidence::Place;
use crate::list::SKETCH;
use crate::source::changed;

/// One run of the suite's part `capture`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureEvidence {
    /// 1.
    pub format: u32,
    /// Day of the run.
    pub date: String,
    /// Where it ran.
    pub device: Place,
    /// Golden's images and that of sketches, and the digests of their sources, options and compiler.
    pub images: BTreeMap<String, String>,
    /// Model, and hash of its weights.
    pub model: String,
    /// Tokens of the compared runs.
    pub tokens: u64,
    /// Files of a sketched run on the GPU against the CPU's.
    pub sketches: Vec<SameWords>,
    /// Rows of that run whose line was computed on the GPU.
    pub rows_there: u64,
    /// Files of a whole trace from the GPU against the CPU's.
    pub traces: Vec<SameFile>,
    /// What capturing cost.
    pub costs: Vec<Cost>,
    /// What looking and sketching cost, and where sketching's time goes.
    #[serde(default)]
    pub looks: Vec<Look>,
    /// Bytes of the dump of the largest prefill, and rates of this run in bytes a second: writing as many to the same disk, and
    /// copying from the device as golden copies.
    pub dump: Dump,
}

/// A file of two runs, word by word.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameWords {
    /// Name.
    pub file: String,
    /// Words of four bytes behind its header.
    pub words: u64,
    /// Those that differ, or all if the headers do.
    pub differing: u64,
}

/// Seconds of the same work without capture, with sketches, and with a whole dump, in turns.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// `prefill of N tokens` or `decode step behind N tokens`.
    pub what: String,
    /// Of each round or step: off, sketch, dump.
    pub seconds: Vec<[f64; 3]>,
    /// Median over rounds of sketch / off.
    pub sketch: f64,
    /// Median over rounds of dump / off.
    pub dump: f64,
}

/// Seconds of the same work without capture, with a visitor that reads every tap and keeps nothing, and with sketches, in turns.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// As for [`Cost`]; `layer of released shapes, ...` where the model is one.
    pub what: String,
    /// Of each round: off, looked, sketch.
    pub seconds: Vec<[f64; 3]>,
    /// Median over rounds of looked / off.
    pub looked: f64,
    /// Median over rounds of sketch / off.
    pub sketch: f64,
    /// Further runs with sketches, whose parts were timed.
    pub phases: Vec<Phases>,
}

/// Where a sketched run's time goes: seconds of the thread that computes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// All of the run, with everything that is written.
    pub whole: f64,
    /// In the writer: what also lies on the device, what lies there alone, and what is here.
    pub notes: [f64; 3],
    /// How often each.
    pub visits: [u64; 3],
    /// Beginning sketches before memory is written over, and waiting for them there.
    pub begun: f64,
    /// How often.
    pub times: u64,
    /// After the last op, until the last file is written.
    pub end: f64,
}

/// A dump beside the disk and the device.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dump {
    /// Bytes of the dump.
    pub bytes: u64,
    /// Median seconds of the run with it, and of the run without.
    pub seconds: [f64; 2],
    /// Bytes a second of as many bytes to the same disk, in blocks of 1 MiB; median.
    pub raw_write: f64,
    /// Bytes a second from the device, pageable memory; median.
    pub raw_copy: f64,
}

/// The middle one.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Cost {
    /// Of these rounds.
    pub fn new(what: String, seconds: Vec<[f64; 3]>) -> Self {
        let ratio = |i: usize| median(seconds.iter().map(|it| it[i] / it[0]));
        let (sketch, dump) = (ratio(1), ratio(2));
        Self { what, seconds, sketch, dump }
    }
}

impl Look {
    /// Of these rounds.
    pub fn new(what: String, seconds: Vec<[f64; 3]>, phases: Vec<Phases>) -> Self {
        let ratio = |i: usize| median(seconds.iter().map(|it| it[i] / it[0]));
        let (looked, sketch) = (ratio(1), ratio(2));
        Self { what, seconds, looked, sketch, phases }
    }
}

impl CaptureEvidence {
    /// Parses a file's text.
    ///
    /// # Errors
    /// It is no evidence of this format.
    pub fn parse(text: &str) -> Result<Self> {
        let it: Self =
            serde_json::from_str(text).map_err(|e| Error::input(format!("is no evidence on capturing: {e}")))?;
        if it.format != 1 {
            return Err(Error::input("is evidence on capturing of another format").expected(1).found(it.format));
        }
        Ok(it)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Unreadable, or no evidence of this format.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::input(format!("evidence cannot be read: {e}")).at(path.display()))?;
        Self::parse(&text).map_err(|e| e.at(path.display()))
    }

    /// Words of sketches that were compared.
    pub fn words(&self) -> u64 {
        self.sketches.iter().map(|it| it.words).sum()
    }

    /// Everything that keeps it from saying that capturing gives the same there. What it cost is told, not judged.
    ///
    /// # Errors
    /// The committed list is broken.
    pub fn faults(&self) -> Result<Vec<String>> {
        let mut now = digests()?;
        now.insert(SKETCH.to_string(), sketch_digest()?);
        let mut out = changed(&self.images, &now, |name| name == SKETCH);
        if self.words() == 0 || self.rows_there == 0 || self.traces.is_empty() {
            out.push("nothing was captured on the device".to_string());
        }
        for it in self.sketches.iter().filter(|it| it.differing > 0) {
            out.push(format!("sketches: {}: {} of {} words differ", it.file, it.differing, it.words));
        }
        out.extend(self.traces.iter().filter(|it| !it.same).map(|it| format!("traces: {} differs", it.file)));
        if self.costs.iter().any(|it| it.seconds.len() < 9) {
            out.push("fewer than nine rounds were timed".to_string());
        }
        if self.looks.iter().any(|it| it.seconds.len() < 5) {
            out.push("fewer than five rounds of looking were timed".to_string());
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_of_other_sources_or_with_a_word_that_differs_is_refused() {
        let mut images = digests().unwrap();
        images.insert(SKETCH.to_string(), sketch_digest().unwrap());
        let place = Place { name: "a GPU".into(), arch: "sm_90a".into(), driver: 13_000, processors: 1 };
        let good = CaptureEvidence {
            format: 1,
            date: "2026-12-01".into(),
            device: place,
            images,
            model: "m".into(),
            tokens: 4,
            sketches: vec![SameWords { file: "a".into(), words: 8, differing: 0 }],
            rows_there: 2,
            traces: vec![SameFile { file: "a".into(), bytes: 3, same: true }],
            costs: vec![Cost::new("prefill".into(), vec![[2.0, 3.0, 5.0]; 9])],
            looks: vec![Look::new("layer".into(), vec![[2.0, 2.5, 3.0]; 5], vec![Phases::default()])],
            dump: Dump::default(),
        };
        assert!(good.faults().unwrap().is_empty());
        assert_eq!((good.costs[0].sketch, good.costs[0].dump), (1.5, 2.5));
        assert_eq!((good.looks[0].looked, good.looks[0].sketch), (1.25, 1.5));
        let again = CaptureEvidence::parse(&serde_json::to_string(&good).unwrap()).unwrap();
        assert_eq!(again.words(), 8);
        type Break = fn(&mut CaptureEvidence);
        let broken: [(Break, &str); 6] = [
            (|it| it.images.clear(), "changed since the run"),
            (|it| it.sketches[0].differing = 1, "1 of 8 words differ"),
            (|it| it.traces[0].same = false, "traces: a differs"),
            (|it| it.rows_there = 0, "nothing was captured"),
            (|it| it.costs[0].seconds.truncate(8), "fewer than nine rounds"),
            (|it| it.looks[0].seconds.truncate(4), "fewer than five rounds"),
        ];
        for (change, said) in broken {
            let mut it = good.clone();
            change(&mut it);
            assert!(it.faults().unwrap().iter().any(|fault| fault.contains(said)), "{said}");
        }
    }
}
