//! Weights on a device: panels that were decoded already are copied, stored ones travel as they are stored and become panels
//! there.

use std::sync::{Arc, Mutex, PoisonError};

use karat_model::{Error, Result};
use karat_reference::backend::{Code, Matrix, Source, StoredValues};

use super::ops::fit;
use super::run::{ALIGNED, Args, Desk, Found, Runner, Values};

/// Panels whose memory is left to the next ones: an expert has three of one size, and the experts of some threads are held.
const SPARE: usize = 24;
/// Panels that are larger go back to the device.
const LARGE: usize = 256 << 20;

/// Memory of weights that are done with, and of codes and scales on their way.
#[derive(Debug)]
pub(super) struct Weights<R: Runner> {
    /// With its bytes. Whoever holds the lock has the only codes on their way.
    coming: Mutex<Option<(R::Memory, usize)>>,
    /// With their bytes, the last one left at the end.
    spare: Mutex<Vec<(R::Memory, usize)>>,
}

impl<R: Runner> Default for Weights<R> {
    fn default() -> Self {
        Self { coming: Mutex::default(), spare: Mutex::default() }
    }
}

/// A weight's panels `[ceil(n/16)][k][16]`. Their memory is left to the next weight of their size.
#[derive(Debug)]
pub(super) struct Panels<R: Runner> {
    pub(super) at: u64,
    memory: Option<R::Memory>,
    bytes: usize,
    runner: Arc<R>,
    weights: Arc<Weights<R>>,
}

impl<R: Runner> Panels<R> {
    /// Copies them back.
    pub(super) fn read(&self, found: &mut Found) -> Result<()> {
        let memory = self.memory.as_ref().ok_or_else(|| Error::input("a weight's memory is gone"))?;
        self.runner.read(memory, 0, found)
    }

    /// Whether they lie on this device.
    pub(super) fn is_of(&self, runner: &Arc<R>) -> bool {
        Arc::ptr_eq(&self.runner, runner)
    }
}

impl<R: Runner> Drop for Panels<R> {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take().filter(|_| self.bytes <= LARGE) else { return };
        let mut spare = self.weights.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() == SPARE {
            spare.remove(0);
        }
        spare.push((memory, self.bytes));
    }
}

impl<R: Runner> Desk<R> {
    /// Copies or decodes a weight.
    pub(super) fn panels(&self, w: Matrix<'_>) -> Result<Panels<R>> {
        fit("linear", w.fits())?;
        let (runner, weights) = (self.runner.clone(), self.weights.clone());
        let bytes = w.n.div_ceil(16) * w.k * 64;
        let memory = weights.take(&*runner, bytes)?;
        let at = runner.at(&memory);
        match w.source {
            Source::Panels(panels) => {
                // Kernels of the weight that was here may not have ended.
                runner.settle()?;
                runner.write(&memory, 0, Values::F32(panels))?;
            }
            Source::Stored(stored) => weights.decode(&*runner, [w.n, w.k], &stored, at)?,
        }
        Ok(Panels { at, memory: Some(memory), bytes, runner, weights })
    }
}

impl<R: Runner> Weights<R> {
    /// Memory of this size: what another weight left, or fresh.
    fn take(&self, runner: &R, bytes: usize) -> Result<R::Memory> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(i) = spare.iter().rposition(|(_, have)| *have == bytes) {
            return Ok(spare.remove(i).0);
        }
        match runner.alloc(bytes) {
            // What is left of weights of other sizes may be what is missing.
            Err(_) if !spare.is_empty() => {
                spare.clear();
                runner.alloc(bytes)
            }
            done => done,
        }
    }

    /// Sends codes and scales, and decodes them into the panels at `to`, which are as long as `[n, k]` ask for.
    fn decode(&self, runner: &R, [n, k]: [usize; 2], it: &StoredValues<'_>, to: u64) -> Result<()> {
        let scales = it.scales.map_or(&[][..], |scales| scales.bytes);
        let first = it.codes.len().next_multiple_of(ALIGNED);
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        if coming.as_ref().is_none_or(|(_, have)| *have < first + scales.len()) {
            *coming = None;
            let bytes = (first + scales.len()).next_power_of_two();
            *coming = Some((runner.alloc(bytes)?, bytes));
        }
        let Some((memory, _)) = &*coming else { return Err(Error::input("the device gave no memory")) };
        // The weight before may still be decoded from there.
        runner.settle()?;
        runner.write(memory, 0, Values::U8(it.codes))?;
        runner.write(memory, first, Values::U8(scales))?;
        runner.settle()?;
        let start = runner.at(memory);
        let mut args = Args { p: [start, 0, to, 0, 0, 0, 0, 0], ..Args::default() };
        let mut sizes = vec![n, k, number(it.code), 0, 1, 1, 0];
        if let Some(scales) = &it.scales {
            args.p[1] = start + first as u64;
            args.f[0] = f64::from(scales.all);
            sizes[3..].copy_from_slice(&[number(scales.code), scales.block[0], scales.block[1], scales.above]);
        }
        args.n.iter_mut().zip(&sizes).for_each(|(n, &v)| *n = v as i64);
        // SAFETY: codes and scales are as many as the sizes ask for, which `fits` has seen to; they and the panels are held, and
        // nothing is written over them before the kernel has ended.
        unsafe { runner.launch("golden_decode", n.div_ceil(16) * k * 16, args) }
    }
}

/// The number of a form in `cuda/reference/golden_decode.cu`.
fn number(code: Code) -> usize {
    match code {
        Code::F32 => 1,
        Code::Bf16 => 2,
        Code::E4m3 => 3,
        Code::E8m0 => 4,
        Code::E2m1 => 5,
    }
}
