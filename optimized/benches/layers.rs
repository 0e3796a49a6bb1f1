//! Times whole layers of the low-precision path, of each kind, in stock, with each speed patch, and without any
//! rounding: `cargo bench -p karat-optimized`. One thread, 160 tokens of which the last 32 are decoded. And what sharing
//! the weight pass leaves of leave-one-in and leave-one-out runs beside their arithmetic alone: `.. -- lanes`.
#![expect(clippy::print_stdout, reason = "the table of lanes is for people")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use karat_model::config::LayerKind;
use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{DEFAULT_PATCHES, History, Optimized, PatchSets, Plan, Stock, patches};
use karat_seam::{Lane, NoTaps, Path as _, Recorder, Requests, Sequence, Span, SpanKind, Streams, Together as _, Turn};

const PROMPT: u32 = 128;
const DECODED: u32 = 32;
const ALL: u32 = PROMPT + DECODED;

fn requests(vocab: u32, prompt: u32) -> Requests {
    let all = prompt + DECODED;
    let spans = vec![
        Span { kind: SpanKind::Prompt, start: 0, end: prompt },
        Span { kind: SpanKind::Generated, start: prompt, end: all },
    ];
    let ids: Arc<[u32]> = (0..all).map(|i| i * i * 31 % vocab).collect();
    Requests { seqs: vec![Sequence { id: "a".into(), ids, turns: vec![Turn { spans, interrupted: false }] }] }
}

/// Patches of the larger of the two tables: what a deployment has on at once.
const SIX: [&str; 6] = ["bf16-mhc", "fp8-indexer", "mma-sparse-mla", "fp8-kv", "bf16-router", "fused-qkv-a"];

/// Every patch alone, and all without each.
fn one_in_one_out(names: &[&str]) -> Vec<Plan> {
    let only = names.iter().map(|p| vec![(*p).to_string()]);
    let without = names.iter().map(|p| names.iter().filter(|q| *q != p).map(ToString::to_string).collect());
    only.chain(without).map(|patches| Plan { stock: Stock::Official, patches, history: History::Cold }).collect()
}

/// All layers for all sets in one weight pass: seconds, and those of them that went into reading and decoding weights.
fn pass(sets: &PatchSets) -> [f64; 2] {
    let members: Vec<usize> = (0..sets.sets().len()).collect();
    let (start, before) = (Instant::now(), sets.weight_time().as_secs_f64());
    let mut x: Vec<Streams> =
        sets.sets().iter().map(|path| path.embed(&mut NoTaps).expect("ids are in the vocabulary")).collect();
    for l in 0..sets.sets()[0].blocks().layers {
        let mut blind = vec![NoTaps; members.len()];
        let mut lanes: Vec<Lane<'_>> = x.iter().zip(&mut blind).map(|(x, see)| Lane::new(x, see)).collect();
        sets.layer(l, &members, &mut lanes).expect("the layer runs");
        x = lanes.into_iter().map(|lane| lane.out.expect("a layer fills every lane").streams).collect();
    }
    [start.elapsed().as_secs_f64(), sets.weight_time().as_secs_f64() - before]
}

/// 2P sets together beside the arithmetic of each alone (its time less that of its weights): at most 1.15 is asked.
fn lanes(checkpoint: &Arc<Checkpoint>) {
    println!("lanes: 2P patch sets of P patches, one thread, taking turns, best of each");
    println!("| P | tokens | together s | of it weights s | each alone s | its arithmetic s | together / arithmetic |");
    println!("|---|---|---|---|---|---|---|");
    for names in [&DEFAULT_PATCHES[..], &SIX[..]] {
        for prompt in [128, 480, 2016] {
            let requests = requests(checkpoint.config().vocab_size as u32, prompt);
            let make = |plans| PatchSets::new(checkpoint, &requests, plans, 1).expect("the sets are made");
            let plans = one_in_one_out(names);
            let all = make(plans.clone());
            let alone: Vec<PatchSets> = plans.into_iter().map(|plan| make(vec![plan])).collect();
            let (mut together, mut apart) = ([f64::INFINITY; 2], [f64::INFINITY; 2]);
            let keep = |best: &mut [f64; 2], found: [f64; 2]| {
                if found[0] < best[0] {
                    *best = found;
                }
            };
            for _ in 0..2 {
                keep(&mut together, pass(&all));
                let each = alone.iter().map(pass).fold([0.0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
                keep(&mut apart, each);
                keep(&mut together, pass(&all));
            }
            let (arithmetic, tokens) = (apart[0] - apart[1], prompt + DECODED);
            println!(
                "| {} | {tokens} | {:.3} | {:.3} | {:.3} | {arithmetic:.3} | **{:.3}** |",
                names.len(),
                together[0],
                together[1],
                apart[0],
                together[0] / arithmetic
            );
        }
    }
}

fn main() {
    let criterion = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(100));
    let mut criterion = criterion.measurement_time(Duration::from_millis(500)).configure_from_args();
    let checkpoint = Checkpoint::from_memory("mini", new_model(Geometry::Mini, 5)).expect("a seeded model opens");
    let checkpoint = Arc::new(checkpoint);
    if std::env::args().any(|a| a == "lanes") {
        lanes(&checkpoint);
        return;
    }
    let requests = requests(checkpoint.config().vocab_size as u32, PROMPT);
    let mut sets = vec![("no rounding".to_string(), Stock::None, vec![]), ("stock".into(), Stock::Official, vec![])];
    for patch in patches() {
        sets.push((format!("stock+{}", patch.name), Stock::Official, vec![patch.name.to_string()]));
    }
    let kinds = &checkpoint.config().layers;
    let all: [(&str, fn(&LayerKind) -> bool); 3] = [
        ("sliding", |kind| matches!(kind, LayerKind::Sliding)),
        ("csa", |kind| matches!(kind, LayerKind::Csa { .. })),
        ("hca", |kind| matches!(kind, LayerKind::Hca { .. })),
    ];
    for (name, is_wanted) in all {
        let Some(l) = kinds.iter().position(is_wanted) else { continue };
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(u64::from(ALL)));
        for (set, stock, patches) in &sets {
            let plan = Plan { stock: *stock, patches: patches.clone(), history: History::Cold };
            // A patch that this model can't run is no failure of the bench.
            let Ok(path) = Optimized::new(Arc::clone(&checkpoint), requests.clone(), plan, 1) else { continue };
            let mut blind = Recorder::new(|_| false);
            let x = path.embed(&mut blind).expect("ids are in the vocabulary");
            let layer = path.layer(l as u16).expect("the layer exists");
            group.bench_function(set, |bencher| {
                bencher.iter(|| {
                    let mut lanes = [Lane::new(&x, &mut blind)];
                    layer.run(&mut lanes)
                });
            });
        }
        group.finish();
    }
    criterion.final_summary();
}
