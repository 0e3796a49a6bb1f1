//! Where a row of KV state lives: pools, the parts that they hold, and the arithmetic of pages and rings (spec section 3).

use std::ops::Range;

use karat_model::config::LayerKind;
use karat_model::{Config, Error, Result};

/// A set of pages with one allocator. Every page of every pool stands for the same number of tokens, but a token's pages
/// have another number in each pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pool {
    /// Raw kv of recent tokens, and by the same page the compressors' state.
    Window,
    /// Main entries of the overlapping layers (ratio 4 in Flash).
    Csa,
    /// Index keys of the overlapping layers.
    Index,
    /// Entries of the heavily compressed layers (ratio 128 in Flash).
    Hca,
}

/// A tensor whose rows live in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Raw kv `[hd]`, one row a token.
    Window,
    /// The main compressor's rows (kvp, score) of an overlapping layer, in a ring.
    CsaState,
    /// The indexer's compressor rows, in a ring.
    IndexState,
    /// The compressor's rows of a heavily compressed layer, in a ring.
    HcaState,
    /// Entries `[hd]` of an overlapping layer.
    CsaEntries,
    /// Index keys `[di]` as they are scored.
    IndexKeys,
    /// Entries `[hd]` of a heavily compressed layer.
    HcaEntries,
}

impl Pool {
    /// Every pool.
    pub const ALL: [Self; 4] = [Self::Window, Self::Csa, Self::Index, Self::Hca];

    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Csa => "csa",
            Self::Index => "index",
            Self::Hca => "hca",
        }
    }
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 7] = [
        Self::Window,
        Self::CsaState,
        Self::IndexState,
        Self::HcaState,
        Self::CsaEntries,
        Self::IndexKeys,
        Self::HcaEntries,
    ];

    /// The pool whose pages hold it. Compressor state is addressed by the window's page.
    pub fn pool(self) -> Pool {
        match self {
            Self::Window | Self::CsaState | Self::IndexState | Self::HcaState => Pool::Window,
            Self::CsaEntries => Pool::Csa,
            Self::IndexKeys => Pool::Index,
            Self::HcaEntries => Pool::Hca,
        }
    }

    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Window => "window kv",
            Self::CsaState | Self::HcaState => "compressor state",
            Self::IndexState => "index compressor state",
            Self::CsaEntries | Self::HcaEntries => "entries",
            Self::IndexKeys => "index keys",
        }
    }

    /// True for the compressors' rings.
    pub fn is_state(self) -> bool {
        matches!(self, Self::CsaState | Self::IndexState | Self::HcaState)
    }

    /// True where a row stands for a whole window of tokens, not for one token.
    pub fn is_per_entry(self) -> bool {
        matches!(self, Self::CsaEntries | Self::IndexKeys | Self::HcaEntries)
    }
}

/// Sizes: all that the accounting of pages knows of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Tokens a page (256 in the field; a multiple of both ratios).
    pub page: usize,
    /// W: raw rows that a query sees, its own included.
    pub window: usize,
    /// Ratio of the overlapping layers; 0 without such layers.
    pub csa: usize,
    /// Ratio of the heavily compressed layers; 0 without such layers.
    pub hca: usize,
    /// Drafts are verified: rings hold two windows more than decode needs, so that rejected drafts overwrite nothing, and
    /// the first MTP block runs, with a window of its own in the pages of the window pool.
    pub speculative: bool,
}

/// Far above any page of an engine, and still held in memory.
const MOST_TOKENS: usize = 1 << 14;

impl Geometry {
    /// Sizes of a model; `page` tokens a page, or the page that suits the model: 256 from a window of 128 on, else the
    /// smallest that holds a window and is a multiple of both ratios.
    ///
    /// # Errors
    /// Usage: a page that isn't a multiple of both ratios, or is smaller than one, or larger than 16384 tokens. Input: layers of one kind with several
    /// ratios, which no engine's pools hold.
    pub fn of(config: &Config, page: Option<usize>) -> Result<Self> {
        let ratio = |overlap: bool| -> Result<usize> {
            let kinds = config.layers.iter().filter(|k| k.ratio().is_some() && k.has_indexer() == overlap);
            let mut ratios: Vec<usize> = kinds.filter_map(|k| k.ratio()).collect();
            ratios.sort_unstable();
            ratios.dedup();
            match ratios[..] {
                [] => Ok(0),
                [one] => Ok(one),
                _ => Err(Error::input("layers of one kind have several ratios: their pages can't be one pool")
                    .at("compress_ratios")
                    .expected("one ratio a kind")
                    .found(format!("{ratios:?}"))),
            }
        };
        let (csa, hca, window) = (ratio(true)?, ratio(false)?, config.sliding_window);
        let unit = lcm(csa.max(1), hca.max(1));
        let own = if window >= 128 { 256usize.next_multiple_of(unit) } else { window.next_multiple_of(unit) };
        let page = page.unwrap_or(own);
        if page == 0 || page > MOST_TOKENS.max(own) || !page.is_multiple_of(unit) {
            return Err(Error::usage("a page must hold whole windows of every compressor")
                .expected(format!("a multiple of {unit} tokens, {MOST_TOKENS} at most"))
                .found(page));
        }
        Ok(Self { page, window, csa, hca, speculative: false })
    }

    /// Tokens a prefill chunk: 8192, or four pages where the window is under 128.
    pub fn chunk(&self) -> usize {
        if self.window >= 128 { 8192usize.next_multiple_of(self.page) } else { 4 * self.page }
    }

    /// Tokens behind a position whose window rows and compressor rows something may still read.
    pub fn tail(&self) -> usize {
        (self.window - 1).max(self.hca.saturating_sub(1)).max((2 * self.csa).saturating_sub(1))
    }

    /// Pages that hold `tokens` tokens.
    pub fn pages(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page)
    }

    /// The first page index that a sequence of `tokens` tokens still needs in the window pool.
    pub fn first_window_page(&self, tokens: usize) -> usize {
        tokens.saturating_sub(self.tail()) / self.page
    }

    /// Tokens that an entry of this part stands for; 1 for parts with one row a token.
    pub fn ratio(&self, part: Part) -> usize {
        match part {
            Part::CsaEntries | Part::IndexKeys => self.csa,
            Part::HcaEntries => self.hca,
            _ => 1,
        }
    }

    /// Rows of a compressor's ring in one window page: 8 and 128 in Flash, twice that with speculation; never more than
    /// the page has tokens.
    pub fn ring(&self, part: Part) -> usize {
        let ring = match part {
            Part::HcaState => self.hca,
            _ => 2 * self.csa,
        };
        (ring << usize::from(self.speculative)).clamp(1, self.page)
    }

    /// Rows of a part in one page.
    pub fn rows(&self, part: Part) -> usize {
        match part {
            Part::Window => self.page,
            part if part.is_state() => self.ring(part),
            part => self.page / self.ratio(part).max(1),
        }
    }

    /// Page index in its sequence, and row in the page, of the row of a token (or of an entry, by index).
    pub fn place(&self, part: Part, index: usize) -> (usize, usize) {
        match part {
            Part::Window => (index / self.page, index % self.page),
            part if part.is_state() => (index / self.page, index % self.page % self.ring(part)),
            part => (index / self.rows(part), index % self.rows(part)),
        }
    }

    /// The last token that a row depends on.
    pub fn last_token(&self, part: Part, index: usize) -> usize {
        (index + 1) * self.ratio(part) - 1
    }

    /// Rows that a layer may read for the tokens that follow the first `seen`, by part.
    pub fn reads(&self, kind: LayerKind, seen: usize) -> Vec<(Part, Range<usize>)> {
        let mut out = vec![(Part::Window, seen.saturating_sub(self.window - 1)..seen)];
        match kind {
            LayerKind::Sliding => {}
            LayerKind::Csa { ratio } => {
                let entries = 0..seen / ratio;
                // The open window's rows, and the last complete window's for the overlap.
                let state = (seen / ratio).saturating_sub(1) * ratio..seen;
                out.push((Part::CsaState, state.clone()));
                out.push((Part::IndexState, state));
                out.push((Part::CsaEntries, entries.clone()));
                out.push((Part::IndexKeys, entries));
            }
            LayerKind::Hca { ratio } => {
                out.push((Part::HcaState, seen / ratio * ratio..seen));
                out.push((Part::HcaEntries, 0..seen / ratio));
            }
        }
        out
    }

    /// Rows that the tokens `tokens` write in a layer, by part, in the order in which they are written.
    pub fn writes(&self, kind: LayerKind, tokens: Range<usize>) -> Vec<(Part, Range<usize>)> {
        let mut out = vec![(Part::Window, tokens.clone())];
        match kind {
            LayerKind::Sliding => {}
            LayerKind::Csa { ratio } => {
                let entries = tokens.start / ratio..tokens.end / ratio;
                out.push((Part::CsaState, tokens.clone()));
                out.push((Part::IndexState, tokens));
                out.push((Part::CsaEntries, entries.clone()));
                out.push((Part::IndexKeys, entries));
            }
            LayerKind::Hca { ratio } => {
                let entries = tokens.start / ratio..tokens.end / ratio;
                out.push((Part::HcaState, tokens));
                out.push((Part::HcaEntries, entries));
            }
        }
        out
    }

    /// Pools that a model of these sizes has.
    pub fn pools(&self) -> impl Iterator<Item = Pool> + use<> {
        let (csa, hca) = (self.csa > 0, self.hca > 0);
        Pool::ALL.into_iter().filter(move |p| match p {
            Pool::Window => true,
            Pool::Csa | Pool::Index => csa,
            Pool::Hca => hca,
        })
    }

    /// Parts that a layer of a kind has.
    pub fn parts(kind: LayerKind) -> &'static [Part] {
        match kind {
            LayerKind::Sliding => &[Part::Window],
            LayerKind::Csa { .. } => {
                &[Part::Window, Part::CsaState, Part::IndexState, Part::CsaEntries, Part::IndexKeys]
            }
            LayerKind::Hca { .. } => &[Part::Window, Part::HcaState, Part::HcaEntries],
        }
    }
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}
