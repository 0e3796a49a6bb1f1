//! The oracle's own taps under karat's names, and as a karat-trace: a clean candidate that no code of ours computed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use karat_seam::{Block, Data, Requests, RowId, Sequence, Site, Tap, Tensor};
use karat_trace::{Header, ModelId, Order, TapGlob, TraceWriter};

use crate::oracle;

/// Taps of one prompt of the oracle. Change them before [`OracleTaps::write`] to make a candidate that is off.
pub struct OracleTaps {
    /// `short` or `long`; also the sequence's id.
    pub name: String,
    /// The prompt.
    pub ids: Vec<u32>,
    /// Whole tensors by place. The trimmed taps of `long` (16 rows) are not among them.
    pub taps: BTreeMap<Site, Tensor>,
}

impl OracleTaps {
    /// Reads `short` (all taps) or `long` (streams, decisions, logits, and the state after the prompt).
    pub fn new(name: &str) -> Self {
        let file = oracle(name);
        let Data::I64(ids) = &file["input_ids"].data else { panic!("ids are I64") };
        let mut taps: BTreeMap<Site, Tensor> = BTreeMap::new();
        for (key, tensor) in &file {
            let site = match key.as_str() {
                "logits" => Some(Site { block: Block::Head, tap: Tap::Logits }),
                "port.mtp_logits" => Some(Site { block: Block::Mtp(0), tap: Tap::Logits }),
                other => other.strip_prefix("port.").and_then(|tap| tap.parse().ok()),
            };
            taps.extend(site.map(|site| (site, tensor.clone())));
        }
        if name == "long" {
            let state = oracle("ops");
            taps.extend(state.into_iter().filter_map(|(key, tensor)| Some((state_site(&key)?, tensor))));
        }
        Self { name: name.into(), ids: ids.iter().map(|&id| id as u32).collect(), taps }
    }

    /// The prompt as requests.
    pub fn requests(&self) -> Requests {
        Requests { seqs: vec![Sequence::prompt(self.name.clone(), self.ids.clone())] }
    }

    /// Writes a karat-trace to `target`, a folder that doesn't exist yet.
    pub fn write(&self, target: &Path, model: ModelId) -> PathBuf {
        let header = Header { producer: "oracle".into(), model, ..Header::default() };
        let mut writer = TraceWriter::create(target, &self.requests(), header, TapGlob::all(), Order::Any)
            .unwrap_or_else(|e| panic!("{e}"));
        let last = [RowId::new(0, self.ids.len() as u32 - 1)];
        for (site, tensor) in &self.taps {
            let all: Vec<RowId> = (0..tensor.rows() as u32).map(|pos| RowId::new(0, pos)).collect();
            let rows = if site.tap.is_state() { &last[..] } else { &all };
            writer.add(*site, rows, &tensor.clone().as_mut()).unwrap_or_else(|e| panic!("{e}"));
        }
        writer.finish().unwrap_or_else(|e| panic!("{e}"))
    }
}

/// `state.2.c.prev_kv` and the like as a place.
fn state_site(key: &str) -> Option<Site> {
    let (layer, part) = key.strip_prefix("state.")?.split_once('.')?;
    let tap = match part {
        "win" => Tap::StateWin,
        "wpos" => Tap::StateWinPos,
        "c.entries" => Tap::StateCkv,
        "c.kv" => Tap::StatePendKvp,
        "c.score" => Tap::StatePendScore,
        "c.prev_kv" => Tap::StatePrevKvp,
        "c.prev_score" => Tap::StatePrevScore,
        "i.entries" => Tap::StateIndexK,
        "i.kv" => Tap::StateIndexPendKvp,
        "i.score" => Tap::StateIndexPendScore,
        "i.prev_kv" => Tap::StateIndexPrevKvp,
        "i.prev_score" => Tap::StateIndexPrevScore,
        _ => return None,
    };
    Some(Site::layer(layer.parse().ok()?, tap))
}
