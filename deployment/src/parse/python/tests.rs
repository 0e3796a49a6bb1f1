use super::*;

#[test]
fn both_spellings_of_a_dump() {
    let old = "ServerArgs(model_path='/m/a, b', tp_size=2, lora=[1, (2, 3)], api_key='k\\'=v', moe_runner_backend='triton', x=None)";
    let new =
        r#"{'model_path': "/m/a: b", 'tp_size': 2, 'nested': {'tp_size': 8}, 'moe_runner_backend': 'triton'} tail"#;
    let (found, whole) = settings(old);
    assert!(whole);
    assert_eq!(found[0], ("model_path", "/m/a, b"));
    assert_eq!(found[1], ("tp_size", "2"));
    assert_eq!(found.iter().find(|(n, _)| *n == "moe_runner_backend"), Some(&("moe_runner_backend", "triton")));
    assert_eq!(found.last(), Some(&("x", "None")));
    let (found, whole) = settings(new);
    assert!(whole);
    assert_eq!(found.iter().filter(|(n, _)| *n == "tp_size").collect::<Vec<_>>(), [&("tp_size", "2")]);
    assert_eq!(found.last(), Some(&("moe_runner_backend", "triton")));
}

#[test]
fn a_cut_dump_gives_what_is_whole() {
    let (found, whole) = settings("ServerArgs(tp_size=2, moe_runner_backend='tri");
    assert_eq!((found, whole), (vec![("tp_size", "2")], false));
    assert_eq!(settings("nothing"), (Vec::new(), false));
}
