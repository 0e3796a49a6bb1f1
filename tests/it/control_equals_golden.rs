//! The control: the optimized path with no patch in f32 is within 1e-5 of golden at every tap, with identical
//! decisions, although the two share no arithmetic. Models: the oracle's, and both that `model new` makes.

use std::sync::Arc;

use karat_model::{Checkpoint, Geometry, new_model};
use karat_optimized::{History, Optimized, Plan, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{Recorder, Requests, Sequence, Tap};
use karat_tests::{cold_run, rel_max};

use crate::optimized_drive::{ids, tiny, turns};

#[test]
fn stock_none_equals_golden() {
    let made = |geometry, seed| Arc::new(Checkpoint::from_memory("made", new_model(geometry, seed)).unwrap());
    for (name, checkpoint) in
        [("tiny-v4", tiny()), ("default", made(Geometry::Default, 5)), ("mini", made(Geometry::Mini, 6))]
    {
        let requests =
            Requests { seqs: vec![turns("a", ids(150, 31), &[90, 20, 30, 10]), Sequence::prompt("b", ids(37, 32))] };
        let golden = Golden::new(Arc::clone(&checkpoint), requests.clone(), Mode::F32, 2).unwrap();
        let mut want = Recorder::all();
        cold_run(&golden, &mut want).unwrap();
        for history in [History::Cold, History::Decoded] {
            let plan = Plan { stock: Stock::None, patches: vec![], history };
            let control = Optimized::new(Arc::clone(&checkpoint), requests.clone(), plan, 2).unwrap();
            let mut got = Recorder::all();
            cold_run(&control, &mut got).unwrap();
            assert_eq!(got.taps.keys().collect::<Vec<_>>(), want.taps.keys().collect::<Vec<_>>(), "{name}");
            let mut worst = (0.0, String::new());
            for ((site, seq), golden) in &want.taps {
                let control = &got.taps[&(*site, *seq)];
                assert_eq!(control.rows, golden.rows, "{name}: {site}");
                assert_eq!(control.tensor.shape, golden.tensor.shape, "{name}: {site}");
                if site.tap.is_discrete() {
                    assert_eq!(control.tensor, golden.tensor, "{name}, {history}: {site}, sequence {seq}");
                    continue;
                }
                // A tap that adds up the rounding of every layer before it is allowed the logits' bound.
                let most = if site.tap == Tap::Logits { 2e-5 } else { 1e-5 };
                let error = rel_max(control.tensor.as_f32("tap").unwrap(), golden.tensor.as_f32("tap").unwrap());
                assert!(error < most, "{name}, {history}: {site}, sequence {seq}: {error:e}");
                if error > worst.0 {
                    worst = (error, site.to_string());
                }
            }
            println!("{name}, {history}: worst tap {} {:.1e}", worst.1, worst.0);
        }
    }
}
