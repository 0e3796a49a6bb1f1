//! Launcher of the probe: mma.sync on given operands.

use cudarc::driver::{CudaFunction, LaunchConfig};
use karat_model::Result;

use super::{Device, Loaded};
use crate::mma::{Form, Machine, Tiles};

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    steps: i32,
    tiles: i32,
}

/// A device's mma.sync, every form.
#[derive(Debug)]
pub struct MmaProbe<'a> {
    device: &'a Device,
    kernels: [(Form, CudaFunction); 3],
}

impl<'a> MmaProbe<'a> {
    /// Takes the kernels of the image `mma-probe`.
    ///
    /// # Errors
    /// It is another image.
    pub fn new(device: &'a Device, loaded: &Loaded) -> Result<Self> {
        let kernel = |form: Form| Ok((form, loaded.kernel(&format!("mma_probe_{}", form.name()))?.0));
        Ok(Self { device, kernels: [kernel(Form::Bf16)?, kernel(Form::F16)?, kernel(Form::E4m3)?] })
    }
}

/// Values as the kernel reads them, four bytes at a time.
fn words(form: Form, values: &[u16]) -> Vec<u32> {
    match form {
        Form::E4m3 => values.chunks(4).map(|v| v.iter().rev().fold(0, |w, v| w << 8 | u32::from(*v & 255))).collect(),
        _ => values.chunks(2).map(|v| v.iter().rev().fold(0, |w, v| w << 16 | u32::from(*v))).collect(),
    }
}

impl Machine for MmaProbe<'_> {
    fn run(&self, tiles: &Tiles) -> Result<Vec<u32>> {
        tiles.check()?;
        if tiles.is_empty() {
            return Ok(Vec::new());
        }
        let device = self.device;
        let (a, b) = (device.upload(&words(tiles.form, &tiles.a))?, device.upload(&words(tiles.form, &tiles.b))?);
        let (c, d) = (device.upload(&tiles.c)?, device.alloc(tiles.c.len() * 4, 0xff)?);
        let (steps, count) = (tiles.steps as i32, tiles.len() as i32);
        let args = Args { a: a.at(), b: b.at(), c: c.at(), d: d.at(), steps, tiles: count };
        let grid_dim = (tiles.len().div_ceil(4) as u32, 1, 1);
        let config = LaunchConfig { grid_dim, block_dim: (128, 1, 1), shared_mem_bytes: 0 };
        for (_, function) in self.kernels.iter().filter(|(form, _)| *form == tiles.form) {
            // SAFETY: Args is ProbeArgs; the sizes were checked against each other, and a word holds two values or four codes.
            unsafe { device.launch(function, config, args) }?;
        }
        let mut found: Vec<u32> = device.download(&d)?;
        found.truncate(tiles.c.len());
        Ok(found)
    }
}
