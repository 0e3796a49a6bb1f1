//! The streams between two blocks, where they don't all fit in memory: a bound on those that wait for their block. What is over
//! it waits in a temporary file that has no name any more, so that nothing is left of it however the run ends.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use karat_seam::{Data, Streams};

use crate::cache::{read_streams, write_streams};
use crate::{Error, Result};

/// A bound on the streams that are held between blocks.
#[derive(Debug)]
pub struct States {
    /// Bytes that may be held.
    limit: u64,
    /// Where files are made.
    dir: PathBuf,
    held: AtomicU64,
    spilled: AtomicU64,
    files: AtomicU64,
    /// Why a file could not be written: what should have been in it stayed in memory.
    trouble: Mutex<String>,
}

impl States {
    /// At most `limit` bytes are held, and files are made in the folder that the system has for such.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            dir: std::env::temp_dir(),
            held: AtomicU64::new(0),
            spilled: AtomicU64::new(0),
            files: AtomicU64::new(0),
            trouble: Mutex::default(),
        }
    }

    /// Bytes that were written to files so far.
    pub fn spilled(&self) -> u64 {
        self.spilled.load(Ordering::Relaxed)
    }

    /// A sentence about files that could not be written; none when all could.
    pub(crate) fn note(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        (!trouble.is_empty()).then(|| format!("streams between layers stayed in memory: {trouble}"))
    }

    fn write(&self, streams: &Streams) -> std::io::Result<Away> {
        let bytes = write_streams(streams);
        let n = self.files.fetch_add(1, Ordering::Relaxed);
        let path =
            self.dir.join(format!("karat-states-{}-{:x}-{n}", std::process::id(), std::ptr::from_ref(self).addr()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
        // While it is open its bytes stay; where an open file can't be deleted it goes with the value.
        let left = std::fs::remove_file(&path).err().map(|_| path);
        let away = |file| Away { file: Mutex::new(file), left };
        match file.write_all(&bytes) {
            Ok(()) => {
                self.spilled.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                Ok(away(file))
            }
            Err(e) => {
                drop(away(file));
                Err(e)
            }
        }
    }
}

/// Streams in a file.
#[derive(Debug)]
struct Away {
    file: Mutex<File>,
    left: Option<PathBuf>,
}

impl Away {
    fn read(&self) -> Result<Streams> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = Vec::new();
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
        let lost = |why: String| {
            Error::Machine(format!("streams between layers can't be read back from their temporary file: {why}"))
        };
        read.map_err(|e| lost(e.to_string()))?;
        read_streams(&bytes).ok_or_else(|| lost("it is not what was written".into()))
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        if let Some(path) = &self.left {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Streams in memory, counted where they wait for their block.
#[derive(Debug)]
struct Here {
    streams: Streams,
    counted: Option<(Arc<States>, u64)>,
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some((states, bytes)) = &self.counted {
            states.held.fetch_sub(*bytes, Ordering::Relaxed);
        }
    }
}

/// Streams, wherever they are.
#[derive(Debug, Clone)]
pub(crate) struct Kept(Place);

#[derive(Debug, Clone)]
enum Place {
    Here(Arc<Here>),
    There(Arc<Away>),
}

impl Kept {
    /// Streams that wait for their block; without a bound in memory.
    pub(crate) fn waiting(streams: Streams, states: Option<&Arc<States>>) -> Self {
        let Some(states) = states else { return Self::here(streams) };
        let width = match &streams.data.data {
            Data::F64(_) | Data::I64(_) => 8,
            Data::F32(_) => 4,
            Data::U8(_) => 1,
        };
        let bytes = (streams.data.rows() * streams.data.width() * width) as u64;
        if states.held.fetch_add(bytes, Ordering::Relaxed) + bytes > states.limit {
            match states.write(&streams) {
                Ok(away) => {
                    states.held.fetch_sub(bytes, Ordering::Relaxed);
                    return Self(Place::There(Arc::new(away)));
                }
                Err(e) => {
                    let mut trouble = states.trouble.lock().unwrap_or_else(PoisonError::into_inner);
                    *trouble = format!("{}: {e}", karat_model::Plain(&states.dir.display().to_string()));
                }
            }
        }
        Self(Place::Here(Arc::new(Here { streams, counted: Some((states.clone(), bytes)) })))
    }

    /// Streams that are needed now.
    pub(crate) fn here(streams: Streams) -> Self {
        Self(Place::Here(Arc::new(Here { streams, counted: None })))
    }

    /// Brings them into memory.
    pub(crate) fn bring(&mut self) -> Result<()> {
        if let Place::There(away) = &self.0 {
            *self = Self::here(away.read()?);
        }
        Ok(())
    }

    /// The values, when they are in memory.
    pub(crate) fn values(&self) -> Option<&Streams> {
        match &self.0 {
            Place::Here(here) => Some(&here.streams),
            Place::There(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use karat_seam::{RowId, Tensor};

    use super::*;

    fn streams(values: &[f32]) -> Streams {
        let rows: Vec<RowId> = (0..values.len() as u32 / 2).map(|pos| RowId::new(0, pos)).collect();
        Streams { data: Tensor::f32([rows.len(), 1, 2], values.to_vec()), rows: rows.into() }
    }

    /// Odd bits: NaN with a payload, infinities, a subnormal, the negative zero.
    #[test]
    fn what_is_over_the_bound_comes_back_bit_for_bit() {
        let odd = [f32::from_bits(0x7fc0_1234), f32::NEG_INFINITY, f32::from_bits(1), -0.0, 1.0 / 3.0, 6.0];
        let states = Arc::new(States::new(24));
        let first = Kept::waiting(streams(&odd), Some(&states));
        assert!(first.values().is_some() && states.spilled() == 0, "24 bytes fit in 24");
        let mut second = Kept::waiting(streams(&odd), Some(&states));
        assert!(second.values().is_none() && states.spilled() > 24);
        let copy = second.clone();
        second.bring().unwrap();
        let bits = |kept: &Kept| {
            let streams = kept.values().unwrap();
            let values = streams.data.as_f32("streams").unwrap();
            (streams.rows.to_vec(), values.iter().map(|v| v.to_bits()).collect::<Vec<u32>>())
        };
        assert_eq!(bits(&second), bits(&first));
        assert!(copy.values().is_none(), "a copy stays where it is");
        // What is gone leaves room.
        drop((first, second));
        assert!(Kept::waiting(streams(&odd), Some(&states)).values().is_some());
        let nowhere = States { dir: "/nowhere/at/all".into(), ..States::new(0) };
        let nowhere = Arc::new(nowhere);
        assert!(Kept::waiting(streams(&odd), Some(&nowhere)).values().is_some());
        assert!(nowhere.note().unwrap().contains("/nowhere/at/all"), "{:?}", nowhere.note());
    }
}
