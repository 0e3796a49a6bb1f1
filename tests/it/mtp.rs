//! The optimized path's MTP block. In f32 its logits are the oracle's (an independent port of the model, on the tiny
//! checkpoint) within 2e-5, and every tap is golden's within 1e-5 with the same experts; under a stock profile every tap
//! that is stored in bf16 holds bf16 values. Decode steps and chunks change no bit.

use karat_optimized::{History, Optimized, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{Block, Data, Lane, NoTaps, Path, Recorder, Requests, Sequence, Streams, Tap, Tensor, Visitor};
use karat_tests::{bits, cold_run, oracle, rel_max};

use crate::optimized_drive::{ids, optimized, prompt_of, tiny, turns};

/// The id after each position; after the last the first.
fn next_of(ids: &[u32]) -> Vec<u32> {
    ids.iter().skip(1).chain(ids.first()).copied().collect()
}

fn block(path: &dyn Path, streams: &Streams, next: &[u32], see: &mut dyn Visitor) -> Tensor {
    path.mtp(0, &mut [Lane::new(streams, see)], next).unwrap().remove(0)
}

#[test]
fn in_f32_it_is_the_oracle_s_and_golden_s() {
    let oracle = oracle("short");
    let requests = prompt_of(&oracle["input_ids"]);
    let next: Vec<u32> = oracle["mtp_next_ids"].as_i64("next").unwrap().iter().map(|&v| v as u32).collect();
    let path = optimized(Stock::None, &[], History::Cold, requests.clone());
    assert_eq!(path.blocks().mtp, 1);
    let (streams, _) = cold_run(&path, &mut NoTaps).unwrap();
    let mut seen = Recorder::all();
    let logits = block(&path, &streams, &next, &mut seen);
    let want = oracle["port.mtp_logits"].as_f32("mtp").unwrap();
    let found = rel_max(logits.as_f32("mtp").unwrap(), want);
    assert!(found <= 2e-5, "{found:e}");
    let golden = Golden::new(tiny(), requests, Mode::F32, 2).unwrap();
    let mut wanted = Recorder::all();
    block(&golden, &streams, &next, &mut wanted);
    assert!(wanted.taps.len() > 20);
    for ((site, seq), want) in &wanted.taps {
        assert_eq!(site.block, Block::Mtp(0));
        let got = &seen.get(*site, *seq).unwrap_or_else(|| panic!("{site} is missing")).tensor;
        assert_eq!(got.shape, want.tensor.shape, "{site}");
        match (&got.data, &want.tensor.data) {
            (Data::F32(a), Data::F32(b)) => assert!(rel_max(a, b) <= 1e-5, "{site}: {:e}", rel_max(a, b)),
            (a, b) => assert_eq!(a, b, "{site}"),
        }
    }
}

#[test]
fn a_stock_profile_rounds_it_where_it_rounds_a_layer() {
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids(70, 9))] };
    let path = optimized(Stock::Official, &[], History::Cold, requests.clone());
    let (streams, _) = cold_run(&path, &mut NoTaps).unwrap();
    let (mut seen, next) = (Recorder::all(), next_of(&ids(70, 9)));
    let logits = block(&path, &streams, &next, &mut seen);
    for tap in [Tap::Embed, Tap::AttnIn, Tap::AttnOut, Tap::FfnOut, Tap::Out, Tap::HFinal, Tap::HeadCollapsed] {
        let site = karat_seam::Site { block: Block::Mtp(0), tap };
        let values = seen.get(site, 0).unwrap_or_else(|| panic!("{site}")).tensor.as_f32("tap").unwrap();
        assert!(values.iter().all(|v| v.to_bits().trailing_zeros() >= 16), "{site} is stored in bf16");
    }
    let golden = Golden::new(tiny(), requests, Mode::F32, 2).unwrap();
    let exact = block(&golden, &streams, &next, &mut NoTaps);
    let far = rel_max(logits.as_f32("mtp").unwrap(), exact.as_f32("mtp").unwrap());
    assert!(far > 1e-4 && far < 0.5, "quantised, and still the block: {far:e}");
}

#[test]
fn decode_and_chunks_change_no_bit_of_it() {
    let all = ids(90, 4);
    let run = |stock, history, sequence| {
        let path: Optimized = optimized(stock, &[], history, Requests { seqs: vec![sequence] });
        let (streams, _) = cold_run(&path, &mut NoTaps).unwrap();
        bits(&block(&path, &streams, &next_of(&all), &mut NoTaps))
    };
    for stock in [Stock::None, Stock::Official] {
        let cold = run(stock, History::Cold, Sequence::prompt("a", all.clone()));
        assert!(cold == run(stock, History::Decoded, turns("a", all.clone(), &[40, 50])), "{stock}");
        assert!(cold == run(stock, History::Chunked { size: 17 }, Sequence::prompt("a", all.clone())), "{stock}");
    }
}

#[test]
fn bad_asks_are_refused() {
    let path = optimized(Stock::None, &[], History::Cold, Requests { seqs: vec![Sequence::prompt("a", ids(5, 1))] });
    let (streams, _) = cold_run(&path, &mut NoTaps).unwrap();
    let ask = |i, next: &[u32]| path.mtp(i, &mut [Lane::new(&streams, &mut NoTaps)], next).is_err();
    assert!(ask(1, &[0; 5]) && ask(0, &[0; 4]) && ask(0, &[512; 5]) && !ask(0, &[511; 5]));
}
