use std::collections::BTreeMap;
use std::sync::Arc;

use karat_model::{Checkpoint, Geometry, new_model};
use karat_seam::{Lane, Path as _, Recorder, Requests, Sequence, Span, SpanKind, Streams, Turn};

use crate::{History, Optimized, Plan, Stock, patches};

fn requests() -> Requests {
    let spans = vec![
        Span { kind: SpanKind::Prompt, start: 0, end: 40 },
        Span { kind: SpanKind::Generated, start: 40, end: 52 },
    ];
    let ids: Arc<[u32]> = (0..52).map(|i| i * i * 7 % 96).collect();
    Requests { seqs: vec![Sequence { id: "a".into(), ids, turns: vec![Turn { spans, interrupted: false }] }] }
}

/// Everything that a layer shows and gives out.
fn run(path: &Optimized, l: u16, x: &Streams) -> (String, Streams) {
    let mut seen = Recorder::all();
    let mut lanes = [Lane::new(x, &mut seen)];
    path.layer(l).unwrap().run(&mut lanes).unwrap();
    let out = lanes[0].out.take().unwrap().streams;
    let shown: Vec<String> =
        seen.taps.iter().map(|(at, tap)| format!("{at:?} {:?} {:?}", tap.rows, tap.tensor)).collect();
    (shown.join("\n"), out)
}

#[test]
fn a_layer_that_keeps_its_identity_under_a_patch_keeps_every_bit() {
    let checkpoint = Arc::new(Checkpoint::from_memory("mini", new_model(Geometry::Mini, 5)).unwrap());
    let path = |patches: Vec<String>| {
        let plan = Plan { stock: Stock::Official, patches, history: History::Cold };
        Optimized::new(Arc::clone(&checkpoint), requests(), plan, 1)
    };
    let stock = path(vec![]).unwrap();
    let layers = stock.blocks().layers;
    let mut inputs = vec![stock.embed(&mut Recorder::all()).unwrap()];
    let mut expected = Vec::new();
    for l in 0..layers {
        let (shown, out) = run(&stock, l, &inputs[usize::from(l)]);
        expected.push((shown, out.clone()));
        inputs.push(out);
    }
    let mut kept: BTreeMap<&str, Vec<u16>> = BTreeMap::new();
    for patch in patches() {
        // Some can't run on this model.
        let Ok(patched) = path(vec![patch.name.to_string()]) else { continue };
        for l in 0..layers {
            if patched.layer_identity(l) == stock.layer_identity(l) {
                kept.entry(patch.name).or_default().push(l);
                let found = run(&patched, l, &inputs[usize::from(l)]);
                assert!(found == expected[usize::from(l)], "{} in layer {l}", patch.name);
            }
        }
        if patched.identity() == stock.identity() {
            // Its rule is this profile's already.
            assert_eq!(kept[patch.name].len(), usize::from(layers), "{}", patch.name);
        }
    }
    let with_indexer = |l: &u16| checkpoint.config().layers[usize::from(*l)].has_indexer();
    let without: Vec<u16> = (0..layers).filter(|l| !with_indexer(l)).collect();
    assert!(!without.is_empty() && without.len() < usize::from(layers));
    assert_eq!(kept["fp8-indexer"], without);
    assert_eq!(kept["bf16-lm-head"], (0..layers).collect::<Vec<_>>());
    assert!(!kept.contains_key("bf16-mhc") && !kept.contains_key("mma-sparse-mla"));
}
