use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use karat_seam::{Block, Recorded, Recorder, RowId, Site, Streams, Tap, Tensor};
use proptest::prelude::*;

use super::{Cache, Kind, key, read_recorder, read_streams, write_recorder, write_streams};

fn open(dir: &Path, limit: u64) -> Cache {
    Cache::open(dir, limit).unwrap()
}

fn get(cache: &Cache, name: &[u8; 32]) -> Option<Vec<u8>> {
    cache.get(Kind::Comparison, name, |bytes| Some(bytes.to_vec()))
}

fn name(text: &str) -> [u8; 32] {
    key::of(text.as_bytes())
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let list = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>();
    let mut all: Vec<PathBuf> = list(&dir.join(super::LAYOUT)).iter().flat_map(|shelf| list(shelf)).collect();
    all.sort();
    all
}

#[test]
fn what_was_put_is_got_by_every_process() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (open(dir.path(), 1 << 20), open(dir.path(), 1 << 20));
    assert_eq!(get(&one, &name("a")), None);
    one.put(&name("a"), b"content");
    assert_eq!(get(&other, &name("a")).unwrap(), b"content");
    let content = other.put_content(b"by content");
    assert_eq!((content, get(&one, &content).unwrap()), (key::of(b"by content"), b"by content".to_vec()));
    assert_eq!((one.used().comparisons, one.used().comparisons_asked, one.used().damaged), (1, 2, 0));
    assert_eq!(Cache::holding(dir.path()).entries, 2);
}

#[test]
fn an_entry_is_taken_only_when_every_byte_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 1 << 20);
    let content: Vec<u8> = (0..200u8).collect();
    let place = cache.place(&name("a"));
    let damages: Vec<Box<dyn Fn(&mut Vec<u8>)>> = vec![
        Box::new(|file| file.truncate(file.len() - 1)),
        Box::new(|file| file.truncate(40)),
        Box::new(Vec::clear),
        Box::new(|file| file.push(0)),
        Box::new(|file| file[3] ^= 1),
        Box::new(|file| file[20] ^= 1),
        Box::new(|file| file[50] ^= 1),
        Box::new(|file| file[81] ^= 1),
        Box::new(|file| *file.last_mut().unwrap() ^= 0x80),
        Box::new(|file| *file = b"some other program's file".to_vec()),
    ];
    for (i, damage) in damages.iter().enumerate() {
        cache.put(&name("a"), &content);
        let mut file = fs::read(&place).unwrap();
        damage(&mut file);
        fs::write(&place, file).unwrap();
        assert_eq!(get(&cache, &name("a")), None, "damage {i}");
        assert_eq!(cache.used().damaged, i as u64 + 1);
        assert!(!place.exists(), "a damaged entry is taken away");
    }
    // A whole entry under another's name is not that one.
    cache.put(&name("b"), b"b's");
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(cache.place(&name("b")), &place).unwrap();
    assert_eq!(get(&cache, &name("a")), None);
    assert_eq!(get(&cache, &name("b")).unwrap(), b"b's");
    // Nor is one whose content this version does not understand.
    assert_eq!(cache.get(Kind::Comparison, &name("b"), |_| None::<()>), None);
    assert!(!cache.place(&name("b")).exists());
}

#[test]
fn what_was_not_used_for_longest_goes_first_and_nothing_of_others_does() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 10_000);
    let long_ago = |path: &Path, seconds: u64| {
        let time = SystemTime::now() - Duration::from_secs(seconds);
        File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
    };
    for i in 0..4u64 {
        cache.put(&name(&i.to_string()), &[0; 2000]);
        long_ago(&cache.place(&name(&i.to_string())), 1000 - i);
    }
    // The oldest is used now.
    assert!(get(&cache, &name("0")).is_some());
    let shelf = cache.place(&name("1")).parent().unwrap().to_path_buf();
    let foreign = [dir.path().join(super::LAYOUT).join("notes.txt"), shelf.join("notes.txt"), shelf.join("x.entry")];
    foreign.iter().for_each(|path| fs::write(path, vec![0; 50_000]).unwrap());
    let (dead, alive) = (shelf.join("0123456789abcdef-77-1.part"), shelf.join("0123456789abcdef-78-1.part"));
    for path in [&dead, &alive] {
        fs::write(path, b"half").unwrap();
    }
    long_ago(&dead, 4000);
    cache.put(&name("4"), &[0; 2000]);
    let there = |i: u64| get(&cache, &name(&i.to_string())).is_some();
    assert_eq!([0, 1, 2, 3, 4].map(there), [true, false, true, true, true]);
    assert_eq!(cache.used().deleted, 1);
    assert!(foreign.iter().all(|path| path.exists()) && alive.exists() && !dead.exists());
    // One entry that is worth most of the bound is not kept at all.
    cache.put(&name("large"), &[0; 3000]);
    assert_eq!((get(&cache, &name("large")), cache.used().too_large), (None, 1));
}

#[test]
fn a_folder_that_cannot_be_used_is_said_and_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(Cache::open(&file.join("below"), 1).err().unwrap().contains("cannot be made"));
    let cache = open(&dir.path().join("gone"), 1 << 20);
    fs::remove_dir_all(dir.path().join("gone")).unwrap();
    fs::write(dir.path().join("gone"), b"a file now").unwrap();
    cache.put(&name("a"), b"x");
    assert_eq!(get(&cache, &name("a")), None);
    assert!(!cache.used().trouble.is_empty());
    assert_eq!(Cache::holding(&dir.path().join("never")).entries, 0);
}

#[test]
fn many_writers_leave_whole_entries_and_nothing_half_made() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let dir = dir.path();
            scope.spawn(move || {
                let cache = open(dir, 60_000);
                for i in 0..40u64 {
                    let which = (i * (thread + 1)) % 13;
                    let content = vec![which as u8; 3000 + which as usize];
                    // Gone (deleted to make room) or whole: never another's or a part.
                    if let Some(found) = get(&cache, &name(&which.to_string())) {
                        assert_eq!(found, content);
                    }
                    cache.put(&name(&which.to_string()), &content);
                }
                assert_eq!(cache.used().damaged, 0);
            });
        }
    });
    assert!(entries(dir.path()).iter().all(|p| p.extension().is_some_and(|e| e == "entry")));
    let cache = open(dir.path(), 60_000);
    cache.make_room();
    assert!(Cache::holding(dir.path()).bytes <= 60_000);
}

#[test]
fn no_two_writers_share_a_file() {
    // Two caches of one process counted each for itself once, and the second took the first one's file and emptied it.
    let dir = tempfile::tempdir().unwrap();
    let made: Vec<_> = (0..2).map(|_| super::store::temporary(dir.path(), &name("one")).unwrap()).collect();
    assert_ne!(made[0].0, made[1].0);
    // One that another process left, with whichever counts come next, is neither taken nor emptied.
    let stem = made[1].0.file_stem().unwrap().to_str().unwrap();
    let (stem, count) = stem.rsplit_once('-').unwrap();
    let others: Vec<_> =
        (1..200).map(|i| dir.path().join(format!("{stem}-{}.part", count.parse::<u64>().unwrap() + i))).collect();
    others.iter().for_each(|path| fs::write(path, b"another's").unwrap());
    let (path, _) = super::store::temporary(dir.path(), &name("one")).unwrap();
    assert!(!others.contains(&path));
    assert!(others.iter().all(|path| fs::read(path).unwrap() == b"another's"));
}

fn recorder() -> Recorder {
    let mut seen = Recorder::all();
    let rows = vec![RowId::new(0, 3), RowId { seq: 0, pos: 4, pass: 2 }];
    let mut add = |block, tap, tensor: Tensor| {
        seen.taps.insert((Site { block, tap }, 0), Recorded { rows: rows.clone(), tensor });
    };
    let odd = [f32::NAN, f32::NEG_INFINITY, -0.0, 1e-45];
    add(Block::Layer(7), Tap::AttnQ, Tensor::f32([2, 2], odd.to_vec()));
    add(Block::Layer(7), Tap::AttnIn, Tensor::f32([2, 2], vec![1.0, -1.5, f32::INFINITY, -0.0]));
    add(Block::Layer(7), Tap::AttnO, Tensor::f64([2, 1], vec![f64::NAN, 1e-320]));
    add(Block::Layer(7), Tap::FfnIdx, Tensor::i64([2, 1], vec![-1, i64::MAX]));
    add(Block::Head, Tap::Logits, Tensor::f32([2, 0], Vec::new()));
    add(Block::Mtp(1), Tap::AttnSelected, Tensor::u8([2, 1], vec![0, 255]));
    seen
}

/// Values with their bits, so that NaN and -0 count.
fn bits(taps: &BTreeMap<(Site, u32), Recorded>) -> String {
    let one = |r: &Recorded| match &r.tensor.data {
        karat_seam::Data::F32(v) => format!("{:?}", v.iter().map(|v| v.to_bits()).collect::<Vec<_>>()),
        karat_seam::Data::F64(v) => format!("{:?}", v.iter().map(|v| v.to_bits()).collect::<Vec<_>>()),
        other => format!("{other:?}"),
    };
    taps.iter().map(|(at, r)| format!("{at:?} {:?} {:?} {}\n", r.rows, r.tensor.shape, one(r))).collect()
}

#[test]
fn taps_and_streams_read_back_bit_for_bit() {
    let seen = recorder();
    let back = read_recorder(&write_recorder(&seen)).unwrap();
    assert_eq!(bits(&back.taps), bits(&seen.taps));
    for values in [vec![1.0f32, -2.5, 0.0, -0.0], vec![1.0 + f32::EPSILON, 2.0, 3.0, 4.0]] {
        let x = Streams { rows: vec![RowId::new(0, 0), RowId::new(1, 0)].into(), data: Tensor::f32([2, 2, 1], values) };
        let bytes = write_streams(&x);
        let back = read_streams(&bytes).unwrap();
        assert_eq!((back.rows.as_ref(), &back.data), (x.rows.as_ref(), &x.data));
        assert_eq!(write_streams(&back), bytes);
    }
    // bf16 values take half the room.
    let of = |v: f32| {
        write_streams(&Streams { rows: Vec::new().into(), data: Tensor::f32([0, 1000], vec![]) }).len()
            + write_streams(&Streams {
                rows: vec![RowId::new(0, 0)].into(),
                data: Tensor::f32([1, 1000], vec![v; 1000]),
            })
            .len()
    };
    assert_eq!(of(1.1) - of(1.5), 2000);
}

proptest! {
    #[test]
    fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), cut in 0usize..600, flip in any::<(u16, u8)>()) {
        let _ = (read_recorder(&bytes), read_streams(&bytes), crate::record::Record::read(&bytes));
        let mut whole = write_recorder(&recorder());
        let at = flip.0 as usize % whole.len();
        whole[at] ^= flip.1;
        let _ = read_recorder(&whole);
        whole.truncate(cut);
        prop_assert!(read_recorder(&whole).is_none() || cut >= whole.len());
    }

    /// Whatever is put, damaged, deleted and pushed out: what comes back is what was put last, or nothing.
    #[test]
    fn never_anything_but_what_was_put(ops in proptest::collection::vec((0u8..6, 0u8..5, any::<u16>()), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let caches = [open(dir.path(), 12_000), open(dir.path(), 12_000)];
        let mut last: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        for (op, which, v) in ops {
            let cache = &caches[usize::from(v % 2)];
            let name = name(&which.to_string());
            match op {
                0 | 1 => {
                    let content = vec![v as u8; 100 + usize::from(v) % 2500];
                    cache.put(&name, &content);
                    last.insert(which, content);
                }
                2 => {
                    if let Ok(mut file) = fs::read(cache.place(&name)) {
                        let at = usize::from(v) % file.len();
                        file[at] = file[at].wrapping_add(1);
                        fs::write(cache.place(&name), file).unwrap();
                    }
                }
                3 => drop(fs::remove_file(cache.place(&name))),
                _ => {
                    let found = get(cache, &name);
                    prop_assert!(found.is_none() || found.as_ref() == last.get(&which));
                }
            }
        }
        for cache in &caches {
            cache.make_room();
        }
        prop_assert!(Cache::holding(dir.path()).bytes <= 12_000);
    }
}
