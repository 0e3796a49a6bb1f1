//! What the client's messages become: ids. With other ids nothing can be compared, and that must be said.

use karat_seam::Block;

use crate::bench::SEAM;
use crate::fault::{Fault, NONE};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        id: "ENC-01",
        change: "the prompt lacks the block of tools before its text",
        block: Block::Embed,
        ids: Some(|ids| {
            ids.drain(8..24);
        }),
        ..NONE
    },
    Fault {
        id: "ENC-07",
        change: "the first answer is trimmed when the second turn renders it again",
        block: Block::Embed,
        ids: Some(|ids| {
            ids.remove(SEAM as usize - 2);
        }),
        ..NONE
    },
];
