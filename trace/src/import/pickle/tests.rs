use super::*;

fn text(pickle: &[u8]) -> String {
    Pickle::read(pickle).err().map_or_else(|| "read".to_string(), |e| e.to_string())
}

#[test]
fn plain_values_are_read() {
    // {'a': [1, -2, 300], 'b': (None, True)}, as Python writes it with protocol 2.
    let data = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01eX\x01\x00\x00\x00bq\x03N\x88\x86q\x04u.";
    let p = Pickle::read(data).unwrap();
    let Node::Dict(pairs) = p.node(p.root) else { panic!("{:?}", p.node(p.root)) };
    assert_eq!(pairs.iter().map(|(k, _)| p.node(*k).clone()).collect::<Vec<_>>(), [Node::Text("a"), Node::Text("b")]);
    let Node::List(list) = p.node(pairs[0].1) else { panic!() };
    assert_eq!(list.iter().map(|i| p.node(*i).clone()).collect::<Vec<_>>(), [1, -2, 300].map(Node::Int));
}

#[test]
fn nothing_is_executed() {
    for (pickle, expected) in [
        (&b"cos\nsystem\n(S'ls'\ntR."[..], "global that is not read: found os.system"),
        (b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.", "found builtins.eval"),
        (b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "found posix.system"),
        (b"\x80\x02ctorch\nload\n.", "found torch.load"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", "other arguments"),
        (b"(i__builtin__\nopen\n.", "opcode 0x69"),
        (b"(cos\n", "name in the pickle has no end"),
        (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "opcode 0x81"),
        (b"\x80\x02ctorch\nSize\n}b.", "sets attributes of an object"),
        (b"Pabc\n.", "opcode 0x50"),
        (b"\x80\x02X\x01\x00\x00\x00aQ.", "calls with what is no tuple"),
        (b"\x80\x09.", "protocol isn't known"),
    ] {
        assert!(text(pickle).contains(expected), "{}", text(pickle));
    }
}

#[test]
fn damage_is_told_with_its_byte() {
    for (pickle, expected) in [
        (&b""[..], "pickle ends early"),
        (b"\x80\x02", "pickle byte 2: pickle ends early"),
        (b".", "isn't there"),
        (b"(.", "isn't there"),
        (b"]a.", "pickle byte 1"),
        (b"h\x05.", "recalls what it never stored"),
        (b"}K\x01s.", "isn't there"),
        (b"X\xff\xff\xff\xffabc.", "ends early"),
        (b"X\x01\x00\x00\x00\xff.", "no UTF-8"),
        (b"](K\x01K\x02u.", "no dict"),
    ] {
        assert!(text(pickle).contains(expected), "{:?}: {}", pickle, text(pickle));
    }
}

#[test]
fn every_table_has_a_largest_size() {
    let repeated = |head: &[u8], op: &[u8], n: usize| [head, &op.repeat(n), b"."].concat();
    let many = MAX_NODES + 1;
    // A tuple of 2^20, copied by each call.
    let tuple = [&b"Nq\x00("[..], &b"h\x00".repeat(1 << 20), b"tq\x01ctorch\nSize\nq\x02"].concat();
    for (pickle, expected) in [
        (repeated(b"", b"N", many), "values"),
        (repeated(b"N", b"2", many), "values on its stack"),
        (repeated(b"Nq\x00", b"h\x00", many), "values on its stack"),
        (repeated(b"N", b"\x94", many), "places in its memo"),
        (repeated(b"", b"(", MAX_MARKS + 1), "open marks"),
        (repeated(&tuple, b"h\x02h\x01\x85R", 17), "items"),
    ] {
        let said = text(&pickle);
        assert!(said.contains("pickle is too much") && said.contains(expected), "{expected}: {said}");
    }
}
