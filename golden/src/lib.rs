//! The mini golden model: a trained checkpoint of the exact architecture in the released format. `MODEL_CARD.md` says
//! what it was trained on, what it recalls and what it can't do.

/// Names of the model's files, in the order of `CHECKSUMS`.
pub const NAMES: [&str; 4] = ["config.json", "encoding.json", "model.safetensors", "tokenizer.json"];

/// `sha256  name` a line, as `sha256sum` writes it.
pub const CHECKSUMS: &str = include_str!("../CHECKSUMS");

/// The folder of the files in the source tree, for `Checkpoint::open`. A program away from its sources has no such
/// folder: it embeds the files.
pub const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// Bytes of every file by name, for `Checkpoint::from_memory`.
#[cfg(feature = "embed")]
pub fn files() -> std::collections::BTreeMap<String, std::sync::Arc<[u8]>> {
    let contents: [&[u8]; 4] = [
        include_bytes!("../config.json"),
        include_bytes!("../encoding.json"),
        include_bytes!("../model.safetensors"),
        include_bytes!("../tokenizer.json"),
    ];
    NAMES.iter().zip(contents).map(|(name, bytes)| ((*name).to_owned(), bytes.into())).collect()
}
