//! What each mechanism of attention is worth: switched off in golden, it costs recall in a scenario made for it.

use std::sync::Arc;

use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_reference::{Golden, Mode};
use karat_scenarios::{Ask, Content};
use karat_seam::{Block, DataMut, NoTaps, Requests, Result, RowId, Sequence, Site, Tap, TensorMut, Visitor, Want};
use karat_tests::cold_run;

/// Which entries a kind of layer may still attend to.
#[derive(Clone, Copy)]
enum Keep {
    Nothing,
    Latest(usize),
}

/// Changes the selection of every layer with this ratio.
struct Off<'a> {
    layers: &'a [u16],
    ratio: usize,
    keep: Keep,
}

impl Visitor for Off<'_> {
    fn want(&self, at: Site) -> Want {
        let mine = matches!(at.block, Block::Layer(l) if self.layers.contains(&l));
        if mine && at.tap == Tap::AttnSelected { Want::Write } else { Want::Skip }
    }

    fn visit(&mut self, _: Site, rows: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        let width = tensor.shape[1];
        let DataMut::U8(mask) = tensor.data else { panic!("a mask") };
        for (row, mask) in rows.iter().zip(mask.chunks_exact_mut(width.max(1))) {
            let visible = (row.pos as usize + 1) / self.ratio;
            let from = match self.keep {
                Keep::Nothing => visible,
                Keep::Latest(n) => visible.saturating_sub(n),
            };
            mask.iter_mut().enumerate().for_each(|(w, m)| *m = u8::from(w >= from && w < visible));
        }
        Ok(())
    }
}

fn checkpoint(edit: impl FnOnce(&mut String)) -> Arc<Checkpoint> {
    let mut files = karat_golden::files();
    let mut config = String::from_utf8(files["config.json"].to_vec()).unwrap();
    edit(&mut config);
    files.insert("config.json".to_owned(), config.into_bytes().into());
    Arc::new(Checkpoint::from_memory("golden", files).unwrap())
}

/// Conversations of a recipe with their questions.
fn conversations(recipe: &str) -> Vec<(Sequence, Vec<Ask>)> {
    let checkpoint = checkpoint(|_| {});
    let (tokenizer, encoder) = (Tokenizer::of(&checkpoint).unwrap(), Encoder::of(&checkpoint).unwrap());
    let text = format!("format = \"karat-scenario/1\"\ntitle = \"t\"\n[generate]\n{recipe}");
    let made = Content::from_toml("r", "r.toml", &text).unwrap().conversations(&tokenizer, &encoder).unwrap();
    let render = |s: &karat_scenarios::Scenario| {
        let r = s.render(&tokenizer, &encoder).unwrap();
        (r.sequence, r.asks)
    };
    made.iter().map(render).collect()
}

/// Answers given, and asked.
fn recalled(checkpoint: &Arc<Checkpoint>, all: &[(Sequence, Vec<Ask>)], see: &mut dyn Visitor) -> (usize, usize) {
    let requests = Requests { seqs: all.iter().map(|(s, _)| s.clone()).collect() };
    let golden = Golden::new(checkpoint.clone(), requests, Mode::F32, 2).unwrap();
    let (streams, logits) = cold_run(&golden, see).unwrap();
    let (width, values) = (logits.width(), logits.as_f32("logits").unwrap());
    let (mut right, mut asked, mut first) = (0, 0, 0);
    for (sequence, asks) in all {
        for ask in asks {
            asked += 1;
            right += usize::from(ask.positions().all(|pos| {
                let row = first + pos - 1;
                let row = &values[row * width..(row + 1) * width];
                let best = (0..width).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
                best as u32 == sequence.ids[pos]
            }));
        }
        first += sequence.ids.len();
    }
    assert_eq!(first, streams.rows.len());
    (right, asked)
}

#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn every_mechanism_of_attention_is_worth_answers() {
    let model = checkpoint(|_| {});
    let needles = conversations("maker = \"needle\"\ncontext = 1536\nfacts = 12\nseed = 21");
    let whole = recalled(&model, &needles, &mut NoTaps);
    assert_eq!(whole.0, whole.1, "golden recalls every needle");
    let csa = [2, 4, 6];
    let nothing = recalled(&model, &needles, &mut Off { layers: &csa, ratio: 4, keep: Keep::Nothing });
    let latest = recalled(&model, &needles, &mut Off { layers: &csa, ratio: 4, keep: Keep::Latest(32) });
    let narrow = checkpoint(|c| *c = c.replace("\"sliding_window\": 64", "\"sliding_window\": 1"));
    let window = recalled(&narrow, &needles, &mut NoTaps);
    println!(
        "needles: golden {whole:?}, without CSA {nothing:?}, latest 32 entries {latest:?}, window of 1 {window:?}"
    );
    for (name, (right, asked)) in [("CSA", nothing), ("the indexer", latest), ("the window", window)] {
        assert!(2 * right < asked, "without {name} {right} of {asked} are recalled");
    }
}
