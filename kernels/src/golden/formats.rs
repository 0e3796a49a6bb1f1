//! Every code of every form of stored weights: what a device decodes against golden's own decoder, bit by bit.

use std::ops::Range;
use std::sync::OnceLock;

use karat_model::checkpoint::{Dtype, Encoding, RawTensor, Weight};
use karat_model::{Error, Result};
use karat_reference::backend::{Kept, Matrix, Source};
use karat_reference::decode::Decoder;
use karat_seam::Tensor;

use super::Compared;
use super::run::{Desk, Found, Runner};

/// Rows and columns: whole panels and blocks, ragged ones, odd columns, one value, several panels.
const SIZES: [[usize; 2]; 6] = [[16, 256], [7, 1], [33, 160], [5, 131], [20, 512], [300, 390]];
/// Bytes of a test weight before its numbers repeat.
const BYTES: usize = 1 << 20;

/// Bytes of which each 256 in a row are all codes there are, every time in another order.
fn bytes() -> Vec<u8> {
    (0..BYTES).map(|i| (i * 167 + (i >> 8) * (2 * (i >> 16) + 31)) as u8).collect()
}

/// The forms: name, encoding, form of the codes, form of the scales.
fn forms() -> Vec<(&'static str, Encoding, Dtype, Option<Dtype>)> {
    let mut all = vec![
        ("bf16", Encoding::Plain, Dtype::Bf16, None),
        ("f32", Encoding::Plain, Dtype::F32, None),
        ("mxfp4", Encoding::Mxfp4, Dtype::Packed4, Some(Dtype::F8E8M0)),
        ("nvfp4", Encoding::Nvfp4, Dtype::Packed4, Some(Dtype::F8E4M3)),
    ];
    for block in [[128, 128], [2, 3], [16, 64]] {
        let encoding = Encoding::Fp8Block { block };
        all.push(("fp8, e8m0 scales", encoding, Dtype::F8E4M3, Some(Dtype::F8E8M0)));
        all.push(("fp8, bf16 scales", encoding, Dtype::F8E4M3, Some(Dtype::Bf16)));
        all.push(("fp8, f32 scales", encoding, Dtype::F8E4M3, Some(Dtype::F32)));
    }
    all
}

fn raw(dtype: Dtype, shape: [usize; 2], bytes: &[u8]) -> Result<RawTensor<'_>> {
    let [rows, columns] = shape;
    let n = match dtype {
        Dtype::F32 => 4 * rows * columns,
        Dtype::Bf16 => 2 * rows * columns,
        Dtype::Packed4 => rows * columns.div_ceil(2),
        _ => rows * columns,
    };
    let bytes = bytes.get(..n).ok_or_else(|| Error::input("a test weight is larger than its bytes"))?;
    Ok(RawTensor { name: "w".to_string(), dtype, shape: shape.to_vec(), bytes })
}

/// Compares all of them, whole and from a row on that no block begins with.
pub(super) fn formats<R: Runner>(desk: &Desk<R>, out: &mut Compared) -> Result<()> {
    let (bytes, all) = (bytes(), 0.15f32.to_le_bytes());
    for (name, encoding, dtype, scaled) in forms() {
        for [rows, cols] in SIZES {
            let block = match encoding {
                Encoding::Plain => [1, cols],
                Encoding::Fp8Block { block } => block,
                Encoding::Mxfp4 => [1, 32],
                Encoding::Nvfp4 => [1, 16],
            };
            // Scales begin elsewhere, so that a code meets another one in each block.
            let scales = [rows.div_ceil(block[0]), cols.div_ceil(block[1])];
            let scale = scaled.map(|dtype| raw(dtype, scales, &bytes[rows * 64..])).transpose()?;
            let global = RawTensor { name: "all".to_string(), dtype: Dtype::F32, shape: Vec::new(), bytes: &all };
            let weight = Weight {
                name: "w".to_string(),
                rows,
                cols,
                encoding,
                data: raw(dtype, [rows, cols], &bytes)?,
                scale,
                global_scale: (encoding == Encoding::Nvfp4).then_some(global),
                input_scale: None,
            };
            let decoder = Decoder::new(weight)?;
            for part in [0..rows, rows / 3..rows] {
                let (here, there) = (panels(&decoder, part.clone()), decoded(desk, &decoder, part)?);
                out.add("decode", name, &here, Some(&there));
            }
        }
    }
    Ok(())
}

/// A code that is no number may have any bits that say so.
fn tensor(values: Vec<f32>) -> Tensor {
    let values: Vec<f32> = values.into_iter().map(|v| if v.is_nan() { f32::NAN } else { v }).collect();
    Tensor::f32(vec![values.len()], values)
}

/// Rows as golden decodes them, in the order of panels.
fn panels(decoder: &Decoder<'_>, part: Range<usize>) -> Tensor {
    let (n, k) = (part.len(), decoder.cols());
    let mut out = vec![0.0; n.div_ceil(16) * k * 16];
    let mut row = vec![0.0f32; k];
    for i in 0..n {
        decoder.row(part.start + i, &mut row);
        for (at, v) in row.iter().enumerate() {
            out[(i / 16 * k + at) * 16 + i % 16] = *v;
        }
    }
    tensor(out)
}

/// The same rows as the device decodes them.
fn decoded<R: Runner>(desk: &Desk<R>, decoder: &Decoder<'_>, part: Range<usize>) -> Result<Tensor> {
    let kept: OnceLock<Kept> = OnceLock::new();
    let matrix = Matrix::new(part.len(), decoder.cols(), Source::Stored(decoder.form(part)), &kept);
    let panels = desk.panels(matrix)?;
    let mut found = Found::F32(vec![0.0; matrix.n.div_ceil(16) * matrix.k * 16]);
    panels.read(&mut found)?;
    match found {
        Found::F32(values) => Ok(tensor(values)),
        other => Err(Error::input(format!("a device gave {other:?} for values"))),
    }
}
