//! Golden's kernels compiled for this processor by its C++ compiler, where there is one: the same sources, run thread by thread.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use karat_model::{Error, Result};
use libloading::Library;

use super::super::run::{Args, Found, Runner, Values};
use crate::source::sources;

const HEADER: &str = include_str!("host.h");

/// Kernels of this process. One launch at a time.
#[derive(Debug)]
pub(super) struct Host {
    library: Library,
    one: Mutex<()>,
    /// Launches that wait until somebody waits for them: a device as slow as it may be.
    queue: Option<Mutex<Vec<(&'static str, usize, Args)>>>,
    /// Launches by kernel, and bytes that were copied in and out.
    pub(super) counted: Arc<Mutex<Counted>>,
    /// Memories that were made.
    pub(super) allocs: Arc<AtomicUsize>,
}

/// What a runner was asked to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Counted {
    pub(super) launches: BTreeMap<&'static str, usize>,
    pub(super) writes: (usize, usize),
    pub(super) reads: (usize, usize),
}

/// Memory of this process: 8-byte words, so that every type is aligned.
#[derive(Debug)]
pub(super) struct Words(Mutex<Vec<u64>>, u64, usize);

impl Host {
    /// Compiles the kernels into `folder`; none without a C++ compiler.
    pub(super) fn compile(folder: &Path, contract: &str) -> Option<Self> {
        if !Command::new("g++").arg("--version").output().is_ok_and(|out| out.status.success()) {
            return None;
        }
        // All sources in one file, the common header once: one run of the compiler.
        let mut text = HEADER.to_string();
        let golden = sources().filter(|(path, _)| path.starts_with("reference/golden"));
        for line in golden.flat_map(|(_, source)| source.lines()).filter(|l| !l.starts_with("#include")) {
            if line != "#pragma once" {
                text.push_str(line);
                text.push('\n');
            }
        }
        let (file, library) = (folder.join("golden.cpp"), folder.join("golden.so"));
        std::fs::write(&file, text).unwrap();
        let contract = format!("-ffp-contract={contract}");
        let options = ["-std=c++17", "-O2", "-mfma", contract.as_str(), "-fPIC", "-shared", "-w", "-o"];
        let out = Command::new("g++").args(options).arg(&library).arg(&file).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Some(Self::again(folder))
    }

    /// One more that runs what was compiled into `folder`.
    pub(super) fn again(folder: &Path) -> Self {
        // SAFETY: compiled from our own source; it has no initialisers.
        let library = unsafe { Library::new(folder.join("golden.so")) }.unwrap();
        Self { library, one: Mutex::new(()), queue: None, counted: Arc::default(), allocs: Arc::default() }
    }

    /// The same where kernels run at the latest moment.
    pub(super) fn late(self) -> Self {
        Self { queue: Some(Mutex::default()), ..self }
    }

    fn perform(&self, kernel: &'static str, threads: usize, args: Args) -> Result<()> {
        type Kernel = unsafe extern "C" fn(Args);
        type Set = unsafe extern "C" fn(u32, u32, u32);
        let missing = || Error::input(format!("no kernel {kernel}"));
        let _one = self.one.lock().unwrap();
        if kernel == "golden_split_product" {
            // SAFETY: what whoever launched it promised.
            unsafe { super::split::emulate(args) };
            return Ok(());
        }
        // SAFETY: the symbols have these types in golden's sources and in the header.
        let found = unsafe {
            let run = self.library.get::<Kernel>(kernel.as_bytes()).ok();
            run.zip(self.library.get::<Set>(b"karat_set").ok())
        };
        let (run, set) = found.ok_or_else(missing)?;
        const WIDTH: usize = 256;
        for block in 0..threads.div_ceil(WIDTH) {
            for thread in 0..WIDTH {
                // SAFETY: what whoever launched it promised, for every thread of the grid.
                unsafe {
                    set(block as u32, WIDTH as u32, thread as u32);
                    run(args);
                }
            }
        }
        Ok(())
    }
}

impl Runner for Host {
    type Memory = Words;

    fn name(&self) -> String {
        "this processor, thread by thread".to_string()
    }

    fn identity(&self) -> String {
        "host".to_string()
    }

    fn sketches(&self) -> bool {
        true
    }

    fn alloc(&self, bytes: usize) -> Result<Words> {
        self.allocs.fetch_add(1, Ordering::Relaxed);
        let mut words = vec![u64::MAX; bytes.div_ceil(8) + 1];
        let at = words.as_mut_ptr() as u64;
        Ok(Words(Mutex::new(words), at, bytes))
    }

    fn at(&self, memory: &Words) -> u64 {
        memory.1
    }

    fn write(&self, memory: &Words, offset: usize, values: Values<'_>) -> Result<()> {
        let bytes: Vec<u8> = match values {
            Values::F32(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Values::U32(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Values::U8(values) => values.to_vec(),
        };
        assert!(offset + bytes.len() <= memory.2, "write past the end");
        let count = &mut self.counted.lock().unwrap().writes;
        *count = (count.0 + 1, count.1 + bytes.len());
        let _held = memory.0.lock().unwrap();
        // SAFETY: within the memory, as just checked.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (memory.1 as usize + offset) as *mut u8, bytes.len()) };
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        let late = self.queue.iter().flat_map(|queue| std::mem::take(&mut *queue.lock().unwrap()));
        late.into_iter().try_for_each(|(kernel, threads, args)| self.perform(kernel, threads, args))
    }

    fn read(&self, memory: &Words, offset: usize, found: &mut Found) -> Result<()> {
        self.settle()?;
        let (to, bytes) = match found {
            Found::F32(v) => (v.as_mut_ptr().cast::<u8>(), 4 * v.len()),
            Found::U32(v) => (v.as_mut_ptr().cast(), 4 * v.len()),
            Found::U8(v) => (v.as_mut_ptr(), v.len()),
        };
        assert!(offset + bytes <= memory.2, "read past the end");
        let count = &mut self.counted.lock().unwrap().reads;
        *count = (count.0 + 1, count.1 + bytes);
        let _held = memory.0.lock().unwrap();
        // SAFETY: within the memory, as just checked; any bits are a value.
        unsafe { std::ptr::copy_nonoverlapping((memory.1 as usize + offset) as *const u8, to, bytes) };
        Ok(())
    }

    unsafe fn launch(&self, kernel: &'static str, threads: usize, args: Args) -> Result<()> {
        *self.counted.lock().unwrap().launches.entry(kernel).or_default() += 1;
        match &self.queue {
            Some(queue) => queue.lock().unwrap().push((kernel, threads, args)),
            None => self.perform(kernel, threads, args)?,
        }
        Ok(())
    }
}
