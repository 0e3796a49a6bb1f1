//! A stored weight as it is handed to a backend that decodes it there.

use std::ops::Range;

use karat_model::checkpoint::{Dtype, Encoding};

use super::Decoder;
use crate::backend::{Code, Scales, StoredValues};

impl Decoder<'_> {
    /// Codes and scales of some rows, as they lie in the checkpoint.
    pub fn form(&self, rows: Range<usize>) -> StoredValues<'_> {
        let cols = self.cols();
        let (code, block) = match (self.weight.encoding, self.weight.data.dtype) {
            (Encoding::Plain, Dtype::Bf16) => (Code::Bf16, None),
            (Encoding::Plain, _) => (Code::F32, None),
            (Encoding::Fp8Block { block }, _) => (Code::E4m3, Some(block)),
            (Encoding::Mxfp4, _) => (Code::E2m1, Some([1, 32])),
            (Encoding::Nvfp4, _) => (Code::E2m1, Some([1, 16])),
        };
        let row = code.bytes(cols);
        let codes = &self.weight.data.bytes[rows.start * row..rows.end * row];
        let stored = block.zip(self.weight.scale.as_ref());
        let scales = stored.map(|([high, wide], scale)| {
            // Another one was refused when the scales were decoded.
            let code = match scale.dtype {
                Dtype::F32 => Code::F32,
                Dtype::Bf16 => Code::Bf16,
                Dtype::F8E4M3 => Code::E4m3,
                _ => Code::E8m0,
            };
            let row = code.bytes(cols.div_ceil(wide));
            let bytes = &scale.bytes[rows.start / high * row..rows.end.div_ceil(high) * row];
            let all = if self.weight.encoding == Encoding::Nvfp4 { self.global } else { 1.0 };
            Scales { code, bytes, block: [high, wide], above: rows.start % high, all }
        });
        StoredValues { code, codes, scales }
    }
}
