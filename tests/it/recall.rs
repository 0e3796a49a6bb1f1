//! Recall of candidates that are broken on purpose, on the golden model: what is lost, what it looks like, and where.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Candidate, Inputs, Job, Quiet, recall_of};
use karat_bundle::RecallRow;
use karat_diff::Claims;
use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_reference::{Golden, Mode};
use karat_scenarios::Content;
use karat_seam::{
    Blocks, Data, DataMut, Lane, Layer, Op, Path, Requests, Result, RowId, Sequence, Site, Streams, Tap, Tensor,
    TensorMut, Visitor, Want,
};

/// Golden with a fault.
struct Broken {
    inner: Golden,
    requests: Requests,
    /// The streams that leave this layer lose their sign.
    layer: Option<u16>,
    /// Every row of logits says this id.
    stuck: Option<usize>,
    /// Entries of these positions are gone from the cache for every later position.
    dropped: Option<Range<usize>>,
}

struct BrokenLayer<'a> {
    inner: Box<dyn Layer + 'a>,
    negates: bool,
    drops: Option<Drops>,
}

/// Nobody attends to entries that hold one of these positions.
#[derive(Clone)]
struct Drops {
    positions: Range<usize>,
    ratio: usize,
}

impl Visitor for Drops {
    fn want(&self, at: Site) -> Want {
        if at.tap == Tap::AttnSelected { Want::Write } else { Want::Skip }
    }

    fn visit(&mut self, _: Site, rows: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        let width = tensor.shape[1];
        let DataMut::U8(mask) = tensor.data else { panic!("a mask") };
        let gone =
            |entry: usize| entry * self.ratio < self.positions.end && (entry + 1) * self.ratio > self.positions.start;
        for (row, mask) in rows.iter().zip(mask.chunks_exact_mut(width.max(1))) {
            if row.pos as usize >= self.positions.end {
                mask.iter_mut().enumerate().filter(|(entry, _)| gone(*entry)).for_each(|(_, m)| *m = 0);
            }
        }
        Ok(())
    }
}

impl Path for Broken {
    fn name(&self) -> String {
        "broken".into()
    }

    fn identity(&self) -> [u8; 32] {
        self.inner.identity()
    }

    fn requests(&self) -> &Requests {
        &self.requests
    }

    fn blocks(&self) -> Blocks {
        self.inner.blocks()
    }

    fn embed(&self, see: &mut dyn Visitor) -> Result<Streams> {
        self.inner.embed(see)
    }

    fn layer(&self, l: u16) -> Result<Box<dyn Layer + '_>> {
        let ratio = [0, 0, 4, 128, 4, 128, 4][usize::from(l)];
        let drops = self.dropped.clone().filter(|_| ratio > 0).map(|positions| Drops { positions, ratio });
        Ok(Box::new(BrokenLayer { inner: self.inner.layer(l)?, negates: self.layer == Some(l), drops }))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        let mut logits = self.inner.head(lanes)?;
        if let Some(id) = self.stuck {
            for t in &mut logits {
                let width = t.width();
                let Data::F32(values) = &mut t.data else { panic!("golden computes in f32") };
                values.chunks_exact_mut(width).for_each(|row| row[id] = 1e3);
            }
        }
        Ok(logits)
    }
}

impl Layer for BrokenLayer<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        let Some(drops) = &self.drops else { return self.negated(lanes) };
        for lane in lanes {
            let mut see = drops.clone();
            let mut blind = [Lane::new(lane.x, &mut see)];
            self.inner.run(&mut blind)?;
            let [blind] = blind;
            lane.out = blind.out;
        }
        Ok(())
    }

    fn has_op(&self, op: Op) -> bool {
        self.inner.has_op(op)
    }
}

impl BrokenLayer<'_> {
    fn negated(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        self.inner.run(lanes)?;
        for lane in lanes.iter_mut().filter(|_| self.negates) {
            let out = lane.out.as_mut().expect("a layer fills every lane");
            let Data::F32(values) = &mut out.streams.data.data else { panic!("golden computes in f32") };
            values.iter_mut().for_each(|v| *v = -*v);
        }
        Ok(())
    }
}

struct Place {
    checkpoint: Arc<Checkpoint>,
    inputs: Inputs,
}

fn place(recipe: &str) -> Place {
    let checkpoint = Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap());
    let (tokenizer, encoder) = (Tokenizer::of(&checkpoint).unwrap(), Encoder::of(&checkpoint).unwrap());
    let text = format!("format = \"karat-scenario/1\"\ntitle = \"t\"\n[generate]\n{recipe}");
    let mut inputs = Inputs::default();
    for made in Content::from_toml("r", "r.toml", &text).unwrap().conversations(&tokenizer, &encoder).unwrap() {
        let rendered = made.render(&tokenizer, &encoder).unwrap();
        inputs.requests.seqs.push(rendered.sequence);
        inputs.scenarios.push("r".into());
        inputs.asks.push(rendered.asks);
    }
    Place { checkpoint, inputs }
}

impl Place {
    fn golden(&self, requests: Requests) -> Golden {
        Golden::new(self.checkpoint.clone(), requests, Mode::F32, 2).unwrap()
    }

    fn broken(&self) -> Broken {
        let requests = self.inputs.requests.clone();
        Broken { inner: self.golden(requests.clone()), requests, layer: None, stuck: None, dropped: None }
    }

    fn rows(&self, path: &dyn Path) -> Vec<RecallRow> {
        let stop = AtomicBool::new(false);
        let job = Job { threads: 2, ..Job::new(self.checkpoint.clone(), self.inputs.clone(), &Quiet, &stop) };
        recall_of(&job, &Candidate::new("broken", path, Claims::F32)).unwrap()
    }
}

#[test]
fn golden_itself_loses_nothing() {
    let place = place("maker = \"needle\"\ncontext = 400\nfacts = 4\nseed = 31");
    let rows = place.rows(&place.golden(place.inputs.requests.clone()));
    assert!(rows.len() >= 4);
    for row in rows {
        assert!(
            row.matched_candidate == row.answer_tokens && row.answer_kl == 0.0 && row.lost_at_layer.is_none(),
            "{row:?}"
        );
        assert_eq!(row.symptom, "fine");
    }
}

#[test]
fn a_lost_answer_is_traced_to_its_layer() {
    let place = place("maker = \"needle\"\ncontext = 300\nfacts = 2\nseed = 31");
    for layer in [0, 4, 6] {
        let rows = place.rows(&Broken { layer: Some(layer), ..place.broken() });
        let lost: Vec<&RecallRow> = rows.iter().filter(|r| r.matched_candidate < r.answer_tokens).collect();
        assert!(!lost.is_empty(), "a layer of the wrong sign loses answers");
        assert!(lost.iter().all(|r| r.lost_at_layer == Some(u64::from(layer))), "layer {layer}: {lost:?}");
    }
}

#[test]
fn a_candidate_that_is_stuck_repeats() {
    let place = place("maker = \"needle\"\ncontext = 300\nfacts = 2\nseed = 31");
    let rows = place.rows(&Broken { stuck: Some(300), ..place.broken() });
    assert!(rows.iter().all(|r| r.symptom == "repetition" && r.matched_candidate == 0), "{rows:?}");
    // Golden's head would still have known.
    assert!(rows.iter().all(|r| r.lost_at_layer == Some(7)), "{rows:?}");
}

/// The history that the candidate computes is another conversation's, as with a page of the wrong request.
#[test]
fn a_candidate_with_another_history_has_amnesia() {
    let place = place("maker = \"needle\"\ncontext = 500\nfacts = 3\nseed = 32");
    let other = self::place("maker = \"needle\"\ncontext = 1500\nfacts = 1\nseed = 33");
    let (sequence, asks) = (&place.inputs.requests.seqs[0], &place.inputs.asks[0]);
    // A check digit follows from the code before it: it needs no history.
    let last = asks.iter().rfind(|a| a.kind == "fact").unwrap();
    let asked = last.answer.end as usize - last.alone.len();
    // Everything before the last asking turn is small talk of the other conversation.
    let mut ids = other.inputs.requests.seqs[0].ids[..=asked].to_vec();
    ids.extend_from_slice(&sequence.ids[asked + 1..]);
    assert_eq!(ids.len(), sequence.ids.len());
    assert!(last.told.unwrap() < asked as u32);
    let requests = Requests { seqs: vec![Sequence { ids: ids.into(), ..sequence.clone() }] };
    let broken = Broken { inner: place.golden(requests), ..place.broken() };
    let rows = place.rows(&broken);
    let row = rows.iter().rfind(|r| r.kind == "fact").unwrap();
    assert_eq!((row.symptom.as_str(), row.matched_golden), ("amnesia", row.answer_tokens), "{row:?}");
    assert!(row.amnesia.unwrap() > 0.5 && row.matched_candidate < row.answer_tokens, "{row:?}");
}

/// The candidate sees the last turn alone, as if it were the first message: the story.
#[test]
fn a_candidate_that_sees_the_last_turn_alone_has_amnesia() {
    let place = place("maker = \"needle\"\ncontext = 500\nfacts = 3\nseed = 36");
    let asks = &place.inputs.asks[0];
    let facts: Vec<usize> = (0..asks.len()).filter(|i| asks[*i].kind == "fact").collect();
    assert_eq!(facts.len(), 3);
    for i in facts {
        // Everything between the first token and the turn that asks.
        let asked = asks[i].answer.end as usize - asks[i].alone.len();
        let rows = place.rows(&Broken { dropped: Some(1..asked), ..place.broken() });
        let row = rows.iter().find(|r| r.question as usize == i).unwrap();
        assert_eq!((row.symptom.as_str(), row.matched_golden), ("amnesia", row.answer_tokens), "{row:?}");
        assert!(row.matched_candidate < row.answer_tokens && row.amnesia.unwrap() > 0.5, "{row:?}");
    }
}

/// The cache lost every turn between the telling of half of the facts and the first question. What was told before stands,
/// what was told in it is forgotten, or taken for a value of the same kind that is still there.
#[test]
fn a_candidate_without_the_last_turns_has_amnesia() {
    let place = place("maker = \"needle\"\ncontext = 700\nfacts = 6\nseed = 34");
    let asks = &place.inputs.asks[0];
    let first_asked = asks.iter().map(|a| a.answer.end as usize - a.alone.len()).min().unwrap();
    let mut told: Vec<usize> = asks.iter().filter(|a| a.kind == "fact").map(|a| a.told.unwrap() as usize).collect();
    told.sort_unstable();
    // The latter half of the facts, with a few words before the value.
    let lost_from = told[3] - 16;
    let broken = Broken { dropped: Some(lost_from..first_asked), ..place.broken() };
    let rows = place.rows(&broken);
    let (mut lost, mut kept) = (Vec::new(), 0);
    for row in rows.iter().filter(|r| r.kind == "fact") {
        let told = asks[row.question as usize].told.unwrap() as usize;
        println!("told at {told}: {} {:?} as {:?}, amnesia {:?}", row.symptom, row.expected, row.said, row.amnesia);
        if told >= lost_from {
            assert!(row.matched_golden == row.answer_tokens && row.matched_candidate < row.answer_tokens, "{row:?}");
            lost.push(row.symptom.as_str());
        } else {
            assert_eq!((row.symptom.as_str(), row.matched_candidate), ("fine", row.answer_tokens), "{row:?}");
            kept += 1;
        }
    }
    assert_eq!((lost.len(), kept), (3, 3));
    assert!(lost.contains(&"amnesia") && lost.iter().all(|s| ["amnesia", "wrong value"].contains(s)), "{lost:?}");
}

/// One token in the cache is another one: the value that is told then is not the right one, and nothing else is lost.
#[test]
fn a_candidate_with_one_wrong_token_says_a_wrong_value() {
    let place = place("maker = \"needle\"\ncontext = 500\nfacts = 4\nseed = 35");
    let (sequence, asks) = (&place.inputs.requests.seqs[0], &place.inputs.asks[0]);
    let ask = asks.iter().rfind(|a| a.kind == "fact").unwrap();
    let other =
        asks.iter().find(|a| a.kind == "fact" && a.answer.len() == ask.answer.len() && a.expected != ask.expected);
    let other = other.expect("another value of this kind");
    let mut ids = sequence.ids.to_vec();
    let (told, from) = (ask.told.unwrap() as usize, other.told.unwrap() as usize);
    ids.copy_within(from..from + ask.answer.len(), told);
    let requests = Requests { seqs: vec![Sequence { ids: ids.into(), ..sequence.clone() }] };
    let broken = Broken { inner: place.golden(requests), ..place.broken() };
    let rows = place.rows(&broken);
    let row = rows.iter().rfind(|r| r.kind == "fact").unwrap();
    println!("{:?} as {:?}, amnesia {:?}", row.expected, row.said, row.amnesia);
    // Each token is said behind the expected ones: the first one is the other value's, what follows is neither's.
    assert_eq!((row.symptom.as_str(), row.said.get(..1)), ("wrong value", other.expected.get(..1)), "{row:?}");
    assert!(row.amnesia.unwrap() < 0.45 && row.matched_golden == row.answer_tokens, "{row:?}");
    // The others stand.
    let wrong = rows.iter().filter(|r| r.matched_candidate < r.answer_tokens).count();
    assert!(wrong <= 2, "{rows:?}");
}
