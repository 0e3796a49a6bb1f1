//! Recall of candidates that are broken on purpose, on the golden model: what is lost, what it looks like, and where.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Candidate, Inputs, Job, Quiet, recall_of};
use karat_bundle::RecallRow;
use karat_diff::Claims;
use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_reference::{Golden, Mode};
use karat_scenarios::Content;
use karat_seam::{Blocks, Data, Lane, Layer, Op, Path, Requests, Result, Sequence, Streams, Tensor, Visitor};

/// Golden with a fault.
struct Broken {
    inner: Golden,
    requests: Requests,
    /// The streams that leave this layer lose their sign.
    layer: Option<u16>,
    /// Every row of logits says this id.
    stuck: Option<usize>,
}

struct BrokenLayer<'a>(Box<dyn Layer + 'a>, bool);

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
        Ok(Box::new(BrokenLayer(self.inner.layer(l)?, self.layer == Some(l))))
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
        self.0.run(lanes)?;
        for lane in lanes.iter_mut().filter(|_| self.1) {
            let out = lane.out.as_mut().expect("a layer fills every lane");
            let Data::F32(values) = &mut out.streams.data.data else { panic!("golden computes in f32") };
            values.iter_mut().for_each(|v| *v = -*v);
        }
        Ok(())
    }

    fn has_op(&self, op: Op) -> bool {
        self.0.has_op(op)
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
        Broken { inner: self.golden(requests.clone()), requests, layer: None, stuck: None }
    }

    fn rows(&self, path: &dyn Path) -> Vec<RecallRow> {
        let stop = AtomicBool::new(false);
        let job = Job {
            checkpoint: self.checkpoint.clone(),
            random_weights: false,
            inputs: self.inputs.clone(),
            taps: None,
            layers: None,
            cache: None,
            floor: false,
            threads: 2,
            producer: "test".into(),
            command: vec![],
            progress: &Quiet,
            stop: &stop,
        };
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
