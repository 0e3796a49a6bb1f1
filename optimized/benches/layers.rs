//! Times whole layers of the low-precision path, of each kind, in stock, with each speed patch, and without any
//! rounding: `cargo bench -p karat-optimized`. One thread, 160 tokens of which the last 32 are decoded.

use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use karat_model::config::LayerKind;
use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Optimized, Plan, Stock, patches};
use karat_seam::{Lane, Path as _, Recorder, Requests, Sequence, Span, SpanKind, Turn};

const PROMPT: u32 = 128;
const ALL: u32 = 160;

fn requests(vocab: u32) -> Requests {
    let spans = vec![
        Span { kind: SpanKind::Prompt, start: 0, end: PROMPT },
        Span { kind: SpanKind::Generated, start: PROMPT, end: ALL },
    ];
    let ids: Arc<[u32]> = (0..ALL).map(|i| i * i * 31 % vocab).collect();
    Requests { seqs: vec![Sequence { id: "a".into(), ids, turns: vec![Turn { spans, interrupted: false }] }] }
}

fn main() {
    let criterion = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(100));
    let mut criterion = criterion.measurement_time(Duration::from_millis(500)).configure_from_args();
    let checkpoint = Checkpoint::from_memory("mini", new_model(Geometry::Mini, 5)).expect("a seeded model opens");
    let checkpoint = Arc::new(checkpoint);
    let requests = requests(checkpoint.config().vocab_size as u32);
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
