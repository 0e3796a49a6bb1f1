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
        id: "ENC-02",
        change: "the reasoning before the interrupted answer is dropped from the history",
        block: Block::Embed,
        ids: Some(|ids| {
            ids.drain(170..190);
        }),
        ..NONE
    },
    Fault {
        id: "ENC-03",
        change: "an argument in the history is written as another token",
        block: Block::Embed,
        ids: Some(|ids| ids[100] ^= 1),
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
    Fault {
        id: "ENC-08",
        change: "the block of tools is empty in the prompt",
        block: Block::Embed,
        ids: Some(|ids| {
            ids.drain(12..20);
        }),
        ..NONE
    },
];
