use karat_diff::Claims;
use karat_seam::Tap;

use super::{judge, limit, ranges};

/// Unit rows along the first axis, `off` of them by so much along the second.
fn rows(n: usize, off: &[(usize, f32)]) -> (Vec<f32>, Vec<f32>, Vec<u32>) {
    let ours = [1.0, 0.0].repeat(n);
    let mut theirs = ours.clone();
    off.iter().for_each(|(i, by)| theirs[2 * i + 1] = *by);
    (theirs, ours, (0..n as u32).collect())
}

#[test]
fn rows_are_bad_beyond_what_is_explained() {
    let bad = |off: &[(usize, f32)], claims, inherited| {
        let (theirs, ours, names) = rows(9, off);
        let judged = judge(Tap::StateCkv, &theirs, &ours, &names, limit(claims, Tap::StateCkv, inherited));
        judged.bad.iter().map(|b| b.0).collect::<Vec<_>>()
    };
    // Nothing is inherited: f32 alone is explained.
    assert_eq!(bad(&[(2, 9e-5)], Claims::F32, 0.0), [0; 0]);
    assert_eq!(bad(&[(2, 2e-4), (8, 1.0)], Claims::F32, 0.0), [2, 8]);
    // Much is inherited: one row alone may be off by half, two beside each other may not.
    assert_eq!(bad(&[(2, 0.5)], Claims::Official, 0.05), [0; 0]);
    assert_eq!(bad(&[(2, 0.5), (3, 0.6)], Claims::Official, 0.05), [2, 3]);
    assert_eq!(bad(&[(2, 0.5), (4, 0.6)], Claims::Official, 0.05), [0; 0]);
    assert_eq!(bad(&[(0, 1.0)], Claims::Official, 0.05), [0]);
    assert_eq!(bad(&[(5, f32::NAN)], Claims::Official, 0.05), [5]);
    assert!(!limit(Claims::Official, Tap::StateCkv, 0.3).is_told);
}

#[test]
fn neighbours_are_neighbours_by_position() {
    let (theirs, ours, _) = rows(2, &[(0, 0.5), (1, 0.5)]);
    let of = |names: [u32; 2]| {
        judge(Tap::StateWin, &theirs, &ours, &names, limit(Claims::Official, Tap::StateWin, 0.05)).bad.len()
    };
    assert_eq!((of([7, 8]), of([7, 9])), (2, 0));
}

#[test]
fn ranges_are_short() {
    let all = |v: &[u32]| ranges(&v.iter().map(|p| (*p, 1.0)).collect::<Vec<_>>());
    assert_eq!(all(&[4, 5, 6, 9]), "4-6, 9");
    assert_eq!(all(&[1, 3, 5, 7, 9]), "1, 3, 5 and 2 more runs");
}
