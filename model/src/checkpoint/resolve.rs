//! From a canonical name to bytes: which stored tensors make up a tensor or a linear, and whether they fit together.

use safetensors::Dtype as Stored;

use super::names::{Part, fused_of};
use super::store::{Id, Store};
use super::{Dtype, Encoding, RawTensor, Weight};
use crate::{Error, Result};

/// A stored tensor, or the part of a fused one that belongs to one expert.
struct Piece<'a> {
    id: Id,
    dtype: Stored,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

impl Store {
    /// A plain tensor; `key` without `.weight`.
    pub(crate) fn tensor(&self, key: &str) -> Result<(RawTensor<'_>, Id)> {
        let id = self.find(key, Part::Value).ok_or_else(|| self.missing(key))?;
        let e = &self.entries[id];
        let dtype =
            plain_dtype(e.dtype).ok_or_else(|| self.dtype(id, e.dtype, "F8_E4M3, I8, U8, BF16, F32, I64 or I32"))?;
        Ok((RawTensor { name: self.name(id).to_string(), dtype, shape: e.shape.to_vec(), bytes: self.bytes(id) }, id))
    }

    /// A linear's weight and the stored tensors it is made of.
    pub(crate) fn linear(&self, key: &str) -> Result<(Weight<'_>, Vec<Id>)> {
        let data = self.piece(key, Part::Value)?.ok_or_else(|| self.missing(key))?;
        let [stored_rows, stored_cols] = data.shape[..] else {
            return Err(self.shape(data.id, "two axes", &data.shape));
        };
        let scale = self.piece(key, Part::Scale)?;
        let global = self.piece(key, Part::Global)?;
        let input = self.piece(key, Part::Input)?;
        let ids = [Some(&data), scale.as_ref(), global.as_ref(), input.as_ref()];
        let ids: Vec<Id> = ids.into_iter().flatten().map(|p| p.id).collect();
        let (dtype, cols, encoding) = match data.dtype {
            Stored::BF16 => (Dtype::Bf16, stored_cols, Encoding::Plain),
            Stored::F32 => (Dtype::F32, stored_cols, Encoding::Plain),
            Stored::F8_E4M3 => {
                (Dtype::F8E4M3, stored_cols, Encoding::Fp8Block { block: self.config.weight_block_size })
            }
            Stored::I8 | Stored::U8 => {
                let nvfp4 = global.is_some() || scale.as_ref().is_some_and(|s| s.dtype == Stored::F8_E4M3);
                (Dtype::Packed4, 2 * stored_cols, if nvfp4 { Encoding::Nvfp4 } else { Encoding::Mxfp4 })
            }
            other => return Err(self.dtype(data.id, other, "F8_E4M3, I8 or U8 (packed FP4), BF16 or F32")),
        };
        let scale = self.scales(key, &data, scale, encoding, [stored_rows, cols])?;
        let global_scale = self.scalar(global, encoding)?;
        let input_scale = self.scalar(input, encoding)?;
        if encoding == Encoding::Nvfp4 && global_scale.is_none() {
            return Err(Error::input("NVFP4 weight without its global scale")
                .at(self.place(data.id))
                .expected(format!("{key}.weight_scale_2"))
                .hint("compressed-tensors stores the inverse under another name: convert it, don't rename it"));
        }
        let data = RawTensor { name: self.name(data.id).to_string(), dtype, shape: data.shape, bytes: data.bytes };
        let weight =
            Weight { name: key.to_string(), rows: stored_rows, cols, encoding, data, scale, global_scale, input_scale };
        Ok((weight, ids))
    }

    /// Block scales of the dtype and shape that the encoding asks for.
    fn scales<'a>(
        &'a self,
        key: &str,
        data: &Piece<'_>,
        scale: Option<Piece<'a>>,
        encoding: Encoding,
        [rows, cols]: [usize; 2],
    ) -> Result<Option<RawTensor<'a>>> {
        let Some(scale) = scale else {
            if encoding == Encoding::Plain {
                return Ok(None);
            }
            return Err(Error::input("quantised weight without scales")
                .at(self.place(data.id))
                .expected(format!("{key}.scale, .weight_scale or .weight_scale_inv"))
                .hint("codes without their scales decode to nothing useful: the checkpoint is incomplete"));
        };
        let (dtypes, want, what): (&[Stored], Vec<usize>, &str) = match encoding {
            Encoding::Plain => {
                return Err(Error::input("plain weight with a scale beside it")
                    .at(self.place(scale.id))
                    .expected("no scale: the values are already decoded")
                    .hint("remove the stale scale, or store the quantised codes"));
            }
            Encoding::Fp8Block { block: [br, bc] } => (
                // U8 is how writers without E8M0 store its bytes.
                &[Stored::F8_E8M0, Stored::U8, Stored::F32, Stored::BF16],
                vec![rows.div_ceil(br), cols.div_ceil(bc)],
                "one scale a block of weight_block_size",
            ),
            Encoding::Mxfp4 => {
                (&[Stored::F8_E8M0, Stored::U8], vec![rows, cols / 32], "one scale a row and 32 columns (MXFP4)")
            }
            Encoding::Nvfp4 => (&[Stored::F8_E4M3], vec![rows, cols / 16], "one scale a row and 16 columns (NVFP4)"),
        };
        if !dtypes.contains(&scale.dtype) {
            let names: Vec<String> = dtypes.iter().map(ToString::to_string).collect();
            return Err(self.dtype(scale.id, scale.dtype, &format!("a scale of {}", names.join(" or "))));
        }
        let group = match encoding {
            Encoding::Mxfp4 => 32,
            Encoding::Nvfp4 => 16,
            _ => 1,
        };
        if !cols.is_multiple_of(group) {
            return Err(self.shape(data.id, &format!("columns in groups of {group}"), &data.shape));
        }
        if scale.shape != want {
            return Err(self.shape(scale.id, &format!("{want:?}, {what}"), &scale.shape));
        }
        let dtype = match scale.dtype {
            Stored::F8_E4M3 => Dtype::F8E4M3,
            Stored::F32 => Dtype::F32,
            Stored::BF16 => Dtype::Bf16,
            _ => Dtype::F8E8M0,
        };
        Ok(Some(RawTensor { name: self.name(scale.id).to_string(), dtype, shape: scale.shape, bytes: scale.bytes }))
    }

    /// One of NVFP4's two F32 scalars.
    fn scalar<'a>(&'a self, piece: Option<Piece<'a>>, encoding: Encoding) -> Result<Option<RawTensor<'a>>> {
        let Some(p) = piece else { return Ok(None) };
        if encoding != Encoding::Nvfp4 {
            return Err(Error::input("scale that only NVFP4 has")
                .at(self.place(p.id))
                .found("a weight that isn't NVFP4")
                .hint("static activation scales of FP8 linears belong to another way of quantising"));
        }
        if p.dtype != Stored::F32 {
            return Err(self.dtype(p.id, p.dtype, "F32"));
        }
        if p.shape.iter().product::<usize>() != 1 {
            return Err(self.shape(p.id, "one number", &p.shape));
        }
        Ok(Some(RawTensor { name: self.name(p.id).to_string(), dtype: Dtype::F32, shape: p.shape, bytes: p.bytes }))
    }

    /// The stored tensor of a slot; for an expert's matrix also its part of a fused tensor
    /// (`gate_up_proj [E,2I,D]`: rows of w1, then of w3; `down_proj [E,D,I]`).
    fn piece(&self, key: &str, part: Part) -> Result<Option<Piece<'_>>> {
        if let Some(id) = self.find(key, part) {
            let e = &self.entries[id];
            return Ok(Some(Piece { id, dtype: e.dtype, shape: e.shape.to_vec(), bytes: self.bytes(id) }));
        }
        let Some((fused, expert, matrix)) = fused_of(key) else { return Ok(None) };
        let Some(id) = self.find(&fused, part) else { return Ok(None) };
        let e = &self.entries[id];
        let [experts, rows, cols] = e.shape[..] else {
            return Err(self.shape(id, "three axes: experts, rows, columns", &e.shape));
        };
        if expert >= experts || experts != self.config.n_routed_experts {
            let want = format!("{} experts on the first axis", self.config.n_routed_experts);
            return Err(self.shape(id, &want, &e.shape));
        }
        let halves = if matrix == "w2" { 1 } else { 2 };
        if !rows.is_multiple_of(halves) || (part == Part::Scale && !self.blocks_split(&fused, halves)) {
            return Err(self.shape(id, "rows that split between w1 and w3 at a block's end", &e.shape));
        }
        let rows = rows / halves;
        let all = self.bytes(id);
        // Whole bytes: every dtype here has 8 bits or more, and the header's check fixed the length.
        let size = all.len() / (experts * halves);
        let at = (expert * halves + usize::from(matrix == "w3")) * size;
        Ok(Some(Piece { id, dtype: e.dtype, shape: vec![rows, cols], bytes: &all[at..at + size] }))
    }

    /// For FP8 in blocks, w1 and w3 of a fused tensor can be told apart only where no block spans both.
    fn blocks_split(&self, fused: &str, halves: usize) -> bool {
        let Some(id) = self.find(fused, Part::Value) else { return true };
        let e = &self.entries[id];
        let block = self.config.weight_block_size[0];
        halves == 1 || e.dtype != Stored::F8_E4M3 || e.shape.get(1).is_some_and(|r| (r / 2).is_multiple_of(block))
    }

    /// File and name of a stored tensor, for messages.
    pub(crate) fn place(&self, id: Id) -> String {
        format!("{}: tensor {}", self.file(id), self.name(id))
    }

    pub(crate) fn missing(&self, key: &str) -> Error {
        Error::input("tensor is missing").at(format!("{}: tensor {key}", self.label)).hint(
            "config.json asks for it: the checkpoint is incomplete, or its naming is neither the released one nor \
             transformers'",
        )
    }

    pub(crate) fn dtype(&self, id: Id, found: Stored, expected: &str) -> Error {
        Error::input("unsupported dtype").at(self.place(id)).expected(expected).found(found)
    }

    pub(crate) fn shape(&self, id: Id, expected: &str, found: &[usize]) -> Error {
        Error::input("wrong shape").at(self.place(id)).expected(expected).found(format!("{found:?}"))
    }
}

/// The dtypes a plain tensor may have.
fn plain_dtype(stored: Stored) -> Option<Dtype> {
    Some(match stored {
        Stored::F8_E4M3 => Dtype::F8E4M3,
        Stored::F8_E8M0 => Dtype::F8E8M0,
        Stored::I8 | Stored::U8 => Dtype::Packed4,
        Stored::BF16 => Dtype::Bf16,
        Stored::F32 => Dtype::F32,
        Stored::I64 => Dtype::I64,
        Stored::I32 => Dtype::I32,
        _ => return None,
    })
}
