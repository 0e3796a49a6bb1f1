//! What a measurement was asked with, looked at before a GPU is: nobody waits for minutes to hear of a typo.

use std::path::{Path, PathBuf};

use karat_model::{Error, Result};

use crate::pack::Pack;

/// Files that a measurement takes and leaves.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Compiled kernels.
    pub pack: &'a Path,
    /// Script that answers for PyTorch.
    pub peers: Option<&'a Path>,
    /// File to write.
    pub out: Option<&'a Path>,
}

impl Asked<'_> {
    /// The pack, once all of it can be used.
    ///
    /// # Errors
    /// No pack, a script that is not there, a file that has no folder to lie in or is a folder: one message each.
    pub fn check(&self) -> Result<Pack> {
        if let Some(script) = self.peers.filter(|script| !script.is_file()) {
            let error = Error::input("the peers' script is not a file").at(script.display());
            return Err(error.expected("a Python script, such as kernels/peers/torch_peers.py of the sources"));
        }
        if let Some(out) = self.out {
            let folder =
                out.parent().filter(|p| !p.as_os_str().is_empty()).map_or(PathBuf::from("."), Path::to_path_buf);
            if out.is_dir() || !folder.is_dir() {
                let found = if out.is_dir() { "a folder" } else { "no such folder" };
                let error = Error::usage(format!("{}: what is measured can't be written there", out.display()));
                return Err(error.expected("a file in a folder that exists").found(found));
            }
        }
        Pack::open(self.pack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_told_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("peers.py"), "").unwrap();
        let (none, peers, fine) = (at("nowhere"), at("peers.py"), at("out.json"));
        let said = |asked: Asked<'_>| asked.check().unwrap_err().to_string();
        let whole = Asked { pack: &none, peers: Some(&peers), out: Some(&fine) };
        // With everything else in order it is the pack that is missed.
        assert!(said(whole).contains("nowhere"), "{}", said(whole));
        let script = said(Asked { peers: Some(&none), ..whole });
        assert!(script.contains("script is not a file") && script.contains("nowhere"), "{script}");
        let out = none.join("out.json");
        let message = said(Asked { out: Some(&out), ..whole });
        assert!(message.contains("no such folder") && message.contains("out.json"), "{message}");
        let message = said(Asked { out: Some(folder.path()), ..whole });
        assert!(message.contains("can't be written there") && message.contains("a folder"), "{message}");
        assert!(!fine.exists(), "nothing is written by looking");
    }

    #[test]
    fn a_bare_name_lies_in_the_folder_of_the_process() {
        let asked = Asked { pack: Path::new("no such pack"), peers: None, out: Some(Path::new("out.json")) };
        assert!(asked.check().unwrap_err().to_string().contains("no such pack"));
    }
}
