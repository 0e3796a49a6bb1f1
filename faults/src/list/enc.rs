//! What the client's messages become: ids. With other ids nothing can be compared, and that must be said. And the logits
//! of the tokens that mark structure.

use karat_model::formats::bf16;
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
    Fault {
        id: "ENC-05",
        change: "the rows of six special tokens in the head are half as large again",
        block: Block::Head,
        files: Some(|files| {
            let width = files.shape("head.weight")[1];
            for b in files.bytes("head.weight").as_chunks_mut::<2>().0.iter_mut().take(6 * width) {
                *b = bf16::encode(1.5 * bf16::decode(u16::from_le_bytes(*b))).to_le_bytes();
            }
        }),
        ..NONE
    },
    Fault {
        id: "ENC-06",
        change: "markup that leaked into the first answer comes back in the history",
        block: Block::Embed,
        ids: Some(|ids| {
            let at = SEAM as usize - 4;
            ids.splice(at..at, [17, 18, 19]);
        }),
        ..NONE
    },
];
