//! One entry's file: a head that says what it is, and the content with its checksum.

use super::{Hash, key};

const MAGIC: &[u8; 16] = b"karat cache 1\n\0\0";
/// Bytes before the content: magic, key, checksum, length.
pub(super) const HEAD: usize = 16 + 32 + 32 + 8;

/// The head of an entry.
pub(super) fn head(name: &Hash, checksum: &Hash, len: usize) -> Vec<u8> {
    [MAGIC.as_slice(), name, checksum, &(len as u64).to_le_bytes()].concat()
}

/// The content of a file that should be the entry `name`: `None` when it is cut, longer, changed, or of another name.
pub(super) fn content<'f>(name: &Hash, file: &'f [u8]) -> Option<&'f [u8]> {
    let (head, content) = file.split_at_checked(HEAD)?;
    let checksum: Hash = head[48..80].try_into().ok()?;
    let right = head[..16] == *MAGIC && head[16..48] == *name && head[80..] == (content.len() as u64).to_le_bytes();
    (right && key::of(content) == checksum).then_some(content)
}
