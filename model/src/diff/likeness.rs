//! What a tensor that differs looks like: what a loader or a conversion would have had to do to the trusted one to get it.
//! Each answer is exact, by bytes or by codes; where none fits, gain and cosine say how near the two are.

use crate::checkpoint::{Checkpoint, Dtype, Encoding, Expected, RawTensor, Role, Weight};
use crate::formats::{bf16, decode_rows, e4m3, scale_at};

/// In words, with `a` as the trusted one; `None` where nothing fits.
pub(super) fn of(a: &Checkpoint, b: &Checkpoint, e: &Expected) -> Option<String> {
    if let Role::Linear(_) = e.role {
        let (x, y) = (a.linear(&e.name).ok()?, b.linear(&e.name).ok()?);
        return linear(a, e, &x, &y);
    }
    let (x, y) = (a.tensor(&e.name).ok()?, b.tensor(&e.name).ok()?);
    if y.bytes.iter().all(|b| *b == 0) {
        return Some("it was never written: all zero".to_string());
    }
    let others = peers(a, e).filter_map(|o| Some((a.tensor(&o.name).ok()?, o)));
    if let Some((_, other)) = others.filter(|(t, _)| t.dtype == y.dtype).find(|(t, _)| t.bytes == y.bytes) {
        return Some(format!("it is {}", other.name));
    }
    if e.role == Role::Ids { ids(&x, &y) } else { plain(&x, &y).map(str::to_string) }
}

/// Tensors that it may have been taken for: the same in other layers, and others of its layer, of the same shape.
fn peers<'a>(a: &'a Checkpoint, e: &'a Expected) -> impl Iterator<Item = &'a Expected> {
    let rest = |name: &str| name.splitn(3, '.').nth(2).map(str::to_string);
    let (own, own_rest) = (crate::verify::layer(&e.name), rest(&e.name));
    a.inventory().iter().filter(move |o| {
        let is_near = crate::verify::layer(&o.name) == own || rest(&o.name) == own_rest;
        o.name != e.name && o.shape == e.shape && is_near
    })
}

fn linear(a: &Checkpoint, e: &Expected, x: &Weight<'_>, y: &Weight<'_>) -> Option<String> {
    if x.encoding != y.encoding || x.data.dtype != y.data.dtype {
        return gain(x, y);
    }
    let scale_of = |w: &Weight<'_>| w.scale.as_ref().map_or(Vec::new(), |s| s.bytes.to_vec());
    let (sx, sy) = (scale_of(x), scale_of(y));
    let (same_codes, same_scales) = (x.data.bytes == y.data.bytes, sx == sy);
    if y.data.bytes.iter().all(|b| *b == 0) {
        return Some("it was never written: all codes are zero".to_string());
    }
    let others = || peers(a, e).filter_map(|o| Some((a.linear(&o.name).ok()?, o.name.as_str())));
    let found = match (same_codes, same_scales) {
        (true, false) => {
            let known = x.scale.as_ref().zip(y.scale.as_ref()).and_then(|(s, t)| scales(s, t));
            let taken =
                || others().find(|(o, _)| scale_of(o) == sy).map(|(_, name)| format!("its scales are those of {name}"));
            known.or_else(taken).or_else(|| permuted(&sx, &sy, "its scales are"))
        }
        (false, _) => {
            let whole = others().find(|(o, _)| o.data.bytes == y.data.bytes && scale_of(o) == sy);
            let codes = || others().find(|(o, _)| o.data.bytes == y.data.bytes);
            if let Some((_, name)) = whole {
                return Some(format!("it is {name}"));
            }
            if let Some((_, name)) = codes() {
                return Some(format!("its codes are those of {name}"));
            }
            let packed = || packed(x.data.bytes, y.data.bytes).map(str::to_string);
            let is_packed = x.data.dtype == Dtype::Packed4;
            is_packed
                .then(packed)
                .flatten()
                .or_else(|| plain(&x.data, &y.data).map(str::to_string))
                .or_else(|| permuted(x.data.bytes, y.data.bytes, "its codes are"))
        }
        // Only the global scale is left.
        (true, true) => None,
    };
    found.or_else(|| gain(x, y))
}

/// The same bytes in another order.
fn permuted(x: &[u8], y: &[u8], what: &str) -> Option<String> {
    let count = |bytes: &[u8]| {
        bytes.iter().fold([0usize; 256], |mut n, b| {
            n[usize::from(*b)] += 1;
            n
        })
    };
    (x.len() == y.len() && count(x) == count(y)).then(|| format!("{what} the same in another order"))
}

/// Whether `y` is `x` (elements of `size` bytes) with rows for columns.
fn is_transposed(x: &[u8], y: &[u8], shape: &[usize], size: usize) -> bool {
    let [rows, cols] = *shape else { return false };
    let element = |bytes: &'_ [u8], i: usize| -> Vec<u8> { bytes[i * size..(i + 1) * size].to_vec() };
    x.len() == y.len()
        && rows > 1
        && cols > 1
        && (0..rows * cols).all(|i| element(y, i) == element(x, i % rows * cols + i / rows))
}

fn size(dtype: Dtype) -> usize {
    match dtype {
        Dtype::F8E4M3 | Dtype::F8E8M0 | Dtype::Packed4 => 1,
        Dtype::Bf16 => 2,
        Dtype::F32 | Dtype::I32 => 4,
        Dtype::I64 => 8,
    }
}

fn scales(x: &RawTensor<'_>, y: &RawTensor<'_>) -> Option<String> {
    if x.dtype != y.dtype || x.bytes.len() != y.bytes.len() {
        return None;
    }
    if is_transposed(x.bytes, y.bytes, &x.shape, size(x.dtype)) {
        return Some("its scales are transposed".to_string());
    }
    let n = x.shape.iter().product::<usize>();
    let factor = |i: usize| f64::from(scale_at(y, i)) / f64::from(scale_at(x, i));
    if n > 0 && (1..n).all(|i| factor(i) == factor(0)) {
        return Some(format!("its scales are {} times as large", factor(0)));
    }
    let inverse = |i: usize| f64::from(scale_at(y, i)) * f64::from(scale_at(x, i));
    (n > 1 && (1..n).all(|i| inverse(i) == inverse(0))).then(|| "its scales are the inverse".to_string())
}

/// Packed codes in another order within bytes or blocks of 16 bytes.
fn packed(x: &[u8], y: &[u8]) -> Option<&'static str> {
    let code = |bytes: &[u8], i: usize| if i.is_multiple_of(2) { bytes[i / 2] & 15 } else { bytes[i / 2] >> 4 };
    let is = |order: fn(usize) -> usize| {
        let blocks = x.as_chunks::<16>().0.iter().zip(y.as_chunks::<16>().0);
        x.len() == y.len() && x.len().is_multiple_of(16) && blocks.clone().count() > 0 && {
            let mut blocks = blocks;
            blocks.all(|(x, y)| (0..32).all(|i| code(y, i) == code(x, order(i))))
        }
    };
    if is(|i| i ^ 1) {
        return Some("the two codes of every byte are exchanged");
    }
    // Column i was put at the low (i < 16) or high nibble of byte i mod 16, or the other way round.
    if is(|i| if i < 16 { 2 * i } else { 2 * (i - 16) + 1 }) || is(|i| if i % 2 == 0 { i / 2 } else { 16 + i / 2 }) {
        return Some("the codes of a block are in halves where pairs were, or the other way round");
    }
    None
}

/// Values of BF16 and F32 tensors, and codes of one byte.
fn plain(x: &RawTensor<'_>, y: &RawTensor<'_>) -> Option<&'static str> {
    if is_transposed(x.bytes, y.bytes, &x.shape, size(x.dtype)) && x.dtype == y.dtype {
        return Some("it is transposed");
    }
    if !matches!((x.dtype, y.dtype), (Dtype::F32 | Dtype::Bf16, Dtype::F32 | Dtype::Bf16)) {
        return None;
    }
    let n = x.shape.iter().product::<usize>();
    let every = |f: fn(f32) -> f32| (0..n).all(|i| f(scale_at(x, i)) == scale_at(y, i));
    if every(bf16::round) {
        return Some("it is rounded to BF16");
    }
    if every(|v| e4m3::decode(e4m3::encode(v))) {
        return Some("it is rounded to E4M3 without a scale");
    }
    every(|v| -v).then_some("its sign is the other one")
}

fn ids(x: &RawTensor<'_>, y: &RawTensor<'_>) -> Option<String> {
    let (x, y) = (x.ids(), y.ids());
    if x.len() != y.len() {
        return None;
    }
    let k = y.len();
    let moved = (1..k.min(17)).find(|by| x[..k - by] == y[*by..] || x[*by..] == y[..k - by]);
    if let Some(by) = moved {
        return Some(format!("it is moved by {by} ids"));
    }
    let sorted = |ids: &[i64]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    (sorted(&x) == sorted(&y)).then(|| "its ids are the same in another order".to_string())
}

/// How near two linears are, as one number each: by which factor, and in which direction.
fn gain(x: &Weight<'_>, y: &Weight<'_>) -> Option<String> {
    let (mut xx, mut yy, mut xy) = (0.0f64, 0.0f64, 0.0f64);
    let (mut row_x, mut row_y) = (vec![0.0; x.cols], vec![0.0; y.cols]);
    for r in 0..x.rows {
        decode_rows(x, r, &mut row_x);
        decode_rows(y, r, &mut row_y);
        for (a, b) in row_x.iter().zip(&row_y) {
            let (a, b) = (f64::from(*a), f64::from(*b));
            (xx, yy, xy) = (xx + a * a, yy + b * b, xy + a * b);
        }
    }
    let cosine = xy / (xx * yy).sqrt();
    let encodings = |w: &Weight<'_>| match w.encoding {
        Encoding::Plain => "plain",
        Encoding::Fp8Block { .. } => "FP8",
        Encoding::Mxfp4 => "MXFP4",
        Encoding::Nvfp4 => "NVFP4",
    };
    let conversion =
        if x.encoding == y.encoding { String::new() } else { format!("{} where {} was, ", encodings(y), encodings(x)) };
    cosine.is_finite().then(|| format!("{conversion}{:.3} times as large, cosine {cosine:.4}", (yy / xx).sqrt()))
}
