//! Whole passes of one path, without taps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use karat_seam::{Error as SeamError, Lane, NoTaps, Path, RowId, Streams, Tensor};

use crate::{Error, Result};

/// Rows and logits `[rows,V]`.
pub(crate) type Logits = (Arc<[RowId]>, Tensor);

/// A pass over all rows of the path's requests. `keep` gets the streams that enter each layer and, last, the head.
pub(crate) fn whole(path: &dyn Path, stop: &AtomicBool, keep: Option<&mut Vec<Streams>>) -> Result<Logits> {
    let x = path.embed(&mut NoTaps)?;
    from(path, 0, x, stop, keep)
}

/// The rest of a pass: layers `first..` and the head on streams that enter layer `first`.
pub(crate) fn from(
    path: &dyn Path,
    first: u16,
    mut x: Streams,
    stop: &AtomicBool,
    mut keep: Option<&mut Vec<Streams>>,
) -> Result<Logits> {
    for l in first..path.blocks().layers {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let layer = path.layer(l)?;
        let mut see = NoTaps;
        let mut lanes = [Lane::new(&x, &mut see)];
        layer.run(&mut lanes)?;
        let out = lanes[0].out.take().ok_or_else(|| missing(path, &format!("layers.{l}.out")))?;
        drop(lanes);
        let entered = std::mem::replace(&mut x, out.streams);
        if let Some(keep) = keep.as_deref_mut() {
            keep.push(entered);
        }
    }
    let logits = path.head(&mut [Lane::new(&x, &mut NoTaps)])?;
    let rows = x.rows.clone();
    if let Some(keep) = keep {
        keep.push(x);
    }
    let logits = logits.into_iter().next().ok_or_else(|| missing(path, "logits"))?;
    Ok((rows, logits))
}

fn missing(path: &dyn Path, what: &str) -> SeamError {
    SeamError::Unsupported { what: what.to_owned(), by: path.name() }
}
