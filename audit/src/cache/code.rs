//! Which program this is. Results of another build are never taken: a version number is easily forgotten, the program's
//! own bytes are not.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::Hash;

/// sha256 of the running program; `None` when it cannot be read.
pub(super) fn of_this_program() -> Option<Hash> {
    static CODE: OnceLock<Option<Hash>> = OnceLock::new();
    *CODE.get_or_init(hash)
}

fn hash() -> Option<Hash> {
    // On Linux this is the program that runs, even when its file was replaced since it started.
    let running = File::open("/proc/self/exe");
    let mut file = running.or_else(|_| std::env::current_exe().and_then(File::open)).ok()?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(hash.finalize().into()),
            n => hash.update(&buffer[..n]),
        }
    }
}
