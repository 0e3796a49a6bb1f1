//! Where lost window rows cost an answer: what is asked just before the edge of a cache page, at which the request resumes.

use std::fmt::Write as _;

use karat_faults::books::RECENT;
use karat_faults::{Bench, Edit, Fault};
use karat_optimized::serving::Served;
use karat_optimized::{History, Plan, Stock};
use karat_scenarios::Content;
use karat_seam::{Block, NoTaps, Op, Requests, Result, Tap, Tensor};
use karat_tests::cold_run;

use super::{PATCHES, Stage, served};

/// The conversation that the first part of the page is about.
pub(super) const PATH: &str = "tests/fixtures/story/page-edge.toml";
pub(super) const FILE: &str = include_str!("../../fixtures/story/page-edge.toml");

/// Tokens by which the request for the page is moved away from the edge, in the table.
const MOVED: std::ops::RangeInclusive<usize> = 0..=34;

/// The conversation with so many tokens of small talk less: whole sentences of seven, then adjectives.
fn earlier(tokens: usize) -> String {
    let (mut sentences, mut adjectives) = (tokens / 7, tokens % 7);
    let line = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        // Six words and the sign that goes on with the next line.
        if !(line.starts_with("the ") && line.ends_with('\\') && words.len() == 7) {
            return Some(line.to_owned());
        }
        if sentences > 0 {
            sentences -= 1;
            return None;
        }
        if adjectives > 0 {
            adjectives -= 1;
            words.remove(1);
        }
        Some(words.join(" "))
    };
    FILE.lines().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// The worst margin over some tokens, and the most likely ids there.
fn margin(logits: &[f32], ids: &[u32], at: std::ops::Range<usize>, vocab: usize) -> (f32, Vec<u32>) {
    let (mut worst, mut said) = (f32::INFINITY, Vec::new());
    for pos in at {
        let (row, id) = (&logits[(pos - 1) * vocab..pos * vocab], ids[pos] as usize);
        let others = (0..vocab).filter(|i| *i != id);
        let other = others.max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        worst = worst.min(row[id] - row[other]);
        said.push(if row[id] > row[other] { id } else { other } as u32);
    }
    (worst, said)
}

/// The same conversation with the request for the page at several distances from the edge.
pub(super) fn section(out: &mut String, stage: &Stage) {
    let mut requests = Requests::default();
    let mut asks = Vec::new();
    for moved in MOVED.step_by(2) {
        let name = format!("moved-{moved}");
        let inputs = stage.of(Content::from_toml(&name, &name, &earlier(moved)).unwrap(), &name);
        requests.seqs.extend(inputs.requests.seqs);
        asks.extend(inputs.asks);
    }
    let (mut checker, geometry) = stage.checker(&requests, &PATCHES);
    checker.run_golden().unwrap();
    let checked = served(&mut checker, geometry, &requests, Served::AfterAbort, RECENT);
    let vocab = stage.checkpoint.config().vocab_size;
    out.push_str(HEAD);
    let mut lost_at = Vec::new();
    for (seq, of) in checked.sequences.iter().enumerate() {
        let ids = &requests.seqs[seq].ids;
        let lost = checked.lost.iter().find(|l| l.seq == seq as u32).expect("window rows are lost");
        let edge = lost.positions.last().unwrap() + 1;
        let (mut cells, mut lost_name) = (Vec::new(), false);
        for ask in &asks[seq] {
            let sound = ask.positions().all(|pos| of.positions[pos - 1].1.top1_golden == ids[pos]);
            assert!(sound, "golden gives every answer: {} {}", of.name, ask.expected);
            let (worst, said) = margin(&of.values, ids, ask.positions(), vocab);
            cells.push(cell(stage, worst, &said));
            lost_name |= ask.kind == "interrupted" && worst <= 0.0;
        }
        let name = asks[seq].iter().find(|a| a.kind == "interrupted").unwrap();
        let behind = name.told.unwrap() as usize + name.answer.len();
        writeln!(out, "| {} | {} |", edge - behind, cells.join(" | ")).unwrap();
        lost_at.extend(lost_name.then_some(edge - behind));
    }
    assert_eq!(lost_at, [4, 6, 8, 10, 38], "the words below the table say so");
    out.push_str(LAYERS);
    let lost_in: Vec<&[u16]> = LOST_IN.into_iter().filter(|layers| layers_row(out, stage, layers)).collect();
    let (enough, harmless): ([&[u16]; 3], &[u16]) = ([LOST_IN[0], &[0, 1], &[3]], &[2, 4, 6]);
    let is_said = enough.iter().all(|l| lost_in.contains(l)) && !lost_in.contains(&harmless);
    assert!(is_said, "the words below the table say otherwise: {lost_in:?}");
    out.push_str(TAIL);
}

/// The page's edge in the fixture.
const EDGE: usize = 128;
const LOST_IN: [&[u16]; 11] =
    [&[0, 1, 2, 3, 4, 5, 6], &[0, 1], &[2, 3, 4, 5, 6], &[2, 4, 6], &[0], &[1], &[2], &[3], &[4], &[5], &[6]];

/// Whoever stands behind the edge sees zeros for window rows before it.
fn no_rows(e: &mut Edit<'_>) -> Result<()> {
    let kv = e.seen(Tap::AttnKv)?;
    let mut values = kv.as_f32("attn.kv")?.to_vec();
    let end = (EDGE * kv.width()).min(values.len());
    values[..end].fill(0.0);
    let new = e.rerun(Op::Attend, &[(Tap::AttnKv, Tensor::f32(kv.shape.clone(), values))])?;
    e.put(&new)
}

/// The fixture with window rows lost in some layers alone: whether the page's name is lost.
fn layers_row(out: &mut String, stage: &Stage, layers: &[u16]) -> bool {
    let inputs = stage.inputs(PATH);
    let blocks: Vec<Block> = layers.iter().map(|l| Block::Layer(*l)).collect();
    let fault = Fault {
        id: "rows",
        block: blocks[0],
        blocks: Box::leak(blocks.into()),
        rows: |pos, _| pos as usize >= EDGE,
        taps: &[Tap::AttnO, Tap::AttnLse],
        edit: Some(no_rows),
        ..Fault::NONE
    };
    let patches = PATCHES.map(String::from).to_vec();
    let plan = Plan { stock: Stock::Official, patches, history: History::Cold };
    let bench = Bench::on(karat_golden::files(), inputs.requests.clone(), plan, 2).unwrap();
    let logits = bench.with_fault(Box::leak(Box::new(fault)), |path| Ok(cold_run(path, &mut NoTaps)?.1)).unwrap();
    let (ids, vocab) = (&inputs.requests.seqs[0].ids, logits.width());
    let (mut cells, mut lost_name) = (Vec::new(), false);
    for ask in &inputs.asks[0] {
        let (worst, said) = margin(logits.as_f32("logits").unwrap(), ids, ask.positions(), vocab);
        cells.push(cell(stage, worst, &said));
        lost_name |= ask.kind == "interrupted" && worst <= 0.0;
    }
    let names: Vec<String> = layers.iter().map(u16::to_string).collect();
    writeln!(out, "| {} | {} |", names.join(", "), cells.join(" | ")).unwrap();
    lost_name
}

/// What came of an answer.
fn cell(stage: &Stage, worst: f32, said: &[u32]) -> String {
    match worst > 0.0 {
        true => format!("given, by {worst:.1} nats"),
        false => format!("lost: `{}`", stage.tokenizer.decode(said).unwrap().trim()),
    }
}

const HEAD: &str = "## Which lost window rows cost an answer

Compressed entries of four tokens are whole at a page's edge, so that layers 2, 4 and 6 still see every token before it. Layers 0
and 1 have the window alone, layers 3 and 5 besides it one entry for all 128 tokens. So what is lost is what tokens behind the edge
should have taken along from just before it. The same conversation with less small talk in front, so that the page is asked
for earlier:

| tokens from the page's name to the edge | \"to a file\": which page? | the code told first |
|---|---|---|
";

const LAYERS: &str = "
The name is lost where the edge comes at most 10 tokens behind it, about where the text of the page begins; from 12 on tokens before
the edge have taken it along. It is lost once more at 38, where the row that must say the name is the first behind the edge.

The same loss at the first of these distances, put into some layers alone (attention behind the edge over zeros in the place of the
window's rows before it; with all layers it is the scheduler's loss, reached in another way):

| layers | \"to a file\": which page? | the code told first |
|---|---|---|
";

const TAIL: &str = "
Layers 0 and 1 together are enough, and so is layer 3 alone. Layers 2, 4 and 6 find the name without their windows.

In `tic-tac-toe`, whose request resumes at token 512, the same scheduler costs none of three answers (measured before this page was
written anew). `karat isolate` finds the loss there too: the rows are nobody's, whatever they cost.

";
