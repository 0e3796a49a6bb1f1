//! Folders of dumps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use karat_model::{Error, Result};

use super::names::Origin;
use super::{Contents, Format, read};

/// Deepest folder under the named one, and most files.
const MAX_DEPTH: usize = 6;
const MAX_FILES: usize = 200_000;

/// Files of known formats under a folder, sorted by path.
pub(crate) fn files(folder: &Path) -> Result<Vec<(PathBuf, Format)>> {
    let mut out = Vec::new();
    let mut open = vec![(folder.to_path_buf(), 0)];
    while let Some((at, depth)) = open.pop() {
        let fail = |e: std::io::Error| Error::input("folder can't be listed").at(at.display()).found(e);
        for entry in std::fs::read_dir(&at).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let path = entry.path();
            let kind = entry.file_type().map_err(fail)?;
            if kind.is_dir() {
                if depth + 1 > MAX_DEPTH {
                    return Err(Error::input("folders are nested too deep")
                        .at(path.display())
                        .expected(format!("at most {MAX_DEPTH}")));
                }
                open.push((path, depth + 1));
            } else if let Some(format) = Format::of(&path) {
                out.push((path, format));
            }
            if out.len() > MAX_FILES {
                return Err(Error::input("folder holds too many files")
                    .at(folder.display())
                    .expected(format!("at most {MAX_FILES}")));
            }
        }
    }
    out.sort();
    Ok(out)
}

/// Everything in a folder's files, under names that say which file (and for SGLang's dumps which step and rank).
///
/// A tensor that SGLang's dumper wrote again under the same tags gets `/call=1`, `/call=2`, ... in the order of its
/// counter. Errors: a broken file; two files whose tensors have one name.
pub(crate) fn contents(folder: &Path, files: &[(PathBuf, Format)]) -> Result<Contents> {
    let mut origins: Vec<(Origin, &PathBuf, Format)> = Vec::new();
    for (path, format) in files {
        let relative = path.strip_prefix(folder).unwrap_or(path);
        origins.push((Origin::of(relative), path, *format));
    }
    origins.sort_by(|a, b| (a.0.index, a.1).cmp(&(b.0.index, b.1)));
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    let mut out = Contents::default();
    for (origin, path, format) in origins {
        let one = read(path, format)?;
        for (inner, array) in one.arrays {
            let mut name = origin.name(&inner);
            let call = calls.entry(name.clone()).or_default();
            *call += 1;
            if *call > 1 {
                if origin.index == 0 {
                    return Err(Error::input("two files hold one tensor")
                        .at(format!("tensor {name}"))
                        .at(path.display()));
                }
                name = format!("{name}/call={}", *call - 1);
            }
            out.arrays.insert(name, array);
        }
        out.unread.extend(one.unread.into_iter().map(|(inner, why)| (origin.name(&inner), why)));
    }
    Ok(out)
}
