use super::*;

fn array(shape: &[usize], strides: &[usize], offset: usize) -> Result<Array> {
    let bytes: Vec<u8> = (0..24u16).flat_map(u16::to_le_bytes).collect();
    let bytes = Bytes::Plain { blob: Arc::new(Blob::Held(bytes.into())), range: 0..48 };
    Array::new(bytes, Element::U16, shape.to_vec(), strides.to_vec(), offset)
}

fn values(array: &Array) -> Vec<u32> {
    array.read().unwrap().as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

#[test]
fn every_view_reads_what_its_steps_say() {
    for (shape, strides, offset) in [
        (vec![2, 3, 4], vec![12, 4, 1], 0),
        (vec![4, 3, 2], vec![1, 4, 12], 0),
        (vec![3, 2], vec![2, 5], 7),
        (vec![3, 4], vec![0, 1], 20),
        (vec![2, 0, 3], vec![1, 1, 1], 0),
        (vec![], vec![], 23),
        (vec![1, 24], vec![9, 1], 0),
    ] {
        let found = array(&shape, &strides, offset).unwrap();
        // Index by index, the last axis fastest.
        let count: usize = shape.iter().product();
        let at = |mut flat: usize| {
            let mut element = offset;
            for (extent, stride) in shape.iter().zip(&strides).rev() {
                element += flat % extent * stride;
                flat /= extent;
            }
            element as u32
        };
        assert_eq!(values(&found), (0..count).map(at).collect::<Vec<_>>(), "{shape:?} {strides:?}");
    }
}

#[test]
fn axes_are_turned_cut_and_left_out() {
    let a = array(&[2, 3, 4], &[12, 4, 1], 0).unwrap();
    assert_eq!(values(&a.permuted(&[2, 0, 1]).unwrap())[..6], [0, 4, 8, 12, 16, 20]);
    let cut = a.cut(1, 1..3).unwrap();
    assert_eq!((cut.shape(), &values(&cut)[..5]), (&[2, 2, 4][..], &[4, 5, 6, 7, 8][..]));
    assert_eq!(values(&a.cut(0, 1..2).unwrap().without(0).unwrap().cut(1, 3..4).unwrap()), [15, 19, 23]);
    assert!(
        a.permuted(&[0, 0, 1]).is_err() && a.cut(1, 2..4).is_err() && a.cut(3, 0..0).is_err() && a.without(0).is_err()
    );
    assert!(values(&a.cut(0, 2..2).unwrap()).is_empty());
    assert_eq!(a.cut(1, 0..1).unwrap().squeezed().shape(), [2, 4]);
}

#[test]
fn a_few_bytes_ask_for_no_memory() {
    let text =
        |shape: &[usize], strides: &[usize]| array(shape, strides, 0).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(text(&[1 << 40, 24], &[0, 1]).contains("repeats its storage"));
    assert!(text(&[1 << 40, 1 << 40], &[0, 0]).contains("overflows"));
    assert!(text(&[2, 2], &[usize::MAX, 1]).contains("beyond its storage"));
    assert!(text(&[25], &[1]).contains("beyond its storage"));
    assert!(text(&[1; 17], &[1; 17]).contains("too many axes"));
}
