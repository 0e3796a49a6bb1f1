//! Names of the places where a tensor can be seen: a block and a tap.

use std::fmt;
use std::str::FromStr;

/// The part of the model that a tensor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Block {
    /// Token embedding and stream expansion.
    Embed,
    /// A transformer layer.
    Layer(u16),
    /// Final hyper-connection head, norm and logits.
    Head,
    /// A multi-token-prediction block.
    Mtp(u16),
}

/// A place: block and tap. Its text form is the tap name of traces and reports, for example `layers.12.attn.o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// Which part of the model.
    pub block: Block,
    /// Which tensor of it.
    pub tap: Tap,
}

macro_rules! names {
    ($(#[$meta:meta])* $ty:ident { $($(#[doc = $doc:literal])* $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $ty { $($(#[doc = $doc])* $variant,)+ }
        impl $ty {
            /// Every value, in op order.
            pub const ALL: &'static [$ty] = &[$($ty::$variant,)+];
            /// The name in traces and reports.
            pub fn name(self) -> &'static str { match self { $($ty::$variant => $name,)+ } }
            /// The value with this name.
            pub fn from_name(name: &str) -> Option<Self> { match name { $($name => Some($ty::$variant),)+ _ => None } }
            /// Shape and meaning, as this page says them.
            pub fn about(self) -> &'static str { match self { $($ty::$variant => concat!($($doc,)*).trim_ascii(),)+ } }
        }
    };
}

names! {
    /// A named tensor. Declared in op order, so that `Ord` answers "which came first".
    /// S tokens, D hidden, H heads, hd head size, R q_lora, T entries, Hi index heads, di index head size, K experts a
    /// token, E experts, I inner size, G output groups, c = 2 for CSA and 1 for HCA.
    Tap {
        /// `[S,D]` token embeddings before they are copied into the streams.
        Embed = "embed",
        /// `[S,hc,D]` streams that enter an MTP block, made of those that enter the head and of the next id (spec 2.14).
        In = "in",
        /// `[S,hc]` mixing weights into the attention branch.
        HcAttnPre = "hc_attn.pre",
        /// `[S,hc]` weights of the attention branch's output.
        HcAttnPost = "hc_attn.post",
        /// `[S,hc,hc]` stream mixing matrix, `[in, out]`.
        HcAttnComb = "hc_attn.comb",
        /// `[S,D]` collapsed streams before the norm.
        HcAttnCollapsed = "hc_attn.collapsed",
        /// `[S,D]` after attn_norm.
        AttnIn = "attn.in",
        /// `[S,R]` after q_norm.
        AttnQr = "attn.qr",
        /// `[S,H,hd]` normed and roped.
        AttnQ = "attn.q",
        /// `[S,hd]` roped (quantised where the path does).
        AttnKv = "attn.kv",
        /// `[S,c*hd]` main compressor rows.
        AttnKvp = "attn.kvp",
        /// `[S,c*hd]` main compressor scores without ape.
        AttnGateScore = "attn.gate_score",
        /// `[T,hd]` compressed entries, all so far.
        AttnCkv = "attn.ckv",
        /// `[S,c*di]` the indexer's compressor rows.
        AttnIndexKvp = "attn.index_kvp",
        /// `[S,c*di]` the indexer's compressor scores without ape.
        AttnIndexGateScore = "attn.index_gate_score",
        /// `[T,di]` index keys as scored.
        AttnIndexK = "attn.index_k",
        /// `[S,Hi,di]` index queries as scored.
        AttnIndexQ = "attn.index_q",
        /// `[S,Hi]` index head weights, both scale factors included.
        AttnIndexW = "attn.index_w",
        /// `[S,T]` index scores; entries that are not visible are -inf.
        AttnIndexScore = "attn.index_score",
        /// `[S,T]` 1 where the entry is attended.
        AttnSelected = "attn.selected",
        /// `[S,H,hd]` attention output before the inverse rope.
        AttnO = "attn.o",
        /// `[S,H]` natural log of the softmax denominator plus its max, sink included.
        AttnLse = "attn.lse",
        /// `[S,G*o_lora]` before wo_b.
        AttnOa = "attn.oa",
        /// `[S,D]` after wo_b.
        AttnOut = "attn.out",
        /// `[S,hc,D]` streams after the attention half of the block.
        HcAttnOut = "hc_attn.out",
        /// `[S,hc]` mixing weights into the feed-forward branch.
        HcFfnPre = "hc_ffn.pre",
        /// `[S,hc]` weights of the feed-forward branch's output.
        HcFfnPost = "hc_ffn.post",
        /// `[S,hc,hc]` stream mixing matrix, `[in, out]`.
        HcFfnComb = "hc_ffn.comb",
        /// `[S,D]` collapsed streams before the norm.
        HcFfnCollapsed = "hc_ffn.collapsed",
        /// `[S,D]` after ffn_norm.
        FfnIn = "ffn.in",
        /// `[S,E]` router logits.
        FfnRouterLogits = "ffn.router_logits",
        /// `[S,K]` experts, slots in selection order.
        FfnIdx = "ffn.idx",
        /// `[S,K]` routing weights, scaling included.
        FfnWt = "ffn.wt",
        /// `[S,K,I]` expert activations after the routing weight, slots as `ffn.idx`.
        FfnExpertAct = "ffn.expert_act",
        /// `[S,D]` sum over the routed experts.
        FfnRouted = "ffn.routed",
        /// `[S,D]` shared expert.
        FfnShared = "ffn.shared",
        /// `[S,D]` routed plus shared.
        FfnOut = "ffn.out",
        /// `[S,hc,D]` streams after the block.
        Out = "out",
        /// `[S,hc,D]` streams before the head.
        HFinal = "h_final",
        /// `[S,D]` collapsed streams before the final norm.
        HeadCollapsed = "head.collapsed",
        /// `[S,V]` logits.
        Logits = "logits",
        /// `[n,hd]` the last min(S, W-1) raw kv rows: KV content after the last row, like all `state.*`.
        StateWin = "state.win",
        /// `[n]` positions of `state.win`.
        StateWinPos = "state.win_pos",
        /// `[T,hd]` all compressed entries.
        StateCkv = "state.ckv",
        /// `[S mod r, c*hd]` compressor rows of the open window.
        StatePendKvp = "state.pend_kvp",
        /// `[S mod r, c*hd]` scores of the open window, WITHOUT ape.
        StatePendScore = "state.pend_score",
        /// `[r,hd]` Ca columns of the last complete window (CSA; absent before it).
        StatePrevKvp = "state.prev_kvp",
        /// `[r,hd]` Ca scores of the last complete window, WITH ape.
        StatePrevScore = "state.prev_score",
        /// `[T,di]` all index keys.
        StateIndexK = "state.index_k",
        /// as `state.pend_kvp`, of the indexer.
        StateIndexPendKvp = "state.index_pend_kvp",
        /// as `state.pend_score`, of the indexer.
        StateIndexPendScore = "state.index_pend_score",
        /// as `state.prev_kvp`, of the indexer.
        StateIndexPrevKvp = "state.index_prev_kvp",
        /// as `state.prev_score`, of the indexer.
        StateIndexPrevScore = "state.index_prev_score",
    }
}

impl Tap {
    /// True when axis 0 is the compressed entry, not the token.
    pub fn is_per_entry(self) -> bool {
        matches!(self, Self::AttnCkv | Self::AttnIndexK)
    }

    /// True for KV content (`state/` keys in a trace).
    pub fn is_state(self) -> bool {
        self >= Self::StateWin
    }

    /// True when the values are decisions (experts, entries), not numbers.
    pub fn is_discrete(self) -> bool {
        matches!(self, Self::FfnIdx | Self::AttnSelected | Self::StateWinPos)
    }

    /// True when the tensor holds the hyper-connection streams `[S,hc,D]`.
    pub fn is_streams(self) -> bool {
        matches!(self, Self::In | Self::HcAttnOut | Self::Out | Self::HFinal)
    }

    /// True for what an MTP block has before its layer.
    pub fn is_of_input(self) -> bool {
        matches!(self, Self::Embed | Self::In)
    }

    /// True for what the head has, the model's or an MTP block's.
    pub fn is_of_head(self) -> bool {
        matches!(self, Self::HFinal | Self::HeadCollapsed | Self::Logits)
    }

    /// True when the last axis grows with the context (`[S,T]`).
    pub fn is_ragged(self) -> bool {
        matches!(self, Self::AttnIndexScore | Self::AttnSelected)
    }
}

impl Site {
    /// A place in a layer.
    pub fn layer(l: u16, tap: Tap) -> Self {
        Self { block: Block::Layer(l), tap }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.tap.name();
        match (self.block, name.strip_prefix("state.")) {
            (Block::Layer(l), Some(part)) => write!(f, "state/layers.{l}.{part}"),
            (Block::Mtp(i), Some(part)) => write!(f, "state/mtp.{i}.{part}"),
            (Block::Layer(l), None) => write!(f, "layers.{l}.{name}"),
            (Block::Mtp(i), None) => write!(f, "mtp.{i}.{name}"),
            (Block::Embed | Block::Head, _) => f.write_str(name),
        }
    }
}

impl FromStr for Site {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("`{text}` is not a tap name (examples: layers.0.attn.o, logits, state/layers.0.win)");
        let (state, rest) = match text.strip_prefix("state/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (block, name) = if let Some(rest) = rest.strip_prefix("layers.") {
            let (l, name) = rest.split_once('.').ok_or_else(unknown)?;
            (Block::Layer(l.parse().map_err(|_| unknown())?), name)
        } else if let Some(rest) = rest.strip_prefix("mtp.") {
            let (i, name) = rest.split_once('.').ok_or_else(unknown)?;
            (Block::Mtp(i.parse().map_err(|_| unknown())?), name)
        } else if rest == Tap::Embed.name() {
            (Block::Embed, rest)
        } else {
            (Block::Head, rest)
        };
        let tap = if state { Tap::from_name(&format!("state.{name}")) } else { Tap::from_name(name) };
        let site = Self { block, tap: tap.ok_or_else(unknown)? };
        // Only the one spelling is a name: `layers.01.out`, `layers.0.embed` and `state.win` are none.
        if site.to_string() == text && site.is_possible() { Ok(site) } else { Err(unknown()) }
    }
}

impl Site {
    /// True when this block has such a tap.
    fn is_possible(self) -> bool {
        match self.block {
            Block::Embed => self.tap == Tap::Embed,
            Block::Head => self.tap.is_of_head(),
            Block::Layer(_) => !self.tap.is_of_head() && !self.tap.is_of_input(),
            Block::Mtp(_) => true,
        }
    }
}
