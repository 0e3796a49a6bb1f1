//! Which image of an operation is quickest at a shape: tiles and splits that did best on an H200, among those that the chip can
//! hold. All images of an operation with the same numerics knobs take any shape: a choice moves microseconds, and bits only where
//! tiles group the sums.

/// Images that smaller chips alone take: an H200 checks them, and times what it takes itself.
pub const SMALL: [&str; 3] = ["mla-small", "mla-small-bf16", "split-gemm-3"];

/// K1 for `batch` sequences: few of them leave multiprocessors idle unless their heads are spread. `bf16`: partials in bf16.
pub fn mla(arch: &str, batch: u32, bf16: bool) -> &'static str {
    let [f32_name, bf16_name] = match batch {
        _ if arch != "sm_90a" => ["mla-small", "mla-small-bf16"],
        0..=4 => ["mla-16", "mla-16-bf16"],
        5..=16 => ["mla-32", "mla-32-bf16"],
        _ => ["mla-64", "mla-64-bf16"],
    };
    if bf16 { bf16_name } else { f32_name }
}

/// K3 with 1, 2 or 3 terms of fn: blocks of 64 tokens or of 128.
pub fn mhc(terms: u32, tokens: u32) -> &'static str {
    match (terms, tokens) {
        (..=1, ..=256) => "mhc-1-small",
        (..=1, _) => "mhc-1-mid",
        (2, ..=2048) => "mhc-2-small",
        (2, _) => "mhc-2-mid",
        (_, ..=2048) => "mhc-3-small",
        _ => "mhc-3-mid",
    }
}

/// Splits of K3 for `blocks` blocks of tokens and `slabs` slabs of 64 columns: as many as `room`, the blocks that the device
/// holds at once, but no more than pay for what `mhc_finish` reads; each of 8 slabs or more, and of 64 at most, which is what
/// the error of the sums is promised for.
pub fn mhc_splits(room: u32, blocks: u32, slabs: u32) -> u32 {
    let most = (slabs / 8).max(1);
    let pays = if blocks <= 8 { 32 } else { 16 };
    (room / blocks.max(1)).min(pays).clamp(slabs.div_ceil(64).min(most), most)
}

/// K5: long prompts fill the device with blocks of 128 tokens. `bf16`: rows in bf16.
pub fn compress(arch: &str, tokens: u32, bf16: bool) -> &'static str {
    match tokens {
        _ if bf16 => "compress-bf16",
        2049.. if arch == "sm_90a" => "compress-long",
        _ => "compress",
    }
}

/// K2's scores: queries of a prefill share keys, those of a batch don't.
pub fn index(prefill: bool) -> &'static str {
    if prefill { "index-fp8-pair" } else { "index-fp8" }
}

/// K4: tiles as wide as an expert's tokens.
pub fn moe(nvfp4: bool, tokens: u32) -> &'static str {
    match (nvfp4, tokens) {
        (false, ..=2) => "moe-mx-8-deep",
        (false, ..=256) => "moe-mx-8",
        (false, ..=2048) => "moe-mx-32",
        (false, _) => "moe-mx-64",
        (true, ..=256) => "moe-nv-8",
        (true, _) => "moe-nv-32",
    }
}

/// The exact-split GEMM with three terms, m by n outputs: half as many rows a block where blocks would be too few.
pub fn gemm(arch: &str, m: u32, n: u32) -> &'static str {
    match m.div_ceil(128) * n.div_ceil(128) {
        _ if arch != "sm_90a" => "split-gemm-3",
        ..=131 => "split-gemm-3-64",
        _ => "split-gemm-3-wide",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::list::{ARCHES, List};

    #[test]
    fn every_choice_is_an_image_of_its_chip_and_of_its_knobs() {
        let list = List::read().unwrap();
        let sizes = [1, 2, 4, 16, 64, 300, 1024, 8192];
        let mut chosen = BTreeSet::new();
        for arch in ARCHES {
            let mut check = |name: &'static str, define: &str, value: i64| {
                let image = list.image(name).unwrap();
                assert!(image.arches().contains(&arch), "{name} on {arch}");
                assert!(arch != "sm_90a" || !SMALL.contains(&name), "{name} on {arch}");
                assert_eq!(image.defines[define], crate::list::Define::Number(value), "{name}");
                chosen.insert(name);
            };
            for n in sizes {
                (0..2).for_each(|bf16| check(mla(arch, n, bf16 == 1), "PARTIAL_BF16", bf16));
                (1..4).for_each(|terms| check(mhc(terms, n), "TERMS", terms.into()));
                (0..2).for_each(|nv| check(moe(nv == 1, n), "NVFP4", nv));
                check(gemm(arch, n, 4096), "TERMS", 3);
                (0..2).for_each(|bf16| check(compress(arch, n, bf16 == 1), "STORE_BF16", bf16));
            }
            (0..2).for_each(|pair| check(index(pair == 1), "QUERIES", pair + 1));
        }
        // Nothing is kept that no shape asks for: all but the images that differ in numerics.
        let kept = list.images.iter().filter(|i| i.source.starts_with("optimized/")).map(|i| i.name.as_str());
        let others =
            ["split-gemm-1", "ceiling", "index-fp8-bf16", "index-fp8-full", "select", "moe-mx-8-fused", "mma-probe"];
        let kept: BTreeSet<&str> = kept.filter(|name| !others.contains(name) && *name != "moe-block-scaled").collect();
        assert_eq!(kept, chosen);
    }

    #[test]
    fn few_blocks_are_made_more() {
        assert_eq!(gemm("sm_90a", 256, 4096), "split-gemm-3-64");
        assert_eq!(gemm("sm_90a", 1024, 4096), "split-gemm-3-wide");
        assert_eq!(mla("sm_90a", 1, false), "mla-16");
    }

    #[test]
    fn splits_of_mhc_fill_the_device_and_keep_their_promise() {
        // 132 multiprocessors hold 396 blocks of either size with three terms.
        for (blocks, splits) in [(1, 32), (8, 32), (16, 16), (32, 12), (64, 6), (4096, 4)] {
            assert_eq!(mhc_splits(396, blocks, 256), splits, "{blocks} blocks");
        }
        assert_eq!(mhc_splits(396, 1, 3), 1);
        assert_eq!(mhc_splits(396, 64, 16_384), 256, "64 slabs at most");
    }
}
