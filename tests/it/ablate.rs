//! Golden with one mechanism of attention switched off, and what it still answers.

use std::sync::Arc;

use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_reference::{Golden, Mode};
use karat_scenarios::{Ask, Content};
use karat_seam::{Block, DataMut, NoTaps, Requests, Result, RowId, Sequence, Site, Tap, TensorMut, Visitor, Want};
use karat_tests::cold_run;

/// A mechanism of attention that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// Entries of 128 tokens.
    Hca,
    /// Entries of 4 tokens.
    Csa,
    /// The choice of CSA's entries: the latest ones are taken instead.
    Indexer,
    /// The sliding window: a token sees itself alone.
    Window,
}

impl Mechanism {
    pub(crate) const ALL: [Self; 4] = [Self::Hca, Self::Csa, Self::Indexer, Self::Window];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hca => "HCA",
            Self::Csa => "CSA",
            Self::Indexer => "the indexer",
            Self::Window => "the window",
        }
    }
}

/// The layers of the golden model with HCA and with CSA, and its entries a query.
const HCA_LAYERS: [u16; 2] = [3, 5];
const CSA_LAYERS: [u16; 3] = [2, 4, 6];
const TOP: usize = 32;

/// Changes the selection of every layer with this ratio: the latest `keep` entries.
struct Selects {
    layers: &'static [u16],
    ratio: usize,
    keep: usize,
}

impl Visitor for Selects {
    fn want(&self, at: Site) -> Want {
        let mine = matches!(at.block, Block::Layer(l) if self.layers.contains(&l));
        if mine && at.tap == Tap::AttnSelected { Want::Write } else { Want::Skip }
    }

    fn visit(&mut self, _: Site, rows: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        let width = tensor.shape[1];
        let DataMut::U8(mask) = tensor.data else { panic!("a mask") };
        for (row, mask) in rows.iter().zip(mask.chunks_exact_mut(width.max(1))) {
            let visible = (row.pos as usize + 1) / self.ratio;
            let from = visible.saturating_sub(self.keep);
            mask.iter_mut().enumerate().for_each(|(w, m)| *m = u8::from(w >= from && w < visible));
        }
        Ok(())
    }
}

/// The golden model, whole and with a window of one token.
pub(crate) struct Models {
    whole: Arc<Checkpoint>,
    narrow: Arc<Checkpoint>,
}

impl Models {
    pub(crate) fn new() -> Self {
        let narrow = |config: String| config.replace("\"sliding_window\": 64", "\"sliding_window\": 1");
        Self { whole: checkpoint(|config| config), narrow: checkpoint(narrow) }
    }

    /// Conversations of a scenario with their questions.
    pub(crate) fn conversations(&self, content: Content) -> Vec<(Sequence, Vec<Ask>)> {
        let (tokenizer, encoder) = (Tokenizer::of(&self.whole).unwrap(), Encoder::of(&self.whole).unwrap());
        let render = |s: &karat_scenarios::Scenario| {
            let r = s.render(&tokenizer, &encoder).unwrap();
            (r.sequence, r.asks)
        };
        content.conversations(&tokenizer, &encoder).unwrap().iter().map(render).collect()
    }

    /// The worst margin (nats) of each answer, in order: above 0 it is given. `off`: without this mechanism.
    pub(crate) fn margins(&self, all: &[(Sequence, Vec<Ask>)], off: Option<Mechanism>) -> Vec<f64> {
        let requests = Requests { seqs: all.iter().map(|(s, _)| s.clone()).collect() };
        let checkpoint = if off == Some(Mechanism::Window) { &self.narrow } else { &self.whole };
        let golden = Golden::new(checkpoint.clone(), requests, Mode::F32, 2).unwrap();
        let mut selects = match off {
            Some(Mechanism::Hca) => Some(Selects { layers: &HCA_LAYERS, ratio: 128, keep: 0 }),
            Some(Mechanism::Csa) => Some(Selects { layers: &CSA_LAYERS, ratio: 4, keep: 0 }),
            Some(Mechanism::Indexer) => Some(Selects { layers: &CSA_LAYERS, ratio: 4, keep: TOP }),
            Some(Mechanism::Window) | None => None,
        };
        let see: &mut dyn Visitor = match &mut selects {
            Some(selects) => selects,
            None => &mut NoTaps,
        };
        let (streams, logits) = cold_run(&golden, see).unwrap();
        let (width, values) = (logits.width(), logits.as_f32("logits").unwrap());
        let (mut margins, mut first) = (Vec::new(), 0);
        for (sequence, asks) in all {
            for ask in asks {
                let margin = ask.positions().map(|pos| {
                    let row = &values[(first + pos - 1) * width..(first + pos) * width];
                    let id = sequence.ids[pos] as usize;
                    let other = (0..width).filter(|&i| i != id).map(|i| row[i]).fold(f32::NEG_INFINITY, f32::max);
                    f64::from(row[id] - other)
                });
                margins.push(margin.fold(f64::INFINITY, f64::min));
            }
            first += sequence.ids.len();
        }
        assert_eq!(first, streams.rows.len());
        margins
    }
}

fn checkpoint(edit: impl FnOnce(String) -> String) -> Arc<Checkpoint> {
    let mut files = karat_golden::files();
    let config = edit(String::from_utf8(files["config.json"].to_vec()).unwrap());
    files.insert("config.json".to_owned(), config.into_bytes().into());
    Arc::new(Checkpoint::from_memory("golden", files).unwrap())
}

/// Answers given.
pub(crate) fn given(margins: &[f64]) -> usize {
    margins.iter().filter(|m| **m > 0.0).count()
}
