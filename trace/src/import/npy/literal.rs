//! The header's literal: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.

use karat_model::{Error, Result};

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) descr: String,
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<usize>,
}

/// Reads the literal. Errors: anything but these three keys, each once.
pub(super) fn read(text: &str) -> Result<Header> {
    let wrong = || {
        let found: String = text.chars().take(120).collect();
        let expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}";
        Error::input("header of the array isn't read").expected(expected).found(found.trim_end().to_string())
    };
    let body = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(wrong)?;
    let (mut descr, mut order, mut shape) = (None, None, None);
    let mut rest = body.trim_start();
    while !rest.is_empty() {
        let (key, after) = quoted(rest).ok_or_else(wrong)?;
        let value = after.trim_start().strip_prefix(':').ok_or_else(wrong)?.trim_start();
        let (known, after) = match key {
            "descr" => {
                let (text, after) = quoted(value).ok_or_else(wrong)?;
                (descr.replace(text.to_string()).is_none(), after)
            }
            "fortran_order" => match (value.strip_prefix("True"), value.strip_prefix("False")) {
                (Some(after), _) => (order.replace(true).is_none(), after),
                (_, Some(after)) => (order.replace(false).is_none(), after),
                _ => return Err(wrong()),
            },
            "shape" => {
                let (inner, after) = value.strip_prefix('(').and_then(|v| v.split_once(')')).ok_or_else(wrong)?;
                (shape.replace(extents(inner).ok_or_else(wrong)?).is_none(), after)
            }
            _ => return Err(wrong()),
        };
        if !known {
            return Err(wrong());
        }
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if after.is_empty() => after,
            None => return Err(wrong()),
        };
    }
    match (descr, order, shape) {
        (Some(descr), Some(fortran_order), Some(shape)) => Ok(Header { descr, fortran_order, shape }),
        _ => Err(wrong()),
    }
}

fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

fn extents(inner: &str) -> Option<Vec<usize>> {
    let inner = inner.trim();
    let inner = inner.strip_suffix(',').unwrap_or(inner);
    if inner.is_empty() {
        return Some(Vec::new());
    }
    // Python 2 wrote `3L`.
    inner.split(',').map(|n| n.trim().trim_end_matches('L').parse().ok()).collect()
}
