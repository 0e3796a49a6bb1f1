//! What is checked before a value is used: keys, positions, row counts.

use std::collections::BTreeSet;

use karat_model::{Error, Result};
use karat_seam::{Block, Data, Site, Tap};

use super::{RowLists, Trace};
use crate::key::Key;

/// Highest layer number that is believed.
const MAX_LAYER: u16 = 9_999;

/// The key behind a tensor's name. A tap that this version doesn't know is refused: most are misspelt, and leaving one
/// out would make a partial audit look whole.
pub(super) fn key_of(name: &str) -> Result<Key> {
    name.parse::<Key>().map_err(|e| {
        Error::input("not a key of a trace")
            .at(format!("tensor {name}"))
            .expected("SEQUENCE/TAP, SEQUENCE/TAP@PASS or SEQUENCE/rows")
            .found(e)
            .hint("see the list of taps; leave other tensors out of the trace")
    })
}

impl Trace {
    /// Positions of every (sequence, pass) that has a tap or a list: the list's, else the whole sequence.
    pub(super) fn read_rows(&mut self, lists: &RowLists) -> Result<()> {
        let mut passes: BTreeSet<(u32, u32)> = lists.keys().copied().collect();
        passes.extend(self.index.keys().filter(|(site, ..)| !site.tap.is_state()).map(|(_, seq, pass)| (*seq, *pass)));
        for (seq, pass) in passes {
            let positions = match lists.get(&(seq, pass)) {
                Some((file, name)) => self.positions_of(*file, name, seq)?,
                None => (0..self.length(seq) as u32).collect(),
            };
            self.rows.insert((seq, pass), positions.into());
        }
        Ok(())
    }

    fn positions_of(&self, file: usize, name: &str, seq: u32) -> Result<Vec<u32>> {
        let file = &self.files[file];
        let fail = |what: &str| Error::input(what).at(format!("tensor {name}")).at(file.label());
        let tensor = file.tensor(name)?;
        let length = self.length(seq);
        let Data::I64(values) = &tensor.data else {
            return Err(fail("positions are not integers").expected("I64").found(tensor.data.dtype()));
        };
        if tensor.shape.len() != 1 {
            return Err(fail("positions are no list").expected("one axis").found(format!("{:?}", tensor.shape)));
        }
        if let Some(bad) = values.iter().find(|p| !(0..length as i64).contains(*p)) {
            return Err(fail("position is outside the sequence").expected(format!("0 to {}", length - 1)).found(bad));
        }
        if !values.is_sorted_by(|a, b| a < b) {
            return Err(fail("positions are not ascending, each once"));
        }
        Ok(values.iter().map(|p| *p as u32).collect())
    }

    /// Axis 0 of every tap against the rows that it must have; rank; dtypes that traces may have.
    pub(super) fn check_taps(&self) -> Result<()> {
        for ((site, seq, pass), (file, name)) in &self.index {
            let file = &self.files[*file];
            let fail = |what: &str| Error::input(what).at(format!("tensor {name}")).at(file.label());
            file.dtype(name)?;
            if matches!(site.block, Block::Layer(l) | Block::Mtp(l) if l > MAX_LAYER) {
                return Err(fail("layer number is not believable").expected(format!("at most {MAX_LAYER}")));
            }
            let shape = file.shape(name).unwrap_or_default();
            let rank = rank(*site);
            if shape.len() != rank {
                return Err(fail("wrong number of axes").expected(rank).found(format!("{shape:?}")));
            }
            let positions = self.positions(*seq, *pass);
            let whole = self.length(*seq);
            let fits = if site.tap.is_state() || site.tap.is_per_entry() {
                // How many there must be depends on the model's compress ratios: the comparison with golden tells.
                shape[0] <= whole
            } else {
                shape[0] == positions.len()
            };
            if !fits {
                return Err(fail("wrong number of rows").expected(Self::rows_in_words(*site, positions.len(), whole)).found(shape[0]).hint(
                    "a trace of some rows lists their positions under SEQUENCE/rows (SEQUENCE/rows@PASS for a later pass)",
                ));
            }
        }
        Ok(())
    }

    fn rows_in_words(site: Site, rows: usize, whole: usize) -> String {
        if site.tap.is_state() || site.tap.is_per_entry() {
            format!("at most {whole}")
        } else if rows == whole {
            format!("{rows}, one a token")
        } else {
            format!("{rows}, one a listed position of {whole}")
        }
    }
}

/// Number of axes of a tap.
fn rank(site: Site) -> usize {
    match site.tap {
        Tap::StateWinPos => 1,
        tap if tap.is_streams() => 3,
        Tap::HcAttnComb | Tap::HcFfnComb | Tap::AttnQ | Tap::AttnO | Tap::AttnIndexQ | Tap::FfnExpertAct => 3,
        _ => 2,
    }
}
