//! Page arithmetic against spec section 3, and the allocator, tables and cache one by one.

use karat_model::config::LayerKind;

use crate::serving::*;

/// Flash: window 128, ratios 4 and 128, pages of 256.
const FLASH: Geometry = Geometry { page: 256, window: 128, csa: 4, hca: 128, speculative: false };

#[test]
fn pages_and_rings_have_the_sizes_of_the_spec() {
    let rows = |part| FLASH.rows(part);
    assert_eq!(
        [rows(Part::Window), rows(Part::CsaEntries), rows(Part::IndexKeys), rows(Part::HcaEntries)],
        [256, 64, 64, 2]
    );
    assert_eq!([rows(Part::CsaState), rows(Part::IndexState), rows(Part::HcaState)], [8, 8, 128]);
    let speculative = Geometry { speculative: true, ..FLASH };
    assert_eq!([speculative.rows(Part::CsaState), speculative.rows(Part::HcaState)], [16, 256]);
    assert_eq!((FLASH.chunk(), FLASH.tail()), (8192, 127));
    // slot = page * ring + location mod ring.
    assert_eq!(FLASH.place(Part::CsaState, 256 + 13), (1, 5));
    assert_eq!(FLASH.place(Part::HcaState, 256 + 130), (1, 2));
    assert_eq!(FLASH.place(Part::Window, 300), (1, 44));
    assert_eq!(FLASH.place(Part::CsaEntries, 65), (1, 1));
    assert_eq!(FLASH.place(Part::HcaEntries, 5), (2, 1));
}

#[test]
fn a_layer_reads_what_the_spec_carries_at_every_length() {
    for n in [0usize, 1, 3, 4, 5, 127, 128, 129, 255, 256, 258, 400] {
        let window = (Part::Window, n.saturating_sub(127)..n);
        assert_eq!(FLASH.reads(LayerKind::Sliding, n), std::slice::from_ref(&window));
        // The open window's n mod 4 rows and the 4 rows of the last complete one.
        let csa = FLASH.reads(LayerKind::Csa { ratio: 4 }, n);
        let state = csa.iter().find(|(part, _)| *part == Part::CsaState).unwrap().1.clone();
        assert_eq!(state.len(), n % 4 + if n >= 4 { 4 } else { 0 }, "{n}");
        assert_eq!(csa.iter().find(|(part, _)| *part == Part::IndexKeys).unwrap().1, 0..n / 4);
        let hca = FLASH.reads(LayerKind::Hca { ratio: 128 }, n);
        assert_eq!(hca, [window, (Part::HcaState, n - n % 128..n), (Part::HcaEntries, 0..n / 128)]);
        // What is read lies in pages that the window still has.
        for (part, range) in csa.into_iter().chain(hca).filter(|(part, r)| part.pool() == Pool::Window && !r.is_empty())
        {
            assert!(range.start / 256 >= FLASH.first_window_page(n), "{part:?} at {n}");
        }
    }
}

#[test]
fn the_allocator_permutes_and_counts() {
    let mut a = Allocator::new(50, 7);
    let order: Vec<u32> = std::iter::from_fn(|| a.take()).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=50).collect::<Vec<u32>>(), "every page once, the padding page never");
    assert_ne!(order, sorted);
    let mut other = Allocator::new(50, 8);
    assert_ne!(order, std::iter::from_fn(|| other.take()).collect::<Vec<u32>>(), "the seed decides");
    a.hold(9);
    assert!(!a.release(9));
    assert_eq!(a.free(), 0);
    assert!(a.release(9));
    assert_eq!((a.free(), a.take()), (1, Some(9)));
}

#[test]
#[should_panic(expected = "given back twice")]
fn a_page_given_back_twice_is_a_bug() {
    let mut a = Allocator::new(3, 0);
    let page = a.take().unwrap();
    a.release(page);
    a.release(page);
}

#[test]
fn a_hit_is_by_ids_whole_pages_and_needs_its_window() {
    let geometry = Geometry { page: 8, window: 6, csa: 2, hca: 4, speculative: false };
    let mut instance = Instance::new(geometry, 8, 1);
    let ids: Vec<u32> = (0..30).collect();
    let mut tables = Tables::default();
    assert!(instance.reserve(&mut tables, 30));
    instance.insert(&ids, &(0..30).collect::<Vec<usize>>(), &tables);
    let tokens = |instance: &mut Instance, ids: &[u32]| {
        let mut hit = instance.hit(ids);
        assert_eq!(hit.rows, (0..hit.tokens).collect::<Vec<usize>>());
        instance.release_all(&mut hit.tables);
        hit.tokens
    };
    assert_eq!(tokens(&mut instance, &ids), 24, "three whole pages; the fourth is not whole");
    assert_eq!(tokens(&mut instance, &ids[..24]), 16, "one token is left to compute");
    // An MTP block's row of token 23 follows from token 24.
    let mut speculative = Instance::new(Geometry { speculative: true, ..geometry }, 8, 1);
    let mut held = Tables::default();
    assert!(speculative.reserve(&mut held, 30));
    speculative.insert(&ids, &(0..30).collect::<Vec<usize>>(), &held);
    let mut other = ids.clone();
    other[24] = 99;
    assert_eq!((tokens(&mut instance, &other), tokens(&mut speculative, &other)), (24, 16));
    assert_eq!(tokens(&mut speculative, &ids), 24);
    let mut other = ids.clone();
    other[17] = 99;
    assert_eq!(tokens(&mut instance, &other), 16);
    other[0] = 99;
    assert_eq!(tokens(&mut instance, &other), 0);
    // Nothing after 30 tokens reads the first three pages: only the cache has them.
    instance.leave_window(&mut tables, 30);
    assert_eq!(tables.of(Pool::Window).first, 3);
    let mut filler = Tables::default();
    assert!(instance.reserve(&mut filler, 32), "half of the pages are free");
    assert_eq!(tokens(&mut instance, &ids), 24);
    assert_eq!(tokens(&mut instance, &ids[..20]), 16);
    let mut more = Tables::default();
    assert!(!instance.reserve(&mut more, 24), "what a sequence holds does not give way");
    assert_eq!(tokens(&mut instance, &ids[..20]), 0, "the cache gave way");
    instance.release_all(&mut tables);
    instance.release_all(&mut filler);
    instance.forget();
    assert!(instance.pools.iter().all(|p| p.free() == p.pages()));
}

#[test]
fn bytes_of_a_page_are_those_of_the_spec() {
    // Records of 584 bytes: 448 e4m3, 64 bf16, 7 scales and a byte of padding; the stride is a multiple of 576.
    let of = |rows| Layout { rows, data: 448 + 128, scales: 8, align: 576 };
    assert_eq!((of(256).stride(), of(64).stride(), of(2).stride()), (260 * 576, 65 * 576, 3 * 576));
    assert_eq!(of(256).bytes(3), (3 * 576..4 * 576, 256 * 576 + 24..256 * 576 + 32));
    // Index keys: 64 of 128 bytes, then 64 scales of 4.
    let index = Layout { rows: 64, data: 128, scales: 4, align: 1 };
    assert_eq!((index.stride(), index.bytes(1)), (64 * 132, (128..256, 64 * 128 + 4..64 * 128 + 8)));
}

/// A record of Flash by hand: 448 channels of 1.5 times powers of two, 64 rotated ones, at row 3 of a page of 256.
#[test]
fn a_record_holds_a_row_bit_for_bit() {
    let layout = Layout { rows: 256, data: 448 + 128, scales: 8, align: 576 };
    let mut page = vec![0xee_u8; layout.stride()];
    let nope = |i: usize| 1.5 * 2f32.powi(i as i32 / 64 - 3) * if i.is_multiple_of(2) { 1.0 } else { -0.5 };
    let row: Vec<f32> = (0..448).map(nope).chain((0..64).map(|i| 1.0 + i as f32 / 128.0)).collect();
    layout.write_kv(&mut page, 3, 448, &row).unwrap();
    assert_eq!(layout.read_kv(&page, 3, 448), row);
    // 1.5 * 2^-3 under a scale of 2^-11 (384 = 0x7c of at most 448): E4M3 of 384, then of -192; the scale's byte is -11 + 127.
    assert_eq!((page[3 * 576], page[3 * 576 + 1], page[256 * 576 + 24]), (0x7c, 0xf4, 116));
    assert_eq!(page[3 * 576 + 448..3 * 576 + 450], [0x80, 0x3f], "bf16 1.0, little end first");
    // The rows beside it are not touched, nor is the byte of padding.
    assert!(page[..3 * 576].iter().chain(&page[4 * 576..256 * 576 + 24]).all(|b| *b == 0xee));
    assert_eq!(page[256 * 576 + 31], 0xee);
    // What is on no grid is refused, not rounded.
    assert!(layout.write_kv(&mut page, 4, 448, &[&[1.03125; 448][..], &row[448..]].concat()).is_none());
    assert!(layout.write_kv(&mut page, 4, 448, &[&row[..448], &[1.001; 64]].concat()).is_none());
    assert!(layout.write_kv(&mut page, 4, 448, &[&[f32::NAN; 448][..], &row[448..]].concat()).is_none());
}
