//! Showing tensors to a visitor.

use karat_model::Config;
use karat_model::config::LayerKind;
use karat_seam::{Block, Data, DataMut, Result, RowId, Site, Tap, Tensor, TensorMut, Visitor, Want};

/// Shape of one row of a tap, without the row axis.
pub(crate) fn tail(config: &Config, kind: LayerKind, tap: Tap) -> Vec<usize> {
    let c = &config;
    let series = if kind.has_indexer() { 2 } else { 1 };
    match tap {
        Tap::HcAttnPre | Tap::HcAttnPost | Tap::HcFfnPre | Tap::HcFfnPost => vec![c.hc_mult],
        Tap::HcAttnComb | Tap::HcFfnComb => vec![c.hc_mult, c.hc_mult],
        Tap::In | Tap::HcAttnOut | Tap::Out | Tap::HFinal => vec![c.hc_mult, c.hidden_size],
        Tap::Embed
        | Tap::HcAttnCollapsed
        | Tap::AttnIn
        | Tap::AttnOut
        | Tap::HcFfnCollapsed
        | Tap::FfnIn
        | Tap::FfnRouted
        | Tap::FfnShared
        | Tap::FfnOut
        | Tap::HeadCollapsed => vec![c.hidden_size],
        Tap::AttnQr => vec![c.q_lora_rank],
        Tap::AttnQ | Tap::AttnO => vec![c.num_attention_heads, c.head_dim],
        Tap::AttnKv | Tap::AttnCkv | Tap::StateWin | Tap::StateCkv | Tap::StatePrevKvp | Tap::StatePrevScore => {
            vec![c.head_dim]
        }
        Tap::AttnKvp | Tap::AttnGateScore | Tap::StatePendKvp | Tap::StatePendScore => vec![series * c.head_dim],
        Tap::AttnIndexKvp | Tap::AttnIndexGateScore | Tap::StateIndexPendKvp | Tap::StateIndexPendScore => {
            vec![series * c.index_head_dim]
        }
        Tap::AttnIndexK | Tap::StateIndexK | Tap::StateIndexPrevKvp | Tap::StateIndexPrevScore => {
            vec![c.index_head_dim]
        }
        Tap::AttnIndexQ => vec![c.index_n_heads, c.index_head_dim],
        Tap::AttnIndexW => vec![c.index_n_heads],
        Tap::AttnLse => vec![c.num_attention_heads],
        Tap::AttnOa => vec![c.o_groups * c.o_lora_rank],
        Tap::FfnRouterLogits => vec![c.n_routed_experts],
        Tap::FfnIdx | Tap::FfnWt => vec![c.num_experts_per_tok],
        Tap::FfnExpertAct => vec![c.num_experts_per_tok, c.moe_intermediate_size],
        Tap::Logits => vec![c.vocab_size],
        // Entries so far: the caller gives the width. Positions are scalars.
        Tap::AttnIndexScore | Tap::AttnSelected | Tap::StateWinPos => Vec::new(),
    }
}

/// A visitor with the block and rows that it sees at the moment.
pub(crate) struct Taps<'a> {
    pub see: &'a mut dyn Visitor,
    pub block: Block,
    pub config: &'a Config,
    pub kind: LayerKind,
    pub rows: &'a [RowId],
}

impl Taps<'_> {
    /// What the visitor wants of a tap.
    pub(crate) fn want(&self, tap: Tap) -> Want {
        self.see.want(Site { block: self.block, tap })
    }

    /// Shows one row a token; the visitor may change the values.
    pub(crate) fn show(&mut self, tap: Tap, values: &mut [f32]) -> Result<()> {
        let tail = tail(self.config, self.kind, tap);
        self.show_as(tap, self.rows, &tail, values)
    }

    /// Shows values with other rows or another tail than the usual ones.
    pub(crate) fn show_as(&mut self, tap: Tap, rows: &[RowId], tail: &[usize], values: &mut [f32]) -> Result<()> {
        if self.want(tap) == Want::Skip {
            return Ok(());
        }
        let width = tail.iter().product::<usize>();
        let count = if tap.is_state() { values.len() / width.max(1) } else { rows.len() };
        let shape: Vec<usize> = std::iter::once(count).chain(tail.iter().copied()).collect();
        self.see.visit(Site { block: self.block, tap }, rows, TensorMut::f32(&shape, values))
    }

    /// Shows values, and says whether the visitor changed them.
    pub(crate) fn changed(&mut self, tap: Tap, rows: &[RowId], values: &mut [f32]) -> Result<bool> {
        let tail = tail(self.config, self.kind, tap);
        let before = (self.want(tap) == Want::Write).then(|| values.to_vec());
        self.show_as(tap, rows, &tail, values)?;
        Ok(before.is_some_and(|b| b.iter().zip(values.iter()).any(|(a, b)| a.to_bits() != b.to_bits())))
    }

    /// Shows integers `[rows, width]`.
    pub(crate) fn show_i64(&mut self, tap: Tap, shape: &[usize], values: &mut [i64]) -> Result<()> {
        if self.want(tap) == Want::Skip {
            return Ok(());
        }
        let tensor = TensorMut { shape, data: DataMut::I64(values) };
        self.see.visit(Site { block: self.block, tap }, self.rows, tensor)
    }

    /// Shows a mask of selected entries `[rows, width]`, and takes it back when the visitor may have changed it.
    pub(crate) fn show_selected(&mut self, lists: &mut [Vec<u32>], width: usize) -> Result<()> {
        let want = self.want(Tap::AttnSelected);
        if want == Want::Skip {
            return Ok(());
        }
        let mut mask = mask(lists, width);
        let Data::U8(values) = &mut mask.data else { return Ok(()) };
        let shape = [lists.len(), width];
        let tensor = TensorMut { shape: &shape, data: DataMut::U8(values) };
        self.see.visit(Site { block: self.block, tap: Tap::AttnSelected }, self.rows, tensor)?;
        if want == Want::Write && width > 0 {
            for (list, row) in lists.iter_mut().zip(values.chunks_exact(width)) {
                *list = entries_of(row);
            }
        }
        Ok(())
    }
}

/// `[S,T]` mask of lists of entries.
pub(crate) fn mask(lists: &[Vec<u32>], width: usize) -> Tensor {
    let mut mask = vec![0u8; lists.len() * width];
    for (s, list) in lists.iter().enumerate() {
        for e in list {
            mask[s * width + *e as usize] = 1;
        }
    }
    Tensor::u8([lists.len(), width], mask)
}

/// Entries that a mask row marks, ascending.
pub(crate) fn entries_of(row: &[u8]) -> Vec<u32> {
    row.iter().enumerate().filter(|(_, m)| **m != 0).map(|(i, _)| i as u32).collect()
}
