//! Writes a bundle under a temporary name beside its place and renames it when it is complete.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::schema::hex;
use crate::{Bundle, Error, Result, Row, SCHEMA_VERSION, Schema, Table, schema_hash};

/// Writes the bundle to `dir`. An older bundle there is replaced; anything else there is left alone and refused.
/// `run.format`, `run.schema` and `run.tables` are filled in here.
pub fn write(dir: &Path, bundle: &Bundle) -> Result<()> {
    let failed = |source| Error::Write { path: dir.to_path_buf(), source };
    let old = occupied(dir)?;
    let parent = match dir.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_path_buf(),
        _ => Path::new(".").to_path_buf(),
    };
    fs::create_dir_all(&parent).map_err(failed)?;
    let temporary = tempfile::Builder::new().prefix(".karat-partial-").tempdir_in(&parent).map_err(failed)?;
    fill(temporary.path(), bundle)?;
    if old {
        // The old bundle goes aside first: at no moment does `dir` hold a mixture of both.
        let aside = tempfile::Builder::new().prefix(".karat-old-").tempdir_in(&parent).map_err(failed)?;
        fs::rename(dir, aside.path().join("bundle")).map_err(failed)?;
    }
    // `keep` ends the clean-up: from here on the folder is ours by its final name.
    let whole = temporary.keep();
    fs::rename(&whole, dir).map_err(|source| {
        let _ = fs::remove_dir_all(&whole);
        failed(source)
    })
}

/// Whether an older bundle (or an empty folder) stands at the place.
fn occupied(dir: &Path) -> Result<bool> {
    let in_the_way = || Error::InTheWay { path: dir.to_path_buf() };
    if !dir.exists() {
        return Ok(false);
    }
    let mut entries = fs::read_dir(dir).map_err(|_| in_the_way())?;
    if entries.next().is_none() || crate::read::is_bundle(dir) { Ok(true) } else { Err(in_the_way()) }
}

fn fill(dir: &Path, bundle: &Bundle) -> Result<()> {
    let mut run = bundle.run.clone();
    run.format = crate::read::FORMAT.to_string();
    run.schema = Schema { version: SCHEMA_VERSION, hash: schema_hash() };
    run.tables.clear();
    let mut tables = [
        table(dir, &bundle.taps)?,
        table(dir, &bundle.derivations)?,
        table(dir, &bundle.tokens)?,
        table(dir, &bundle.flips)?,
        table(dir, &bundle.recall)?,
        table(dir, &bundle.patches)?,
        table(dir, &bundle.histories)?,
    ];
    for (name, info) in &mut tables {
        run.tables.insert((*name).to_string(), std::mem::take(info));
    }
    json(dir, "verdict.json", &bundle.verdict)?;
    json(dir, "run.json", &run)
}

fn table<R: Row>(dir: &Path, rows: &[R]) -> Result<(&'static str, Table)> {
    let path = dir.join(R::FILE);
    let bytes = to_csv(rows).map_err(|source| Error::Write { path: path.clone(), source })?;
    fs::write(&path, &bytes).map_err(|source| Error::Write { path, source })?;
    Ok((R::FILE, Table { rows: rows.len() as u64, sha256: hex(&Sha256::digest(&bytes)) }))
}

/// The csv file's bytes: header and rows, `\n` line ends.
pub(crate) fn to_csv<R: Row>(rows: &[R]) -> std::io::Result<Vec<u8>> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(R::COLUMNS.iter().map(|c| c.name))?;
    for row in rows {
        out.write_record(row.cells())?;
    }
    out.into_inner().map_err(csv::IntoInnerError::into_error)
}

fn json(dir: &Path, name: &str, value: &impl serde::Serialize) -> Result<()> {
    let path = dir.join(name);
    let write = || -> std::io::Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        fs::write(&path, text)
    };
    write().map_err(|source| Error::Write { path: path.clone(), source })
}
