use std::collections::BTreeMap;

use karat_seam::{Block, Data, Recorded, Site, Tensor, TensorMut, Visitor as _};

use super::noise::{Noise, Size, Sizes};
use super::*;

fn term(shape: &str, times: f64, cost: f64) -> Term {
    let row = DerivationRow { tap: "attn.q".into(), shape: shape.into(), times, cost, ..DerivationRow::default() };
    Term { seq: None, row }
}

#[test]
fn roundings_add_up_in_squares_by_kind() {
    let terms = [term("spread", 2.0, 3e-2), term("spread", 1.0, 4e-2), term("own", 4.0, 1e-2)];
    let size = Sizes::of(&terms).at(Tap::AttnQ, 3).unwrap();
    assert!((size.spread - (2.0f64 * 9e-4 + 16e-4).sqrt()).abs() < 1e-15, "{size:?}");
    assert!((size.own - 2e-2).abs() < 1e-15, "{size:?}");
}

#[test]
fn what_a_sequence_adds_is_its_own() {
    let own = Term { seq: Some(1), ..term("spread", 1.0, 4e-2) };
    let sizes = Sizes::of(&[term("spread", 1.0, 3e-2), own]);
    let spread = |seq| sizes.at(Tap::AttnQ, seq).unwrap().spread;
    assert!((spread(1) - 5e-2).abs() < 1e-15 && (spread(0) - 3e-2).abs() < 1e-15);
    assert_eq!(sizes.at(Tap::AttnO, 0), None);
}

/// Values 1, 2, ... in rows of 500 with one that is masked.
fn golden(rows: usize) -> (Vec<RowId>, Tensor) {
    let mut values: Vec<f32> = (0..rows * 500).map(|i| 1.0 + (i % 97) as f32).collect();
    values[3] = f32::NEG_INFINITY;
    ((0..rows).map(|i| RowId::new(0, i as u32)).collect(), Tensor::f32([rows, 500], values))
}

/// A size as two terms.
fn sized(size: Size) -> Sizes {
    Sizes::of(&[term("spread", 1.0, size.spread), term("own", 1.0, size.own)])
}

fn noisy(size: Size, pieces: &[usize]) -> (Vec<f32>, BTreeMap<(Tap, u32), BTreeMap<u32, Squares>>) {
    let (rows, tensor) = golden(8);
    let site = Site::layer(2, Tap::AttnQ);
    let mut on_x = Recorder::all();
    on_x.taps.insert((site, 0), Recorded { rows: rows.clone(), tensor: tensor.clone() });
    let decode = Sizes::of(&[]);
    let phase_of = |_| Phase::Prefill;
    let blocks = (Block::Mtp(0), Block::Layer(2));
    let mut see = Noise::new(blocks, [sized(size), decode], &on_x, None, Box::new(phase_of));
    let Data::F32(mut values) = tensor.data else { panic!() };
    let mut start = 0;
    for rows_of in pieces {
        let piece = start..start + rows_of;
        let values = &mut values[piece.start * 500..piece.end * 500];
        see.visit(
            Site { block: Block::Mtp(0), ..site },
            &rows[piece.clone()],
            TensorMut::f32(&[*rows_of, 500], values),
        )
        .unwrap();
        start = piece.end;
    }
    (values, see.seen)
}

#[test]
fn noise_has_the_size_that_was_asked_for_and_follows_from_the_place_alone() {
    for size in [Size { spread: 1e-2, own: 0.0 }, Size { spread: 0.0, own: 2e-3 }, Size { spread: 3e-3, own: 4e-3 }] {
        let (values, seen) = noisy(size, &[8]);
        let predicted = Predicted { rows: Arc::new(seen.clone()), ..Predicted::default() };
        let (rows, tensor) = golden(8);
        let (got, carry) = predicted.over(Tap::AttnQ, rows.iter()).unwrap();
        assert!((7.0..=8.0).contains(&carry), "eight rows alike: {carry}");
        let asked = (size.spread * size.spread + size.own * size.own).sqrt();
        assert!((got / asked - 1.0).abs() < 0.05, "{size:?}: {got:e}");
        // The same by hand.
        let Data::F32(golden) = &tensor.data else { panic!() };
        let finite = || golden.iter().zip(&values).filter(|(g, _)| g.is_finite());
        let (d, x) = finite().fold((0.0, 0.0), |(d, x), (g, v)| {
            (d + (f64::from(*v) - f64::from(*g)).powi(2), x + f64::from(*g).powi(2))
        });
        assert!((got - f64::sqrt(d / x)).abs() < 1e-12);
        assert!(values[3] == f32::NEG_INFINITY);
        assert_eq!(noisy(size, &[3, 5]), (values, seen));
    }
}

#[test]
fn what_was_derived_reads_back_and_half_of_it_does_not() {
    let (_, seen) = noisy(Size { spread: 1e-2, own: 0.0 }, &[8]);
    let rows = lanes::write(&seen);
    assert_eq!(lanes::read(&rows), Some(seen.clone()));
    assert!((0..rows.len()).step_by(7).all(|n| lanes::read(&rows[..n]).is_none()));
    let all = Predicted {
        rows: Arc::new(seen),
        kept: Some([7; 32]),
        terms: vec![term("own", 1.0, 1.7e-3), Term { seq: Some(4), ..term("own", 1.0, 1e-3) }],
        decode: Some(vec![term("spread", 2.0, 1e-2)]),
    };
    let bytes = all.write(&[7; 32]);
    assert_eq!(Predicted::read(&bytes), Some(Predicted { rows: Arc::default(), ..all.clone() }));
    assert!((0..bytes.len()).step_by(7).all(|n| Predicted::read(&bytes[..n]).is_none()));
    assert_eq!(all.over(Tap::AttnQ, [RowId::new(0, 9)].iter()), None, "a row that golden did not compute");
    assert_eq!(all.over(Tap::AttnO, [RowId::new(0, 0)].iter()), None);
}
