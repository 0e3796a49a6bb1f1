//! The story, reproduced: a request is interrupted, and afterwards the model has forgotten what it was told. docs/story.md is
//! what `karat isolate` wrote about it; `cargo xtask story` writes it anew. The test holds the page to what two histories
//! show again: the row that differs first, the rows that are gone, the answers that are lost.

mod edge;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use karat_audit::{Checked, Checker, Inputs, Isolate, Job, Quiet, Subject, Synthesis, isolate};
use karat_bundle::Verdict;
use karat_faults::books::{HISTORY, RECENT, lose_after_abort};
use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_optimized::serving::{Geometry, Part, Program, Served};
use karat_optimized::{History, Plan, Stock};
use karat_scenarios::Content;
use karat_seam::{Requests, Sequence, Span, SpanKind, Turn};

const PATCHES: [&str; 3] = ["bf16-mhc", "fp8-indexer", "mma-sparse-mla"];
/// Seed of page orders, as `karat isolate` has it.
const SEED: u64 = 1;

/// Tensors that the scheduler loses, what the report calls it, and the conversation: a built-in one, or a fixture.
const LOSSES: [(&str, &[Part], &str); 2] =
    [("window rows", RECENT, edge::PATH), ("entries and index keys", HISTORY, "tic-tac-toe")];

struct Stage {
    checkpoint: Arc<Checkpoint>,
    tokenizer: Tokenizer,
    encoder: Encoder,
}

impl Stage {
    fn new() -> Self {
        let checkpoint = Arc::new(Checkpoint::from_memory("mini golden model", karat_golden::files()).unwrap());
        let (tokenizer, encoder) = (Tokenizer::of(&checkpoint).unwrap(), Encoder::of(&checkpoint).unwrap());
        Self { checkpoint, tokenizer, encoder }
    }

    fn inputs(&self, name: &str) -> Inputs {
        let content = match name {
            edge::PATH => Content::from_toml("page-edge", name, edge::FILE),
            name => Content::builtin(name),
        };
        self.of(content.unwrap(), name)
    }

    fn of(&self, content: Content, name: &str) -> Inputs {
        let mut inputs = Inputs::default();
        for made in content.conversations(&self.tokenizer, &self.encoder).unwrap() {
            let rendered = made.render(&self.tokenizer, &self.encoder).unwrap();
            inputs.requests.seqs.push(rendered.sequence);
            inputs.scenarios.push(name.into());
            inputs.variants.push(made.maker);
            inputs.asks.push(rendered.asks);
        }
        inputs
    }

    fn checker(&self, requests: &Requests, patches: &[&str]) -> (Checker, Geometry) {
        let patches = patches.iter().map(ToString::to_string).collect();
        let plan = Plan { stock: Stock::Official, patches, history: History::Cold };
        let geometry = Geometry::of(self.checkpoint.config(), None).unwrap();
        (Checker::new(self.checkpoint.clone(), requests.clone(), plan, geometry, 2).unwrap(), geometry)
    }
}

/// A history on the scheduler that loses these tensors.
fn served(checker: &mut Checker, geometry: Geometry, requests: &Requests, history: Served, parts: &[Part]) -> Checked {
    let script = history.script(requests, geometry, SEED);
    let mut program = script.program().unwrap();
    lose_after_abort(&mut program, parts);
    checker.check_program(history.name(), script.setup.geometry, program).unwrap()
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/story.md")
}

/// Layer, tensor, position and page of the first difference, as reports write them.
fn place(checked: &Checked) -> String {
    let text = checked.difference.as_ref().expect("the loss must be found").to_string();
    text.split(", read by").next().unwrap().to_string()
}

#[test]
fn the_committed_story_is_what_two_lossy_schedulers_do() {
    if std::env::var_os("KARAT_STORY_WRITE").is_some() {
        std::fs::write(page(), write()).unwrap();
        return;
    }
    let stage = Stage::new();
    let text = std::fs::read_to_string(page()).unwrap().replace('\n', " ");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let vocab = stage.checkpoint.config().vocab_size;
    for (what, parts, name) in LOSSES {
        let inputs = stage.inputs(name);
        let (mut checker, geometry) = stage.checker(&inputs.requests, &PATCHES);
        let checked = served(&mut checker, geometry, &inputs.requests, Served::AfterAbort, parts);
        // Only what was lost is missing, and it is missing in every layer that has it.
        let lost: Vec<Part> = checked.lost.iter().map(|l| l.part).collect();
        assert_eq!(lost, parts, "{what}");
        assert!(checked.lost.iter().all(|l| l.are_free), "{what}: {:?}", checked.lost);
        assert!(text.contains(&place(&checked)), "{what}: docs/story.md lacks `{}`", place(&checked));
        for lost in &checked.lost {
            let (first, last) = (lost.positions.first().unwrap(), lost.positions.last().unwrap());
            let words = format!("{} rows that stand for positions {first} to {last}", lost.rows);
            assert!(text.contains(&words), "{what}: docs/story.md lacks `{words}`");
        }
        // What is said at the answers.
        let logits = &checked.sequences[0].values;
        let best = |pos: usize| {
            let row = &logits[(pos - 1) * vocab..pos * vocab];
            (0..vocab).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as u32
        };
        let ids = &inputs.requests.seqs[0].ids;
        let is_lost = |ask: &&karat_scenarios::Ask| ask.positions().any(|p| best(p) != ids[p]);
        let lost = inputs.asks[0].iter().filter(is_lost).count();
        let words = format!("{lost} of {} answers lost", inputs.asks[0].len());
        assert!(lost > 0 && text.contains(&words), "{what}: docs/story.md lacks `{words}`");
        // Without an abort the same scheduler is the path's own cold run.
        let warm = served(&mut checker, geometry, &inputs.requests, Served::Warm, parts);
        assert!(warm.is_same() && warm.facts.reused > 0, "{what}");
    }
}

/// Everything that the page says, measured.
fn write() -> String {
    let stage = Stage::new();
    let stop = AtomicBool::new(false);
    let mut out = HEAD.to_string();
    let mut checks = String::new();
    for loss in LOSSES {
        green(&mut checks, &stage, loss);
    }
    println!("{checks}");
    for (what, parts, name) in LOSSES {
        let books = |_: Served, program: &mut Program| lose_after_abort(program, parts);
        let job = Job { threads: 2, ..Job::new(stage.checkpoint.clone(), stage.inputs(name), &Quiet, &stop) };
        let quick = stage.inputs("turn-two");
        let patches = PATCHES.map(String::from).to_vec();
        let subject = Subject { stock: Stock::Official, patches, history: History::Cold };
        let ask = Isolate { subject, quick: Ok(quick), arguments: name.into(), change: None, books: Some(&books) };
        let found = isolate(&job, &ask).unwrap();
        assert_eq!(found.verdict, Verdict::Fail, "{found:?}");
        println!("{what}: {:.0} s", found.seconds);
        writeln!(out, "## After an abort, {what} are gone\n\n```text\n{}\n```\n", synthesis(&found)).unwrap();
    }
    edge::section(&mut out, &stage);
    out.push_str("## What stays green on the same two schedulers\n\n");
    out.push_str("| check | scheduler loses | result |\n|---|---|---|\n");
    out.push_str(&checks);
    out.push_str(TAIL);
    out
}

/// Checks that the people of the story had.
fn green(out: &mut String, stage: &Stage, (what, parts, name): (&str, &[Part], &str)) {
    let inputs = stage.inputs("tic-tac-toe");
    // A single turn: the conversation up to the first answer, as a request of its own, its answer decoded.
    let single = |ids: &[u32], answer: usize, name: &str| {
        let mut sequence = Sequence::prompt(name, ids.to_vec());
        let span = |kind, start, end| Span { kind, start, end };
        let (start, end) = (answer as u32, ids.len() as u32);
        let spans = vec![span(SpanKind::Prompt, 0, start), span(SpanKind::Generated, start, end)];
        sequence.turns = vec![Turn { spans, interrupted: false }];
        Requests { seqs: vec![sequence] }
    };
    let ids = &inputs.requests.seqs[0].ids;
    let turn = &inputs.requests.seqs[0].turns[0];
    let end = turn.spans.last().unwrap().end as usize;
    let answer = turn.spans.last().unwrap().start as usize;
    let long = stage.inputs("needle-8k");
    let long = &long.requests.seqs[0].ids;
    assert_eq!(long.len(), 8022, "the page says so");
    let cases = [
        ("single turn", single(&ids[..end], answer, "single"), &PATCHES[..]),
        // Stock alone: one pass less.
        ("single turn of 8,022 tokens, the last 64 generated, stock alone", single(long, long.len() - 64, "long"), &[]),
    ];
    // Without an abort the two schedulers make the same programs: the long one is run for one of them.
    let cases = cases.into_iter().filter(|(name, ..)| parts == HISTORY || !name.contains("8,022"));
    for (name, requests, patches) in cases {
        let start = Instant::now();
        let (mut checker, geometry) = stage.checker(&requests, patches);
        checker.run_golden().unwrap();
        let checked = served(&mut checker, geometry, &requests, Served::Decoded, parts);
        assert!(checked.is_same(), "{name}: {:?}", checked.difference);
        let positions = &checked.sequences[0].positions;
        let generated = &positions
            [positions.len() - (requests.seqs[0].ids.len() - requests.seqs[0].turns[0].spans[1].start as usize)..];
        let kl = generated.iter().map(|(_, p)| p.kl).sum::<f64>() / generated.len() as f64;
        let flips = generated.iter().filter(|(_, p)| p.top1_golden != p.top1_candidate).count();
        let said: Vec<u32> = generated.iter().map(|(_, p)| p.top1_candidate).collect();
        let golden: Vec<u32> = generated.iter().map(|(_, p)| p.top1_golden).collect();
        let gzip = |ids: &[u32]| {
            karat_scenarios::Blind::of(&stage.tokenizer.decode(ids).unwrap()).gzip_ratio.unwrap_or(f64::NAN)
        };
        writeln!(
            out,
            "| {name} | {what} | bit for bit the path's own cold run; {} generated positions, mean KL {kl:.1e} from golden, {flips} \
             changed top ids, gzip ratio {:.2} (golden {:.2}); {:.0} s |",
            generated.len(),
            gzip(&said),
            gzip(&golden),
            start.elapsed().as_secs_f64()
        )
        .unwrap();
    }
    // The conversation that the loss is shown on, without an abort.
    let inputs = stage.inputs(name);
    let (mut checker, geometry) = stage.checker(&inputs.requests, &PATCHES);
    for history in [Served::Warm, Served::Chunked, Served::Batched] {
        let checked = served(&mut checker, geometry, &inputs.requests, history, parts);
        assert!(checked.is_same(), "{history}");
    }
    writeln!(out, "| the whole conversation warm, chunked, batched | {what} | bit for bit the path's own cold run |")
        .unwrap();
}

/// A synthesis as text, wrapped like the command's.
fn synthesis(found: &Synthesis) -> String {
    let mut out = format!("{}: {}\n", found.verdict.name(), found.sentence);
    let mut part = |title: &str, lines: Vec<String>| {
        writeln!(out, "\n{title}").unwrap();
        for line in lines {
            let mut width = 0;
            for (i, word) in line.split(' ').enumerate() {
                if width + word.len() > 110 || i == 0 {
                    out.push_str(if i == 0 { "  " } else { "\n    " });
                    width = 2;
                } else {
                    out.push(' ');
                }
                out.push_str(word);
                width += word.len() + 1;
            }
            out.push('\n');
        }
    };
    part(
        "facts, and where they were measured",
        found.facts.iter().map(|m| format!("[{}] {}", m.step, m.what)).collect(),
    );
    let suspects = found.suspects.iter().flat_map(|s| {
        std::iter::once(format!("{} (weight {:.2})", s.what, s.weight))
            .chain(s.evidence.iter().map(|e| format!("- {e}")))
    });
    part("suspects, the heaviest first", suspects.collect());
    part(
        "ruled out, and by which measurement",
        found.ruled_out.iter().map(|m| format!("{} [{}]", m.what, m.step)).collect(),
    );
    part("what can't be known from here", found.unknown.clone());
    part("next", found.next.iter().map(|n| format!("{}: {}", n.why, n.command)).collect());
    let _ = write!(out, "\n{:.0} s, {:.1} forward-equivalents", found.seconds, found.forward_equivalents);
    out
}

const HEAD: &str = "# The story, reproduced

Written by `cargo xtask story`; a test holds it to a run. Somebody is served by an optimized engine. A request is interrupted
while it answers, the next one says \"to a file\", and the model behaves as if that were the first message, or as if the last
minute had not happened. Single-turn checks pass, the text reads well, long single-turn generation is fine. Suspects are the
decode kernels.

Two schedulers are seeded with a fault (`faults/src/books.rs`; nothing of it is in the shipped program): an abort gives the
pages of some tensors back, which are then handed out as fresh, zeroed ones, while the prefix cache keeps them in its tree.
One loses window rows, the other entries and index keys. No kernel, weight or number is touched, and nothing happens without
an abort. The model is the mini golden model, the path stock `official` with bf16-mhc, fp8-indexer and mma-sparse-mla. The
scheduler that loses window rows is shown on `tests/fixtures/story/page-edge.toml` (a page is cut, then \"to a file\"), the other
on the built-in `tic-tac-toe` (592 tokens). What follows is what `karat isolate` says of such engines.

";

const TAIL: &str = "
## What it shows

- What is lost is named before any number is looked at: owner tags say which rows are nobody's. Window rows are the last
  tokens; entries with their index keys are everything older, and a model without them answers as if the conversation
  began at its window.
- Lost window rows cost the answer that the resumed tokens needed them for, and no other: the page's name is gone, the code
  told a minute before is there.
- The decode kernels are cleared by a measurement, not by belief: without them the history differs at the same row.
- Checks of single turns can't see it, however long, and neither can a look at the text: the gzip ratio of a fluent wrong
  answer is that of the right one.
- Measured on the CPU with contracts in the place of kernels, in a test build (`cargo xtask story`), two cores of an EPYC with
  other builds running. The fault is seeded: what a real engine did is in its own traces
  ([import-dumps.md](import-dumps.md)), and how its histories are made in [histories.md](histories.md).
";
