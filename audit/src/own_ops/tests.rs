use super::*;

fn tensor(values: &[f32]) -> Tensor {
    Tensor { shape: vec![values.len() / 2, 2], data: Data::F32(values.to_vec()) }
}

#[test]
fn the_error_of_some_rows_follows_its_formula_and_nothing_vanishes() {
    let rel_l2 = |g: &Tensor, t: &Tensor, rows: &[usize]| found(g, t, rows).map(|f| (f.error, f.worst));
    // |(0,1)| / |(3,4)| = 1/5 in the second row; the first is not asked for.
    let (golden, theirs) = (tensor(&[1.0, 1.0, 3.0, 4.0]), tensor(&[9.0, 9.0, 3.0, 5.0]));
    assert_eq!(rel_l2(&golden, &theirs, &[1]), Some((0.2, 1)));
    assert_eq!(rel_l2(&golden, &theirs, &[]), None);

    let zero = tensor(&[0.0; 4]);
    assert_eq!(rel_l2(&zero, &zero, &[0, 1]), None);
    assert_eq!(rel_l2(&zero, &theirs, &[0]), Some((f64::INFINITY, 0)));
    for (golden, theirs) in [([1.0, 1.0, f32::NAN, 1.0], [1.0; 4]), ([1.0; 4], [1.0, 1.0, 1.0, f32::NAN])] {
        let (error, worst) = rel_l2(&tensor(&golden), &tensor(&theirs), &[0, 1]).unwrap();
        assert!(error.is_nan() && worst == 1);
    }
    // A masked score is none.
    let masked = tensor(&[f32::NEG_INFINITY, 2.0, f32::NEG_INFINITY, 2.0]);
    assert_eq!(found(&masked, &masked, &[0, 1]), Some(Distance { error: 0.0, worst: 0, carry: 2.0 }));
}
