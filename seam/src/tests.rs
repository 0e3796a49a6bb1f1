use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[test]
fn every_op_has_one_row_and_every_computed_tap_one_writer() {
    let ops: Vec<Op> = OpSpec::graph().iter().map(|s| s.op).collect();
    let mut sorted = ops.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(ops, sorted, "the graph is in op order, each op once");
    assert_eq!(Op::HeadLogits as usize + 1, ops.len());
    let written: Vec<Tap> = OpSpec::graph().iter().flat_map(|s| s.writes.iter().copied()).collect();
    assert_eq!(written.len(), written.iter().collect::<BTreeSet<_>>().len());
    for tap in Tap::ALL {
        let input = matches!(tap, Tap::Embed | Tap::In | Tap::HFinal) || tap.is_state();
        assert_eq!(OpSpec::writer_of(*tap).is_none(), input, "{}", tap.name());
    }
}

#[test]
fn an_op_reads_only_what_an_earlier_op_wrote() {
    let mut seen: BTreeSet<Tap> = [Tap::Out, Tap::HFinal].into();
    for spec in OpSpec::graph() {
        for tap in spec.reads {
            assert!(seen.contains(tap), "{} reads {} too early", spec.name, tap.name());
        }
        seen.extend(spec.writes);
    }
}

#[test]
fn names_read_back() {
    for tap in Tap::ALL {
        for block in [Block::Embed, Block::Layer(12), Block::Head, Block::Mtp(0)] {
            let site = Site { block, tap: *tap };
            let text = site.to_string();
            if let Ok(back) = text.parse::<Site>() {
                assert_eq!(back.to_string(), text);
            }
        }
    }
    assert_eq!("layers.12.attn.o".parse(), Ok(Site::layer(12, Tap::AttnO)));
    assert_eq!("state/layers.3.win_pos".parse(), Ok(Site::layer(3, Tap::StateWinPos)));
    assert_eq!("mtp.0.logits".parse(), Ok(Site { block: Block::Mtp(0), tap: Tap::Logits }));
    assert_eq!("mtp.0.in".parse(), Ok(Site { block: Block::Mtp(0), tap: Tap::In }));
    for bad in
        ["layers.01.out", "layers.0.logits", "layers.0.in", "in", "state.win", "layers.0.nope", "", "layers.99999.out"]
    {
        assert!(bad.parse::<Site>().is_err(), "{bad}");
    }
}

fn visit(recorder: &mut Recorder, site: Site, rows: &[RowId], tensor: &mut Tensor) -> Result<()> {
    recorder.visit(site, rows, tensor.as_mut())
}

#[test]
fn a_recorder_joins_pieces_and_widens_ragged_ones() {
    let site = Site::layer(0, Tap::AttnIndexScore);
    let mut r = Recorder::all();
    visit(&mut r, site, &[RowId::new(0, 0)], &mut Tensor::f32([1, 0], vec![])).unwrap();
    visit(&mut r, site, &[RowId::new(0, 1), RowId::new(0, 2)], &mut Tensor::f32([2, 1], vec![1.0, 2.0])).unwrap();
    let got = r.get(site, 0).unwrap();
    assert_eq!(got.tensor, Tensor::f32([3, 1], vec![f32::NEG_INFINITY, 1.0, 2.0]));
    assert_eq!(got.rows.iter().map(|r| r.pos).collect::<Vec<_>>(), [0, 1, 2]);
    let other = [RowId::new(0, 3), RowId::new(1, 0)];
    assert!(visit(&mut r, site, &other, &mut Tensor::f32([2, 1], vec![0.0; 2])).is_err());
    let odd = Site::layer(0, Tap::AttnIn);
    visit(&mut r, odd, &[RowId::new(0, 0)], &mut Tensor::f32([1, 2], vec![0.0; 2])).unwrap();
    assert!(visit(&mut r, odd, &[RowId::new(0, 1)], &mut Tensor::f32([1, 3], vec![0.0; 3])).is_err());
}

proptest! {
    #[test]
    fn site_parsing_takes_any_text(text in ".{0,40}") {
        if let Ok(site) = text.parse::<Site>() {
            prop_assert_eq!(site.to_string(), text);
        }
    }

    #[test]
    fn recording_in_pieces_equals_recording_at_once(cuts in proptest::collection::vec(1usize..5, 1..6), width in 1usize..4) {
        let n: usize = cuts.iter().sum();
        let values: Vec<f32> = (0..n * width).map(|i| i as f32).collect();
        let rows: Vec<RowId> = (0..n as u32).map(|p| RowId::new(0, p)).collect();
        let site = Site::layer(1, Tap::AttnIn);
        let mut whole = Recorder::all();
        visit(&mut whole, site, &rows, &mut Tensor::f32([n, width], values.clone())).unwrap();
        let mut pieces = Recorder::all();
        let mut at = 0;
        for c in cuts {
            let mut t = Tensor::f32([c, width], values[at * width..(at + c) * width].to_vec());
            visit(&mut pieces, site, &rows[at..at + c], &mut t).unwrap();
            at += c;
        }
        prop_assert_eq!(whole.taps, pieces.taps);
    }
}
