//! Whole logits of a path, for candidates that give no more than logits.

use karat_optimized::{History, Optimized, Plan, Stock};
use karat_seam::{Path, Tensor};

use super::recall::whole_pass;
use crate::Result;
use crate::job::Job;

/// Logits `[rows,V]` of each of the job's sequences, in the order of their positions: golden's, or those of the
/// low-precision path under a profile without patches.
pub fn logits(job: &Job<'_>, stock: Option<Stock>) -> Result<Vec<Tensor>> {
    let requests = job.inputs.requests.clone();
    let path: Box<dyn Path> = match stock {
        None => Box::new(job.golden(requests)?),
        Some(stock) => {
            let plan = Plan { stock, patches: Vec::new(), history: History::Cold };
            Box::new(Optimized::new(job.checkpoint.clone(), requests, plan, job.threads)?)
        }
    };
    let (rows, logits) = whole_pass(path.as_ref(), job.stop)?;
    let (width, values) = (logits.width(), logits.as_f32("logits")?);
    let mut out = Vec::new();
    for seq in 0..job.inputs.requests.seqs.len() as u32 {
        let mut mine: Vec<(u32, usize)> =
            rows.iter().enumerate().filter(|(_, r)| r.seq == seq).map(|(i, r)| (r.pos, i)).collect();
        mine.sort_unstable();
        let picked: Vec<f32> =
            mine.iter().flat_map(|(_, i)| values[i * width..(i + 1) * width].iter().copied()).collect();
        out.push(Tensor::f32([mine.len(), width], picked));
    }
    Ok(out)
}
