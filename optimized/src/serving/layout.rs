//! Where a row lies in the bytes of an engine's page (spec section 3): the data of all rows first, then their scales.

use std::ops::Range;

use karat_model::Config;

use super::{Geometry, Part};

/// Bytes of the rows of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Rows of a page.
    pub rows: usize,
    /// Data bytes of a row.
    pub data: usize,
    /// Scale bytes of a row, padding included.
    pub scales: usize,
    /// The page's stride is rounded up to a multiple of this.
    pub align: usize,
}

impl Layout {
    /// The layout in which engines hold a part by default. Raw kv and entries: e4m3 for the channels without rotation, bf16
    /// for those with, one UE8M0 scale for 64 channels, padded to 8 bytes (584 bytes in Flash); index keys: e4m3 and one
    /// f32 scale (132 bytes); compressor rows: kvp and score in f32.
    pub fn of(part: Part, config: &Config, geometry: &Geometry) -> Self {
        let rows = geometry.rows(part);
        let series = |overlap: bool, hd: usize| Self {
            rows,
            data: 2 * 4 * hd * if overlap { 2 } else { 1 },
            scales: 0,
            align: 1,
        };
        match part {
            Part::Window | Part::CsaEntries | Part::HcaEntries => {
                let nope = config.nope_head_dim();
                let data = nope + 2 * config.qk_rope_head_dim;
                Self { rows, data, scales: nope.div_ceil(64).next_multiple_of(8), align: data }
            }
            Part::IndexKeys => Self { rows, data: config.index_head_dim, scales: 4, align: 1 },
            Part::CsaState => series(true, config.head_dim),
            Part::IndexState => series(true, config.index_head_dim),
            Part::HcaState => series(false, config.head_dim),
        }
    }

    /// Bytes from one page to the next.
    pub fn stride(&self) -> usize {
        (self.rows * (self.data + self.scales)).next_multiple_of(self.align.max(1))
    }

    /// A row's data and scale bytes, from the start of its page.
    pub fn bytes(&self, row: usize) -> (Range<usize>, Range<usize>) {
        let scales = self.rows * self.data + row * self.scales;
        (row * self.data..(row + 1) * self.data, scales..scales + self.scales)
    }
}
