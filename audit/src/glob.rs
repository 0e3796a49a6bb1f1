//! Patterns over tap names: `*` stands for any characters, several patterns are separated by commas.

use karat_model::{Error, Result};
use karat_seam::{Block, Site, Tap};

/// A set of patterns over tap names such as `layers.*.attn.o,logits`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    patterns: Vec<String>,
}

impl Glob {
    /// Reads patterns. One that can match no tap at all is a mistake and refused.
    pub fn parse(text: &str) -> Result<Self> {
        let patterns: Vec<String> = text.split(',').map(|p| p.trim().to_string()).collect();
        for pattern in &patterns {
            let blocks = (0..=99).map(Block::Layer).chain([Block::Embed, Block::Head, Block::Mtp(0)]);
            let mut sites = blocks.flat_map(|block| Tap::ALL.iter().map(move |tap| Site { block, tap: *tap }));
            if !sites.any(|site| matches(pattern.as_bytes(), site.to_string().as_bytes())) {
                return Err(Error::usage("no tap has such a name")
                    .at("--taps")
                    .expected("for example layers.*.attn.o or logits")
                    .found(format!("`{pattern}`")));
            }
        }
        Ok(Self { patterns })
    }

    /// True when one of the patterns matches the tap's name.
    pub fn matches(&self, site: Site) -> bool {
        let name = site.to_string();
        self.patterns.iter().any(|p| matches(p.as_bytes(), name.as_bytes()))
    }
}

/// Greedy matching with one place to go back to: linear in practice, never exponential.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            back = Some((p, t));
            p += 1;
        } else if p < pattern.len() && pattern[p] == text[t] {
            (p, t) = (p + 1, t + 1);
        } else if let Some((star, from)) = back {
            back = Some((star, from + 1));
            (p, t) = (star + 1, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}
