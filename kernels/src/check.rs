//! What the compiler made of an image: registers, spills and shared memory from its log, instructions from a disassembly; and
//! the gates on them. None needs a GPU.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::list::{Image, shared_limit};

/// What one kernel uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Kernel.
    pub entry: String,
    /// Registers a thread.
    pub registers: u32,
    /// Local memory of a thread, bytes.
    pub stack: u32,
    /// Bytes stored because registers ran out.
    pub spill_stores: u32,
    /// Bytes loaded because registers ran out.
    pub spill_loads: u32,
    /// Static shared memory, bytes.
    pub shared: u32,
}

/// Reads the assembler's report (`--ptxas-options=-v`), one record a kernel.
pub fn resources(log: &str) -> Vec<Resources> {
    let mut out: Vec<Resources> = Vec::new();
    for line in log.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let entry = rest.split('\'').next().unwrap_or_default().to_string();
            out.push(Resources { entry, ..Resources::default() });
        }
        let Some(last) = out.last_mut() else { continue };
        for (word, field) in [
            ("bytes stack frame", &mut last.stack),
            ("bytes spill stores", &mut last.spill_stores),
            ("bytes spill loads", &mut last.spill_loads),
            ("registers", &mut last.registers),
            ("bytes smem", &mut last.shared),
        ] {
            if let Some(n) = number_before(line, word) {
                *field = n;
            }
        }
    }
    out
}

/// The number that stands before `word`.
fn number_before(line: &str, word: &str) -> Option<u32> {
    let at = line.find(&format!(" {word}"))?;
    line[..at].rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Instructions by kernel and opcode (with its modifiers), from `nvdisasm`'s text.
pub fn opcodes(disassembly: &str) -> BTreeMap<String, BTreeMap<String, u32>> {
    let mut out: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
    let mut entry: Option<String> = None;
    for line in disassembly.lines() {
        if let Some(rest) = line.trim_start().strip_prefix(".section") {
            let section = rest.trim_start().split([',', '\t', ' ']).next().unwrap_or_default();
            entry = section.strip_prefix(".text.").map(ToString::to_string);
            continue;
        }
        // `        /*0100*/                   @!P0 HMMA.16816.F32.BF16 R4, R8, R12, R4 ;`
        let Some((entry, (_, code))) =
            entry.as_ref().zip(line.trim_start().strip_prefix("/*").and_then(|l| l.split_once("*/")))
        else {
            continue;
        };
        let word = code.split_whitespace().find(|w| !w.starts_with('@') && !w.starts_with('{')).unwrap_or_default();
        let opcode = word.trim_end_matches(';');
        if opcode.starts_with(|c: char| c.is_ascii_uppercase()) {
            *out.entry(entry.clone()).or_default().entry(opcode.to_string()).or_default() += 1;
        }
    }
    out
}

/// A tensor-core product of 16-bit, 8-bit or block-scaled operands with f32 sums.
fn is_mma(code: &str) -> bool {
    ["HMMA.16816.F32", "QMMA.16832.F32", "QMMA.SF"].iter().any(|known| code.starts_with(known))
}

/// An approximate function, or a step of a sum that flushes subnormals. (An exact division or root begins with `MUFU.RCP` or
/// `MUFU.RSQ`, and tells its special cases with instructions that flush.)
fn approximates(code: &str) -> bool {
    let function = ["EX2", "LG2", "SIN", "COS", "TANH"].iter().any(|f| code == format!("MUFU.{f}"));
    function || code.starts_with("FFMA.FTZ")
}

/// Everything about one compiled kernel that breaks its budget. `found` are the counted opcodes, if a disassembler was there.
pub fn breaches(
    image: &Image,
    arch: &str,
    used: &[Resources],
    found: Option<&BTreeMap<String, BTreeMap<String, u32>>>,
) -> Vec<String> {
    let mut out = Vec::new();
    for entry in &image.entries {
        let mut say = |what: String| out.push(format!("{} {} {arch}: {what}", image.name, entry.name));
        let Some(r) = used.iter().find(|r| r.entry == entry.name) else {
            say("the compiler reports no such kernel".to_string());
            continue;
        };
        if r.registers == 0 || r.registers > entry.registers {
            say(format!("{} registers, at most {}", r.registers, entry.registers));
        }
        if r.stack + r.spill_stores + r.spill_loads > 0 {
            say(format!(
                "stack {} bytes, spill stores {}, spill loads {}: none allowed",
                r.stack, r.spill_stores, r.spill_loads
            ));
        }
        if r.shared + entry.shared > shared_limit(arch) {
            say(format!("{} bytes of shared memory, at most {}", r.shared + entry.shared, shared_limit(arch)));
        }
        let Some(found) = found else { continue };
        let none = BTreeMap::new();
        let codes = found.get(&entry.name).unwrap_or(&none);
        let count = |prefix: &str| -> u32 {
            codes.iter().filter(|(code, _)| code.split('.').next() == Some(prefix)).map(|(_, n)| n).sum()
        };
        if codes.is_empty() {
            say("the disassembly holds no such kernel".to_string());
        }
        if entry.mma && !codes.keys().any(|code| is_mma(code)) {
            say("no tensor-core product with f32 sums: the tensor cores are not used".to_string());
        }
        if !entry.mma && count("HMMA") + count("QMMA") + count("OMMA") > 0 {
            say("tensor-core instructions, but the list says none".to_string());
        }
        for local in ["LDL", "STL"] {
            if count(local) > 0 {
                say(format!("{} {local}: local memory", count(local)));
            }
        }
        if image.golden {
            for code in codes.keys().filter(|code| approximates(code)) {
                say(format!("{code}: golden arithmetic approximates nothing"));
            }
        }
        for atomic in ["RED", "ATOM", "ATOMG", "ATOMS"] {
            if count(atomic) > 0 {
                say(format!("{} {atomic}: no atomics", count(atomic)));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
