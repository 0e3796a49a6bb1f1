//! Which taps to record: `*` stands for any run of characters, `?` for one, commas separate alternatives.

#[cfg(test)]
mod tests;

use karat_model::{Error, Result};
use karat_seam::Site;

/// A list of patterns over tap names (`layers.*.attn.o,logits`). The empty list admits nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapGlob {
    patterns: Vec<String>,
}

impl TapGlob {
    /// Admits everything.
    pub fn all() -> Self {
        Self { patterns: vec!["*".into()] }
    }

    /// Reads a comma-separated list. Errors: an empty pattern.
    pub fn new(text: &str) -> Result<Self> {
        let patterns: Vec<String> = text.split(',').map(|p| p.trim().to_string()).collect();
        if patterns.iter().any(String::is_empty) {
            return Err(Error::usage("empty tap pattern")
                .at(format!("{text:?}"))
                .expected("names such as layers.*.attn.o,logits"));
        }
        Ok(Self { patterns })
    }

    /// True when a pattern fits the tap's name.
    pub fn admits(&self, site: Site) -> bool {
        let name = site.to_string();
        self.patterns.iter().any(|p| fits(p.as_bytes(), name.as_bytes()))
    }
}

/// Linear in pattern times name: after a mismatch only the last star takes one character more.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}
