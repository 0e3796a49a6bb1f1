//! NVRTC: CUDA C++ to machine code for one chip, on any machine. It is loaded when first used.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::nvrtc::{result, sys};
use karat_model::{Error, Result};
use libloading::Library;

use crate::check::{Resources, resources};
use crate::list::Image;
use crate::source::expanded;

/// A compiler that was found.
#[derive(Debug, Clone)]
pub struct Nvrtc {
    /// `13.0`, as it says itself: the library tells no patch level.
    pub version: String,
}

/// A compiled image.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// Machine code in its ELF file.
    pub cubin: Vec<u8>,
    /// What the assembler reported.
    pub resources: Vec<Resources>,
}

/// The folders where the libraries may lie under a root: that of a toolkit, or of the unpacked wheels.
fn folders(root: &Path) -> [PathBuf; 3] {
    [root.join("nvidia/cu13/lib"), root.join("lib64"), root.join("lib")]
}

/// Loads both libraries by their whole paths and keeps them. NVRTC finds its built-in headers by name only, so they come first.
fn load_from(root: &Path) -> bool {
    static KEPT: OnceLock<Option<(Library, Library)>> = OnceLock::new();
    let load = || {
        let folder = folders(root).into_iter().find(|f| f.join("libnvrtc.so.13").exists())?;
        // SAFETY: NVIDIA's libraries; loading them runs their own initialisers only.
        let builtins = unsafe { Library::new(folder.join("libnvrtc-builtins.so.13.0")) }.ok()?;
        // SAFETY: as above.
        let nvrtc = unsafe { Library::new(folder.join("libnvrtc.so.13")) }.ok()?;
        Some((builtins, nvrtc))
    };
    KEPT.get_or_init(load).is_some()
}

impl Nvrtc {
    /// Looks for NVRTC under `root`, then where the system keeps libraries.
    ///
    /// # Errors
    /// There is none.
    pub fn find(root: Option<&Path>) -> Result<Self> {
        let there = root.is_some_and(load_from);
        // SAFETY: only tries to load libraries by name.
        if !there && !unsafe { sys::is_culib_present() } {
            let error = Error::input("the CUDA compiler NVRTC 13 was not found");
            return Err(error.hint("unpack the wheel nvidia-cuda-nvrtc==13.0.88 and set KARAT_CUDA_ROOT to the folder"));
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the library is there, and both pointers are valid for the call.
        let told = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
        told.result().map_err(|e| Error::input(format!("NVRTC does not tell its version: {e}")))?;
        Ok(Self { version: format!("{major}.{minor}") })
    }

    /// Compiles an image.
    ///
    /// # Errors
    /// The compiler refuses it: its log is in the message.
    pub fn compile(&self, image: &Image, arch: &str) -> Result<Compiled> {
        let text =
            |s: String| CString::new(s).map_err(|_| Error::input("a CUDA source holds a zero byte").at(&image.source));
        let (source, name) = (text(expanded(&image.source)?)?, text(image.source.clone())?);
        let at = format!("{} for {arch}", image.name);
        let failed = |what: &str, e: result::NvrtcError| Error::input(format!("{what}: {e}")).at(&at);
        let program = result::create_program(&source, Some(&name)).map_err(|e| failed("NVRTC failed", e))?;
        let mut options = image.options();
        options.push(format!("--gpu-architecture={arch}"));
        // SAFETY: the program was created above and is destroyed below.
        let done = unsafe { result::compile_program(program, &options) };
        // SAFETY: as above; the log exists whether it compiled or not.
        let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
        let log: Vec<u8> = log.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
        let log = String::from_utf8_lossy(&log).into_owned();
        let mut size = 0;
        let mut cubin = Vec::new();
        let taken = done.and_then(|()| {
            // SAFETY: the program compiled for a chip, so it has machine code; the buffer is as long as it says.
            unsafe {
                sys::nvrtcGetCUBINSize(program, &raw mut size).result()?;
                cubin.resize(size, 0_u8);
                sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast()).result()
            }
        });
        // SAFETY: created above, not used after this.
        unsafe { result::destroy_program(program) }.map_err(|e| failed("NVRTC failed", e))?;
        taken.map_err(|e| failed(&format!("does not compile: {}", log.trim()), e))?;
        Ok(Compiled { cubin, resources: resources(&log) })
    }
}
