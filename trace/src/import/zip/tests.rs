use super::*;

/// An archive of stored members, made by hand.
pub(crate) fn stored(members: &[(&str, &[u8])]) -> Vec<u8> {
    build(members, 0, |_| {})
}

/// The same with a method, and the central entries changed.
fn build(members: &[(&str, &[u8])], method: u16, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let start = out.len() as u32;
        let mut common = vec![20, 0, 0, 0];
        common.extend(method.to_le_bytes());
        common.extend([0; 8]);
        common.extend((bytes.len() as u32).to_le_bytes());
        common.extend((bytes.len() as u32).to_le_bytes());
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0, 0]);
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(*bytes);
        let mut entry = b"PK\x01\x02\x14\x00".to_vec();
        entry.extend(&common);
        entry.extend([0; 10]);
        entry.extend(start.to_le_bytes());
        entry.extend(name.as_bytes());
        change(&mut entry);
        directory.extend(entry);
    }
    let (start, n) = (out.len() as u32, members.len() as u16);
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(n.to_le_bytes());
    out.extend(n.to_le_bytes());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0, 0]);
    out
}

fn text(file: &[u8]) -> String {
    members(file).err().map_or_else(|| "read".to_string(), |e| e.to_string())
}

#[test]
fn members_lie_where_the_archive_says() {
    let file = stored(&[("a/b", b"12345"), ("c", b""), ("d/", b"")]);
    let found = members(&file).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a/b", "c"]);
    assert_eq!(&file[found["a/b"].range.clone()], b"12345");
    // A comment after the end record.
    let mut commented = file.clone();
    let at = commented.len() - 2;
    commented[at] = 3;
    commented.extend(b"hey");
    assert_eq!(members(&commented).unwrap(), found);
}

#[test]
fn zip64_sizes_are_read() {
    let file = build(&[("a", b"12345")], 0, |entry| {
        let (extra, at) = (entry.len(), 20);
        entry[at..at + 8].fill(0xff);
        entry[30] = 20;
        entry.extend([1, 0, 16, 0]);
        entry.extend(5u64.to_le_bytes());
        entry.extend(5u64.to_le_bytes());
        assert_eq!(entry.len(), extra + 20);
    });
    let found = members(&file).unwrap();
    assert_eq!(&file[found["a"].range.clone()], b"12345");
}

#[test]
fn what_leads_out_or_bursts_is_refused() {
    for name in ["../a", "/a", "a/../b", "c:\\a", "a\\b"] {
        assert!(text(&stored(&[(name, b"x")])).contains("leads out of the archive"), "{name}");
    }
    assert!(text(&stored(&[("a", b"x"), ("a", b"y")])).contains("twice"));
    let at = |offset: usize, bytes: &'static [u8]| {
        text(&build(&[("a", b"12345")], 0, move |entry| {
            entry[offset..offset + bytes.len()].copy_from_slice(bytes);
        }))
    };
    assert!(at(8, &[1, 0]).contains("encrypted"));
    assert!(at(10, &[12, 0]).contains("packed in a way"));
    assert!(at(24, &[6, 0, 0, 0]).contains("two sizes"));
    assert!(at(20, &[0, 1, 0, 0, 0, 1, 0, 0]).contains("truncated"));
    let bomb = build(&[("a", b"12345")], 8, |entry| entry[24..28].copy_from_slice(&(1u32 << 30).to_le_bytes()));
    assert!(text(&bomb).contains("incredibly much"));
    // Two entries of one local header.
    let two = stored(&[("a", b"12345"), ("a", b"12345")]);
    assert!(text(&two).contains("twice"));
    assert!(text(b"PK\x03\x04").contains("truncated") && text(b"").contains("truncated"));
}

#[test]
fn overlapping_members_are_refused() {
    // `b` is a second name for the bytes from the middle of `a` on, where a local header of its own stands.
    let inner = stored(&[("b", b"zz")]);
    let local = &inner[..30 + 1 + 2];
    let mut file = stored(&[("a", local)]);
    let start = file.len() - 22 - 47;
    let mut entry = inner[33..33 + 47].to_vec();
    entry[42..46].copy_from_slice(&31u32.to_le_bytes());
    file.splice(file.len() - 22..file.len() - 22, entry);
    let end = file.len() - 22;
    file[end + 8..end + 12].copy_from_slice(&[2, 0, 2, 0]);
    file[end + 12..end + 16].copy_from_slice(&94u32.to_le_bytes());
    file[end + 16..end + 20].copy_from_slice(&(start as u32).to_le_bytes());
    assert!(text(&file).contains("overlap"), "{}", text(&file));
}
