//! One file, several files, index files; on disk and in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::Checkpoint;
use crate::checkpoint::index;
use crate::testing::Model;

const INDEX: &str = "model.safetensors.index.json";
const FIRST: &str = "model-00001-of-00002.safetensors";
const SECOND: &str = "model-00002-of-00002.safetensors";

type Files = BTreeMap<String, Arc<[u8]>>;

fn index_of(files: &Files) -> Value {
    serde_json::from_slice(&files[INDEX]).unwrap()
}

fn set_index(files: &mut Files, index: &Value) {
    files.insert(INDEX.to_string(), index.to_string().into_bytes().into());
}

#[track_caller]
fn refuses(files: Files, words: &[&str]) {
    let message = Checkpoint::from_memory("made", files).expect_err("must be refused").to_string();
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    assert!(!message.contains('\n'));
}

#[test]
fn sharding_changes_no_byte_and_no_hash() {
    let model = Model::new();
    let (one, two) = (model.open().unwrap(), Checkpoint::from_memory("made", model.sharded()).unwrap());
    for e in one.inventory() {
        assert_eq!(one.tensor(&e.disk_name()).unwrap().bytes, two.tensor(&e.disk_name()).unwrap().bytes, "{}", e.name);
    }
    assert_eq!(one.weights_sha256(), two.weights_sha256());
    assert_eq!(one.config_sha256(), two.config_sha256());
    // Without the index the numbered shards are found, too.
    let mut bare = model.sharded();
    bare.remove(INDEX);
    assert_eq!(Checkpoint::from_memory("made", bare).unwrap().weights_sha256(), one.weights_sha256());
    // One changed byte is another model.
    let mut other = Model::new();
    other.get("layers.1.attn.wkv.weight").bytes[5] ^= 1;
    assert_ne!(other.open().unwrap().weights_sha256(), one.weights_sha256());
}

#[test]
fn a_folder_is_mapped() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in Model::new().sharded() {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    std::fs::write(dir.path().join("tokenizer.json"), "{}").unwrap();
    let (disk, memory) = (Checkpoint::open(dir.path()).unwrap(), Model::new().open().unwrap());
    assert_eq!(disk.weights_sha256(), memory.weights_sha256());
    assert_eq!(disk.side_file("tokenizer.json").unwrap().unwrap(), b"{}");
    assert_eq!(disk.side_file("encoding.json").unwrap(), None);
    for name in ["../secret", "/etc/hostname", "", ".", "..", "a/b"] {
        assert!(disk.side_file(name).is_err(), "{name:?}");
    }
    let message = Checkpoint::open(&dir.path().join("config.json")).unwrap_err().to_string();
    assert!(message.contains("not a folder"), "{message}");
    let message = Checkpoint::open(&dir.path().join("nowhere")).unwrap_err().to_string();
    assert!(message.contains("can't be read"), "{message}");
    std::fs::write(dir.path().join(SECOND), "").unwrap();
    let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
    assert!(message.contains(SECOND) && message.contains("too short"), "{message}");
    std::fs::remove_file(dir.path().join("config.json")).unwrap();
    let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
    assert!(message.contains("config.json"), "{message}");
}

#[test]
fn a_checkpoint_is_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&Model::new().open().unwrap());
}

#[test]
fn missing_shards_are_named() {
    let mut files = Model::new().sharded();
    files.remove(SECOND);
    refuses(files.clone(), &[SECOND, "shard is missing"]);
    files.remove(INDEX);
    refuses(files.clone(), &[SECOND, "shard is missing", "2 shards"]);
    files.remove(FIRST);
    refuses(files, &["no weights"]);
    let mut files = Model::new().sharded();
    files.remove(INDEX);
    files.remove(SECOND);
    let bytes = files.remove(FIRST).unwrap();
    files.insert("model-00001-of-99999999999999999999.safetensors".to_string(), bytes);
    refuses(files, &["shard is missing"]);
}

#[test]
fn files_that_are_no_shards_are_left_alone() {
    // Another tool's file beside the weights, in one piece and in shards.
    for mut files in [Model::new().files(), Model::new().sharded()] {
        files.insert("logits.safetensors".to_string(), crate::testing::file("{}", &[]).into());
        files.remove(INDEX);
        let c = Checkpoint::from_memory("made", files).unwrap();
        assert_eq!(c.weights_sha256(), Model::new().open().unwrap().weights_sha256());
    }
    // Two sets of weights, and no index to say which.
    let mut files = Model::new().sharded();
    files.remove(INDEX);
    let mut both = files.clone();
    both.extend(Model::new().files());
    refuses(both, &["two sets of weights", "model.safetensors"]);
    files.insert("model-00001-of-00003.safetensors".to_string(), files[FIRST].clone());
    refuses(files, &["two sets of weights", "00002", "00003"]);
}

#[test]
fn the_index_must_agree_with_the_shards() {
    let files = Model::new().sharded();
    let mut moved = index_of(&files);
    moved["weight_map"]["embed.weight"] = json!(SECOND);
    let mut f = files.clone();
    set_index(&mut f, &moved);
    refuses(f, &["embed.weight", "another shard", FIRST]);
    let mut extra = index_of(&files);
    extra["weight_map"]["layers.9.attn_norm.weight"] = json!(FIRST);
    let mut f = files.clone();
    set_index(&mut f, &extra);
    refuses(f, &["layers.9.attn_norm.weight", "in no shard"]);
    let mut less = index_of(&files);
    less["weight_map"].as_object_mut().unwrap().remove("embed.weight");
    let mut f = files.clone();
    set_index(&mut f, &less);
    refuses(f, &["embed.weight", "not in the index"]);
    for (name, words) in [("../model.safetensors", "plain file name"), ("nothing.safetensors", "shard is missing")] {
        let mut index = index_of(&files);
        index["weight_map"]["embed.weight"] = json!(name);
        let mut f = files.clone();
        set_index(&mut f, &index);
        refuses(f, &[words]);
    }
    let mut index = index_of(&files);
    index["weight_map"]["embed.weight"] = json!(5);
    let mut f = files.clone();
    set_index(&mut f, &index);
    refuses(f, &["weight_map.embed.weight", "5"]);
    for (text, words) in [("{}", "no weight_map"), (r#"{"weight_map":{}}"#, "names no tensor"), ("{", "truncated")] {
        let mut f = files.clone();
        f.insert(INDEX.to_string(), text.as_bytes().into());
        refuses(f, &[INDEX, words]);
    }
}

#[test]
fn one_name_in_two_shards_is_a_duplicate() {
    let model = Model::new();
    let mut files = model.sharded();
    files.remove(INDEX);
    let mut second: Vec<_> = model.tensors.iter().skip(1).step_by(2).collect();
    second.push(&model.tensors[0]);
    files.insert(SECOND.to_string(), crate::testing::safetensors(&second).into());
    refuses(files, &["two tensors for one place", FIRST, SECOND, &model.tensors[0].name]);
}

proptest! {
    #[test]
    fn any_index_gives_an_error_or_a_layout(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = index::read(&bytes);
    }

    #[test]
    fn a_changed_index_gives_an_error_or_a_layout(at in 0usize..20_000, byte: u8) {
        let mut files = Model::new().sharded();
        let mut bytes = files[INDEX].to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        files.insert(INDEX.to_string(), bytes.into());
        let _ = Checkpoint::from_memory("changed", files);
    }
}
