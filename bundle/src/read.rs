//! Reads a bundle, or says why it is none.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::schema::hex;
use crate::{Bundle, Error, Result, Row, Run, SCHEMA_VERSION, schema_hash};

pub(crate) const FORMAT: &str = "karat-bundle/1";

const AGAIN: &str = "run the audit again with --out";

/// True when the folder's run.json says that it belongs to a bundle.
pub(crate) fn is_bundle(dir: &Path) -> bool {
    #[derive(serde::Deserialize)]
    struct Head {
        format: String,
    }
    let Ok(bytes) = fs::read(dir.join("run.json")) else { return false };
    serde_json::from_slice::<Head>(&bytes).is_ok_and(|h| h.format.starts_with("karat-bundle/"))
}

/// Reads the bundle in `dir`. A missing, cut or edited file is an error: half a bundle is never read.
pub fn read(dir: &Path) -> Result<Bundle> {
    if !dir.is_dir() {
        return Err(not_whole(dir, "there is no such folder", "name the folder that --out wrote"));
    }
    let hidden = dir.file_name().is_some_and(|n| n.to_string_lossy().starts_with(".karat-partial-"));
    if hidden || !dir.join("run.json").exists() {
        return Err(not_whole(dir, "not a complete bundle: it has no run.json", AGAIN));
    }
    let run: Run = json(&dir.join("run.json"))?;
    if run.format != FORMAT || run.schema.version != SCHEMA_VERSION || run.schema.hash != schema_hash() {
        let found = format!("{}, schema {} {}", run.format, run.schema.version, short(&run.schema.hash));
        let expected = format!("{FORMAT}, schema {SCHEMA_VERSION} {}", short(&schema_hash()));
        let why = format!("expected {expected}, found {found}");
        return Err(not_whole(&dir.join("run.json"), &why, "read it with the version of karat that wrote it"));
    }
    Ok(Bundle {
        verdict: json(&dir.join("verdict.json"))?,
        taps: table(dir, &run)?,
        derivations: table(dir, &run)?,
        tokens: table(dir, &run)?,
        flips: table(dir, &run)?,
        recall: table(dir, &run)?,
        patches: table(dir, &run)?,
        histories: table(dir, &run)?,
        run,
    })
}

fn not_whole(path: &Path, why: &str, hint: &str) -> Error {
    Error::NotWhole { path: path.to_path_buf(), why: why.to_string(), hint: hint.to_string() }
}

fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })
}

fn json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    serde_json::from_slice(&bytes(path)?).map_err(|e| not_whole(path, &format!("not what karat writes: {e}"), AGAIN))
}

fn table<R: Row>(dir: &Path, run: &Run) -> Result<Vec<R>> {
    let path = dir.join(R::FILE);
    let bytes = bytes(&path)?;
    let rows = read_table(&path, &bytes)?;
    let Some(info) = run.tables.get(R::FILE) else {
        return Err(not_whole(&path, "run.json does not list this file", AGAIN));
    };
    if info.rows != rows.len() as u64 {
        let why = format!("run.json says {} rows, the file has {}", info.rows, rows.len());
        return Err(not_whole(&path, &why, AGAIN));
    }
    if info.sha256 != hex(&Sha256::digest(&bytes)) {
        return Err(not_whole(&path, "the file was changed after it was written (sha256 differs)", AGAIN));
    }
    Ok(rows)
}

/// Reads one csv table from its bytes; `path` is for messages.
pub fn read_table<R: Row>(path: &Path, bytes: &[u8]) -> Result<Vec<R>> {
    let bad = |line: u64, why: String| Error::Table { path: path.to_path_buf(), line, why };
    let names: Vec<&str> = R::COLUMNS.iter().map(|c| c.name).collect();
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
    let mut records = reader.records();
    let header = match records.next() {
        None => return Err(bad(1, "the file is empty, expected a header".to_string())),
        Some(Err(e)) => return Err(bad(1, e.to_string())),
        Some(Ok(record)) => record,
    };
    if let Some((i, name)) = names.iter().enumerate().find(|(i, n)| header.get(*i) != Some(**n)) {
        let found = header.get(i).map_or("nothing".to_string(), |f| format!("`{f}`"));
        return Err(bad(1, format!("column {}: expected `{name}`, found {found}", i + 1)));
    }
    if header.len() != names.len() {
        return Err(bad(1, format!("expected {} columns, found {}", names.len(), header.len())));
    }
    let mut rows = Vec::new();
    for record in records {
        let record = record.map_err(|e| bad(e.position().map_or(0, csv::Position::line), e.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != names.len() {
            return Err(bad(line, format!("expected {} cells, found {}: cut short?", names.len(), record.len())));
        }
        let cells: Vec<&str> = record.iter().collect();
        let row = R::from_cells(&cells)
            .map_err(|b| bad(line, format!("column `{}`: expected a {}, found `{}`", b.column, b.expected, b.found)))?;
        rows.push(row);
    }
    Ok(rows)
}
