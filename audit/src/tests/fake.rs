//! A small net behind the seam: enough ops to have numbers, streams, decisions and a head.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use karat_seam::{
    Block, Blocks, Error, Lane, Layer, LayerOut, Op, Path, Phase, Requests, Result, Routing, RowId, Sequence, Site,
    Streams, Tap, Tensor, TensorMut, Visitor, Want,
};
use sha2::{Digest, Sha256};

pub(super) const HC: usize = 2;
pub(super) const D: usize = 4;
pub(super) const EXPERTS: usize = 4;
pub(super) const VOCAB: usize = 6;

/// What a fake does differently from golden.
#[derive(Debug, Clone, Default)]
pub(super) struct Fault {
    /// Added to element 1 of row `pos` of this tap in this layer.
    pub(super) at: Option<(u16, Tap, u32, f32)>,
    /// Every value of the tap is multiplied by this.
    pub(super) gain: Option<(u16, Tap, f32)>,
    /// Chooses the two smallest scores at this position of this layer.
    pub(super) wrong_experts: Option<(u16, u32)>,
    /// Gives no `out` for this layer, like a trace without it.
    pub(super) no_out: Option<u16>,
    /// Has no embedding.
    pub(super) no_embed: bool,
    /// Has no head.
    pub(super) no_head: bool,
}

/// A net of `layers` layers.
pub(super) struct Fake {
    pub(super) name: &'static str,
    pub(super) requests: Requests,
    pub(super) layers: u16,
    pub(super) fault: Fault,
    /// Rows from here on are decode rows.
    pub(super) decode_from: u32,
    /// Layers that were loaded.
    pub(super) loads: AtomicU32,
    /// The floor that it states.
    pub(super) stated: f64,
}

pub(super) fn requests(lengths: &[usize]) -> Requests {
    let ids = |n: usize, s: usize| (0..n).map(|i| ((i * 3 + s) % VOCAB) as u32).collect::<Vec<u32>>();
    let sequence = |(s, n): (usize, &usize)| Sequence::prompt(format!("s{s}"), ids(*n, s));
    Requests { seqs: lengths.iter().enumerate().map(sequence).collect() }
}

impl Fake {
    pub(super) fn new(requests: Requests, fault: Fault) -> Self {
        let (decode_from, loads) = (u32::MAX, AtomicU32::new(0));
        Self { name: "fake", requests, layers: 3, fault, decode_from, loads, stated: 0.0 }
    }

    /// Shows `[rows of one sequence, tail]` values, sequence by sequence, after the fault was put in.
    fn show(
        &self,
        see: &mut dyn Visitor,
        block: Block,
        tap: Tap,
        rows: &[RowId],
        tail: &[usize],
        v: &mut [f32],
    ) -> Result<()> {
        let width: usize = tail.iter().product();
        if let Block::Layer(l) = block {
            if let Some((_, _, pos, by)) = self.fault.at.filter(|f| (f.0, f.1) == (l, tap))
                && let Some(i) = rows.iter().position(|r| r.pos == pos)
            {
                v[i * width + 1] += by;
            }
            if let Some((_, _, gain)) = self.fault.gain.filter(|f| (f.0, f.1) == (l, tap)) {
                v.iter_mut().for_each(|v| *v *= gain);
            }
        }
        let site = Site { block, tap };
        let mut start = 0;
        while start < rows.len() {
            let end = (start..rows.len()).find(|&i| rows[i].seq != rows[start].seq).unwrap_or(rows.len());
            if see.want(site) != Want::Skip {
                let shape: Vec<usize> = std::iter::once(end - start).chain(tail.iter().copied()).collect();
                see.visit(site, &rows[start..end], TensorMut::f32(&shape, &mut v[start * width..end * width]))?;
            }
            start = end;
        }
        Ok(())
    }
}

fn collapse(x: &[f32]) -> Vec<f32> {
    x.chunks_exact(HC * D).flat_map(|row| (0..D).map(|d| row[d] + 0.5 * row[D + d]).collect::<Vec<_>>()).collect()
}

/// `[n,D]` through a fixed matrix of this layer.
fn mix(x: &[f32], l: u16, out: usize) -> Vec<f32> {
    let weight = |o: usize, d: usize| ((o * 7 + d * 3 + usize::from(l) * 5) % 11) as f32 / 11.0 - 0.45;
    x.chunks_exact(D)
        .flat_map(|row| (0..out).map(|o| (0..D).map(|d| row[d] * weight(o, d)).sum()).collect::<Vec<f32>>())
        .collect()
}

fn top_two(scores: &[f32], smallest: bool) -> [i64; 2] {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    if smallest {
        order.reverse();
    }
    [order[0] as i64, order[1] as i64]
}

struct FakeLayer<'a> {
    net: &'a Fake,
    l: u16,
}

impl FakeLayer<'_> {
    fn lane(&self, lane: &mut Lane<'_>) -> Result<()> {
        let (rows, block) = (lane.x.rows.clone(), Block::Layer(self.l));
        let x = match &lane.x.data.data {
            karat_seam::Data::F32(v) => v.clone(),
            karat_seam::Data::F64(v) => v.iter().map(|v| *v as f32).collect(),
            other => return Err(Error::Dtype { at: "x".into(), expected: "f32", found: other.dtype() }),
        };
        let mut a = collapse(&x);
        self.net.show(lane.see, block, Tap::AttnIn, &rows, &[D], &mut a)?;
        let mut o = mix(&a, self.l, D);
        self.net.show(lane.see, block, Tap::AttnOut, &rows, &[D], &mut o)?;
        let mut f: Vec<f32> = a.iter().zip(&o).map(|(a, o)| a + o).collect();
        self.net.show(lane.see, block, Tap::FfnIn, &rows, &[D], &mut f)?;
        let mut logits = mix(&f, self.l + 1, EXPERTS);
        self.net.show(lane.see, block, Tap::FfnRouterLogits, &rows, &[EXPERTS], &mut logits)?;
        let mut experts = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            let wrong = self.net.fault.wrong_experts == Some((self.l, row.pos));
            let forced = match lane.routing {
                Routing::Forced(choices) => choices.by_layer.get(&(self.l, row.seq)).filter(|c| !c.experts.is_empty()),
                Routing::Free => None,
            };
            match forced {
                Some(c) => experts.extend(c.experts[row.pos as usize * 2..][..2].iter().map(|e| i64::from(*e))),
                None => experts.extend(top_two(&logits[i * EXPERTS..][..EXPERTS], wrong)),
            }
        }
        let mut at = 0;
        for seq in 0..self.net.requests.seqs.len() as u32 {
            let mine: Vec<RowId> = rows.iter().copied().filter(|r| r.seq == seq).collect();
            let site = Site { block, tap: Tap::FfnIdx };
            if lane.see.want(site) != Want::Skip {
                let mut tensor = Tensor::i64([mine.len(), 2], experts[at * 2..(at + mine.len()) * 2].to_vec());
                lane.see.visit(site, &mine, tensor.as_mut())?;
            }
            at += mine.len();
        }
        let act =
            |i: usize, d: usize| experts[i * 2..][..2].iter().map(|e| f[i * D + d] * (*e as f32 + 1.0)).sum::<f32>();
        let mut y: Vec<f32> = (0..rows.len() * D).map(|i| act(i / D, i % D) * 0.1).collect();
        self.net.show(lane.see, block, Tap::FfnOut, &rows, &[D], &mut y)?;
        let mut out = x;
        for (i, v) in out.iter_mut().enumerate() {
            let (row, rest) = (i / (HC * D), i % (HC * D));
            *v += y[row * D + rest % D] * (1.0 + (rest / D) as f32);
        }
        self.net.show(lane.see, block, Tap::Out, &rows, &[HC, D], &mut out)?;
        if self.net.fault.no_out != Some(self.l) {
            let data = match &lane.x.data.data {
                karat_seam::Data::F64(_) => {
                    Tensor::f64([rows.len(), HC, D], out.iter().map(|v| f64::from(*v)).collect())
                }
                _ => Tensor::f32([rows.len(), HC, D], out),
            };
            lane.out = Some(LayerOut { streams: Streams { rows, data } });
        }
        Ok(())
    }
}

impl Layer for FakeLayer<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> Result<()> {
        lanes.iter_mut().try_for_each(|lane| self.lane(lane))
    }

    fn op(&self, op: Op, operands: &[(Tap, Tensor)], rows: &[RowId]) -> Result<Vec<(Tap, Tensor)>> {
        let [(Tap::FfnIn, input)] = operands else {
            return Err(Error::Unsupported { what: format!("{op:?}"), by: "fake".into() });
        };
        let logits = mix(input.as_f32("ffn.in")?, self.l + 1, EXPERTS);
        let idx = logits.chunks_exact(EXPERTS).flat_map(|s| top_two(s, false)).collect();
        Ok(vec![(Tap::FfnIdx, Tensor::i64([rows.len(), 2], idx))])
    }

    fn has_op(&self, op: Op) -> bool {
        op == Op::Route
    }
}

impl Path for Fake {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> [u8; 32] {
        Sha256::digest(format!("{:?} {} {:?} {}", self.requests, self.layers, self.fault, self.decode_from)).into()
    }

    fn floor(&self) -> f64 {
        self.stated
    }

    fn requests(&self) -> &Requests {
        &self.requests
    }

    fn blocks(&self) -> Blocks {
        Blocks { layers: self.layers, mtp: 0 }
    }

    fn phase_of(&self, row: RowId) -> Phase {
        if row.pos >= self.decode_from { Phase::Decode } else { Phase::Prefill }
    }

    fn embed(&self, see: &mut dyn Visitor) -> Result<Streams> {
        if self.fault.no_embed {
            return Err(Error::Unsupported { what: "embed".into(), by: self.name() });
        }
        let rows: Arc<[RowId]> = self.requests.rows().into();
        let id = |r: &RowId| self.requests.seqs[r.seq as usize].ids[r.pos as usize];
        let mut x: Vec<f32> =
            rows.iter().flat_map(|r| (0..D).map(move |d| (id(r) as usize * 5 + d * 2) as f32 / 9.0 - 1.0)).collect();
        self.show(see, Block::Embed, Tap::Embed, &rows, &[D], &mut x)?;
        let data = x.chunks_exact(D).flat_map(|row| row.repeat(HC)).collect();
        Ok(Streams { data: Tensor::f32([rows.len(), HC, D], data), rows })
    }

    fn layer(&self, l: u16) -> Result<Box<dyn Layer + '_>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(FakeLayer { net: self, l }))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> Result<Vec<Tensor>> {
        if self.fault.no_head {
            return Err(Error::Unsupported { what: "logits".into(), by: self.name() });
        }
        let mut out = Vec::new();
        for lane in lanes {
            let x: Vec<f32> = match &lane.x.data.data {
                karat_seam::Data::F64(v) => v.iter().map(|v| *v as f32).collect(),
                _ => lane.x.data.as_f32("x")?.to_vec(),
            };
            let mut logits = mix(&collapse(&x), 9, VOCAB);
            self.show(lane.see, Block::Head, Tap::Logits, &lane.x.rows, &[VOCAB], &mut logits)?;
            out.push(Tensor::f32([lane.x.rows.len(), VOCAB], logits));
        }
        Ok(out)
    }
}
