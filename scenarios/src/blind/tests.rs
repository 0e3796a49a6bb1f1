use super::Blind;

#[test]
fn the_surface_is_counted() {
    let b = Blind::of("the code is K1.\nthe the the end\n\nthe code is K1.\n");
    assert_eq!((b.max_word_run, b.max_line_repeat), (3, 2));
    // the (5), code (2), is (2), K1. (2), end.
    assert!((b.unique_word_ratio.unwrap() - 5.0 / 12.0).abs() < 1e-12, "{b:?}");
    assert!(Blind::of(&"again and ".repeat(400)).gzip_ratio.unwrap() < 0.03);
    let empty = Blind::of("");
    assert_eq!(
        (empty.gzip_ratio, empty.unique_word_ratio, empty.max_word_run, empty.max_line_repeat),
        (None, None, 0, 0)
    );
}

#[test]
fn a_wrong_value_looks_like_the_right_one() {
    let (right, wrong) =
        (Blind::of("the code of the amber falcon is K472."), Blind::of("the code of the amber falcon is B891."));
    assert_eq!(right, wrong);
}
