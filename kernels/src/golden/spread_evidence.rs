//! What is known of several GPUs of one host: one file a device and number of GPUs under `evidence/nccl/`.

use std::collections::BTreeMap;
use std::path::Path;

use karat_model::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{Compared, digests};
use crate::source::changed;

/// One run of the suite's part `nccl`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpreadEvidence {
    /// 1.
    pub format: u32,
    /// Day of the run.
    pub date: String,
    /// Where it ran.
    pub device: Host,
    /// Version of NCCL.
    pub nccl: String,
    /// Golden's images and the digests of their sources, options and compiler.
    pub images: BTreeMap<String, String>,
    /// Sums between the GPUs, one row a format and size.
    pub all_reduce: Vec<Reduced>,
    /// Copies between the GPUs.
    pub all_gather: Gathered,
    /// Bits of golden spread over the GPUs against this processor's.
    pub golden: Compared,
    /// Audits whose all-reduces are NCCL's against audits whose all-reduces are contracts.
    pub audits: Vec<Audited>,
    /// What must be refused with one message.
    pub refusals: Vec<Refused>,
}

/// The GPUs of a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// As the driver names the first.
    pub name: String,
    /// Chip of their images.
    pub arch: String,
    /// Version of the driver's API.
    pub driver: i32,
    /// How many.
    pub gpus: usize,
}

/// All-reduces of one size: which order of additions gives each sum. One sum may be that of several orders.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reduced {
    /// Format that travels and that each addition is rounded to: `Bf16` or `F32`.
    pub wire: String,
    /// Sums.
    pub values: u64,
    /// Sums equal to adding ranks 0, 1, 2 and so on.
    pub as_ranks_ascending: u64,
    /// Sums equal to those of the contract `tp-allreduce:order=ring`.
    pub as_contract_ring: u64,
    /// Sums equal to going around upwards from each rank.
    pub from_rank: Vec<u64>,
    /// Sums that no way around gives.
    pub neither: u64,
    /// Sums that differ between ranks.
    pub between_ranks: u64,
    /// Sums that differ when it is done again.
    pub again: u64,
    /// Median of nine, launch and wait included.
    pub microseconds: f64,
    /// Bytes over each link in that time, in 1e9 a second, as NCCL's tests count them.
    pub bus_gb_s: f64,
}

/// An all-gather of shares of different lengths.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gathered {
    /// Values.
    pub values: u64,
    /// Values that arrived as others.
    pub differing: u64,
    /// Seconds, from and to this processor's memory.
    pub seconds_with_copies: f64,
}

/// One patch audited twice.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audited {
    /// Patch and its options.
    pub patch: String,
    /// Exit code on this processor, and with the GPUs.
    pub exit: [i32; 2],
    /// Seconds of both.
    pub seconds: [f64; 2],
    /// Tables of the bundle that were compared.
    pub files: usize,
    /// Those that differ. With two ranks none may: an order has one result.
    pub differing: Vec<String>,
}

/// A run of `karat` that must end with this exit code.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// Its arguments.
    pub args: Vec<String>,
    /// Exit code that it must have.
    pub expected: i32,
    /// Exit code that it had.
    pub found: i32,
    /// What it said.
    pub message: String,
}

impl SpreadEvidence {
    /// Reads a file.
    ///
    /// # Errors
    /// Unreadable, or no evidence of this format.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::input(format!("evidence cannot be read: {e}")).at(path.display()))?;
        let it: Self = serde_json::from_str(&text)
            .map_err(|e| Error::input(format!("is no evidence on several GPUs: {e}")).at(path.display()))?;
        if it.format != 1 {
            let error = Error::input("is evidence on several GPUs of another format").at(path.display());
            return Err(error.expected(1).found(it.format));
        }
        Ok(it)
    }

    /// Everything that keeps it from saying that golden has the same bits there, and sums are those of an order.
    ///
    /// # Errors
    /// The committed list is broken.
    pub fn faults(&self) -> Result<Vec<String>> {
        let mut out = changed(&self.images, &digests()?, |_| false);
        if self.device.gpus < 2 || self.all_reduce.is_empty() || self.audits.is_empty() {
            out.push("fewer than two GPUs, no sums or no audits: nothing was shown".to_string());
        }
        for it in &self.all_reduce {
            let (wire, n) = (&it.wire, it.values);
            for (count, what) in
                [(it.neither, "no order gives"), (it.between_ranks, "differ by rank"), (it.again, "differ done again")]
            {
                if count > 0 {
                    out.push(format!("all-reduce of {n} values in {wire}: {count} sums that {what}"));
                }
            }
        }
        if self.all_gather.differing > 0 {
            out.push(format!("all-gather: {} values arrived as others", self.all_gather.differing));
        }
        if !self.golden.equal() {
            out.push("golden over the GPUs: values differ, or none were compared".to_string());
        }
        for it in &self.audits {
            if it.exit[0] != it.exit[1] || self.device.gpus == 2 && !it.differing.is_empty() {
                out.push(format!(
                    "audit of {}: exit codes {:?}, tables that differ {:?}",
                    it.patch, it.exit, it.differing
                ));
            }
        }
        for it in self.refusals.iter().filter(|r| r.expected != r.found) {
            let what = it.args.join(" ");
            out.push(format!("{what}: exit code {}, expected {}: {}", it.found, it.expected, it.message));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed() -> SpreadEvidence {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("evidence/nccl");
        SpreadEvidence::read(&folder.join("nvidia-h200-x2.json")).unwrap()
    }

    #[test]
    fn each_thing_found_wrong_is_named() {
        assert_eq!(committed().faults().unwrap(), [""; 0]);
        type Spoil = fn(&mut SpreadEvidence);
        let cases: [(Spoil, &str); 8] = [
            (|it| it.images.values_mut().for_each(|digest| digest.push('0')), "changed since the run"),
            (|it| it.device.gpus = 1, "nothing was shown"),
            (|it| it.all_reduce[0].neither = 3, "3 sums that no order gives"),
            (|it| it.all_reduce[1].between_ranks = 1, "1 sums that differ by rank"),
            (|it| it.all_gather.differing = 2, "2 values arrived as others"),
            (|it| it.golden.rows[0].differing = 1, "values differ"),
            (|it| it.audits[0].differing.push("metrics.csv".into()), "metrics.csv"),
            (|it| it.refusals[0].found = 101, "exit code 101, expected 2"),
        ];
        for (spoil, wanted) in cases {
            let mut it = committed();
            spoil(&mut it);
            let faults = it.faults().unwrap();
            assert!(faults.iter().any(|fault| fault.contains(wanted)), "{wanted}: {faults:?}");
        }
    }
}
