use super::*;

fn f32_of(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    match decode(dtype, &[bytes.len() / dtype.size()], bytes).unwrap().data {
        Data::F32(v) => v,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_dtype_decodes_to_its_values() {
    // Bit patterns written out by hand.
    assert_eq!(f32_of(Dtype::F32, &[0, 0, 0xc0, 0xbf]), [-1.5]);
    assert_eq!(f32_of(Dtype::Bf16, &[0xc0, 0x3f, 0x80, 0x7f]), [1.5, f32::INFINITY]);
    assert_eq!(f32_of(Dtype::F16, &[0x00, 0x3e, 0x01, 0x00]), [1.5, 5.960_464_5e-8]);
    assert_eq!(f32_of(Dtype::F8E4M3, &[0x38, 0x7e, 0x01, 0xb8]), [1.0, 448.0, 0.001_953_125, -1.0]);
    assert!(f32_of(Dtype::F8E4M3, &[0x7f])[0].is_nan());
    assert_eq!(f32_of(Dtype::F8E8M0, &[127, 128, 126]), [1.0, 2.0, 0.5]);
    assert_eq!(decode(Dtype::F64, &[1], &1.1f64.to_le_bytes()).unwrap().data, Data::F64(vec![1.1]));
    assert_eq!(decode(Dtype::I64, &[1], &(-3i64).to_le_bytes()).unwrap().data, Data::I64(vec![-3]));
    assert_eq!(decode(Dtype::I32, &[1], &(-3i32).to_le_bytes()).unwrap().data, Data::I64(vec![-3]));
    assert_eq!(decode(Dtype::I8, &[2], &[0xff, 5]).unwrap().data, Data::I64(vec![-1, 5]));
    assert_eq!(decode(Dtype::U8, &[2], &[0xff, 5]).unwrap().data, Data::U8(vec![255, 5]));
    assert_eq!(decode(Dtype::Bool, &[2], &[1, 0]).unwrap().data, Data::U8(vec![1, 0]));
    assert!(decode(Dtype::Bool, &[1], &[2]).is_err());
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    assert!(decode(Dtype::F32, &[2], &[0; 4]).is_err());
    assert!(decode(Dtype::F32, &[usize::MAX, usize::MAX], &[]).is_err());
    assert!(decode(Dtype::F64, &[1 << 62], &[]).is_err());
    assert_eq!(decode(Dtype::F32, &[0, 7], &[]).unwrap().shape, [0, 7]);
}

#[test]
fn names_are_those_of_safetensors() {
    for stored in [
        Stored::F64,
        Stored::F32,
        Stored::BF16,
        Stored::F16,
        Stored::F8_E4M3,
        Stored::F8_E8M0,
        Stored::I64,
        Stored::I32,
        Stored::I8,
        Stored::U8,
        Stored::BOOL,
    ] {
        let dtype = Dtype::of(stored).unwrap();
        assert_eq!(format!("{stored:?}"), dtype.name());
        assert_eq!(dtype.size() * 8, stored.bitsize());
    }
    assert_eq!((Dtype::of(Stored::F4), Dtype::of(Stored::U64), Dtype::of(Stored::F8_E5M2)), (None, None, None));
}

#[test]
fn decisions_come_in_any_integer_dtype() {
    assert_eq!(to_indices(Tensor::u8([2], vec![1, 7])).unwrap(), Tensor::i64([2], vec![1, 7]));
    assert_eq!(to_mask(Tensor::i64([2], vec![1, 0])).unwrap(), Tensor::u8([2], vec![1, 0]));
    assert!(to_mask(Tensor::i64([1], vec![256])).is_err() && to_mask(Tensor::u8([1], vec![2])).is_err());
    assert!(to_mask(Tensor::f32([1], vec![1.0])).is_err() && to_indices(Tensor::f32([1], vec![1.0])).is_err());
    assert!(to_numbers(Tensor::i64([1], vec![1])).is_err());
}
