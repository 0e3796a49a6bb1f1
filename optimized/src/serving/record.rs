//! A kv row or entry as the bytes of an engine's page (spec section 3): the record of 584 bytes in Flash.

use karat_model::formats::{bf16, e4m3, e8m0};

use super::Layout;
use crate::quant::{E4M3_MAX, power_of_two_at_least};

/// Unrotated channels that share a scale.
const BLOCK: usize = 64;

impl Layout {
    /// Writes row `row` of a page: E4M3 codes of the first `nope` channels under a UE8M0 scale for 64 of them, bf16 for the
    /// rotated ones. `None`, and a page that is half written, when the record can't hold exactly these values or one is no
    /// finite number: a block with such a value has no scale.
    pub fn write_kv(&self, page: &mut [u8], row: usize, nope: usize, values: &[f32]) -> Option<()> {
        let (data, scales) = self.bytes(row);
        let same = |a: f32, b: f32| (a.to_bits() == b.to_bits() && b.is_finite()).then_some(());
        for (i, block) in values.get(..nope)?.chunks(BLOCK).enumerate() {
            let largest = block.iter().fold(0.0, |a: f32, v| a.max(v.abs()));
            let scale = if largest == 0.0 { 1.0 } else { power_of_two_at_least(largest / E4M3_MAX) };
            page[scales.start + i] = e8m0::encode(scale)?;
            for (j, v) in block.iter().enumerate() {
                let code = e4m3::encode(v / scale);
                same(e4m3::decode(code) * scale, *v)?;
                page[data.start + BLOCK * i + j] = code;
            }
        }
        for (v, to) in values[nope..].iter().zip(page[data.start + nope..data.end].chunks_exact_mut(2)) {
            let bits = bf16::encode(*v);
            same(bf16::decode(bits), *v)?;
            to.copy_from_slice(&bits.to_le_bytes());
        }
        Some(())
    }

    /// The values of row `row` of a page.
    pub fn read_kv(&self, page: &[u8], row: usize, nope: usize) -> Vec<f32> {
        let (data, scales) = self.bytes(row);
        let code = |(i, code): (usize, &u8)| e4m3::decode(*code) * e8m0::decode(page[scales.start + i / BLOCK]);
        let codes = page[data.start..data.start + nope].iter().enumerate().map(code);
        let rotated = page[data.start + nope..data.end].chunks_exact(2);
        codes.chain(rotated.map(|b| bf16::decode(u16::from_le_bytes([b[0], b[1]])))).collect()
    }
}
