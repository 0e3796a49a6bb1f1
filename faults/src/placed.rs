//! Twenty faults of the list as the golden model has them: what an engine with a wrong kernel does in every layer that the
//! kernel runs in, and what a wrong load or page does in one.

use karat_seam::Block;

use crate::{Fault, faults};

/// A fault put into layers of the golden model (ratios 0, 0, 4, 128, 4, 128, 4).
#[derive(Debug, Clone, Copy)]
pub struct Placed {
    /// Id of the fault in the list.
    pub id: &'static str,
    /// Layers whose ops it edits; empty: where the list has it.
    pub layers: &'static [u16],
    /// Why it is in the table.
    pub why: &'static str,
}

const EVERY: &[u16] = &[0, 1, 2, 3, 4, 5, 6];
const CSA: &[u16] = &[2, 4, 6];
const HCA: &[u16] = &[3, 5];
const COMPRESSED: &[u16] = &[2, 3, 4, 5, 6];

/// Chosen before any of them was run: at most three of a family, numbers that are wrong everywhere beside state that is
/// wrong in one place, prefill beside decode. Left out are those whose edit names a layer or tensor that is of another
/// kind here, those that change ids (no position would be compared with its own), and those that make numbers no numbers.
pub const PLACED: [Placed; 20] = [
    Placed {
        id: "ROUTE-01",
        layers: EVERY,
        why: "one factor too many on all experts: everything moves, nothing is mixed up",
    },
    Placed { id: "ROUTE-17", layers: EVERY, why: "the same size of error, in decode alone" },
    Placed { id: "ACT-04", layers: EVERY, why: "wrong for outliers alone" },
    Placed { id: "QUANT-10", layers: EVERY, why: "decode spoils what it writes into the window" },
    Placed { id: "QUANT-11", layers: &[], why: "one layer's experts are noise: a load that went wrong" },
    Placed { id: "QUANT-12", layers: &[], why: "the head alone, one coarse rounding of the weight" },
    Placed { id: "MHC-01", layers: EVERY, why: "streams mixed wrongly, a little in each layer" },
    Placed { id: "MHC-04", layers: &[], why: "logits of another scale: distributions move, their order hardly" },
    Placed { id: "ROPE-02", layers: CSA, why: "entries lose their order, not their content" },
    Placed { id: "ROPE-03", layers: COMPRESSED, why: "attention a little too sharp" },
    Placed {
        id: "INDEX-10",
        layers: CSA,
        why: "decode selects late entries blindly: only what was told there is out of reach",
    },
    Placed { id: "INDEX-18", layers: CSA, why: "every other key is stale: half of the entries can't be found" },
    Placed { id: "COMP-04", layers: CSA, why: "two entries of a conversation, at one place" },
    Placed { id: "COMP-11", layers: HCA, why: "the far past in 128s is off" },
    Placed { id: "ATTN-05", layers: &[], why: "no sinks in decode, one layer" },
    Placed { id: "ATTN-11", layers: CSA, why: "decode attends to what an earlier question asked for" },
    Placed { id: "STATE-04", layers: CSA, why: "one page of entries is garbage: 16 tokens of the conversation" },
    Placed {
        id: "STATE-05",
        layers: CSA,
        why: "one page of entries is another request's: 16 tokens of the conversation",
    },
    Placed { id: "BATCH-06", layers: CSA, why: "decode reads another request's entries" },
    Placed { id: "SPEC-02", layers: EVERY, why: "three rows of the window, for eight tokens" },
];

impl Placed {
    /// The fault, with its layers.
    ///
    /// # Panics
    /// When the list has no fault of this id.
    pub fn fault(&self) -> &'static Fault {
        let listed = faults().into_iter().find(|f| f.id == self.id).unwrap_or_else(|| panic!("no fault {}", self.id));
        let blocks: Vec<Block> = self.layers.iter().map(|l| Block::Layer(*l)).collect();
        match blocks.first() {
            None => listed,
            // Twenty of them at most, for as long as the program runs.
            Some(&block) => Box::leak(Box::new(Fault { block, blocks: Box::leak(blocks.into()), ..*listed })),
        }
    }

    /// Its layers in words.
    pub fn place(&self) -> String {
        match self.layers {
            [] => match self.fault().layer() {
                head if head == "head" => head,
                layer => format!("layer {layer}"),
            },
            EVERY => "every layer".into(),
            layers => format!("layers {}", layers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}
