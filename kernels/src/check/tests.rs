use super::*;
use crate::list::List;

const LOG: &str = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'split_terms' for 'sm_90a'
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
ptxas info    : Compiling entry function 'split_gemm' for 'sm_90a'
ptxas         .     16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 226 registers, used 1 barriers, 512 bytes smem
";

const SASS: &str = "    .section    .text.split_gemm,\"ax\",@progbits
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
                                                                             /* 0x004fe2 */
        /*0020*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0030*/                   LDL.64 R2, [R1] ;
        /*0040*/                   EXIT ;
    .section    .text.split_terms,\"ax\",@progbits
        /*0000*/                   EXIT ;
";

#[test]
fn the_assemblers_report_is_read() {
    let found = resources(LOG);
    let clean = Resources { entry: "split_terms".to_string(), registers: 32, ..Resources::default() };
    let spilled = Resources {
        entry: "split_gemm".to_string(),
        registers: 226,
        stack: 16,
        spill_stores: 12,
        spill_loads: 8,
        shared: 512,
    };
    assert_eq!(found, [clean, spilled]);
    assert!(resources("nothing of the kind").is_empty());
}

#[test]
fn instructions_are_counted_by_kernel() {
    let found = opcodes(SASS);
    let product = &found["split_gemm"];
    assert_eq!(product["HMMA.16816.F32.BF16"], 2);
    assert_eq!(product["LDL.64"], 1);
    assert_eq!(product["LDC"], 1);
    assert_eq!(found["split_terms"].len(), 1);
}

#[test]
fn golden_approximates_nothing() {
    let list = List::read().unwrap();
    let image = list.image("golden-rows").unwrap();
    assert!(image.options().contains(&"--fmad=false".to_string()));
    assert!(list.images.iter().all(|i| i.golden == i.source.starts_with("reference/golden_")));
    let used: Vec<Resources> = (image.entries.iter())
        .map(|entry| Resources { entry: entry.name.clone(), registers: 32, ..Resources::default() })
        .collect();
    let codes =
        |code: &str| image.entries.iter().map(|e| (e.name.clone(), BTreeMap::from([(code.to_string(), 1)]))).collect();
    // Exact division begins with a reciprocal, and tells special cases with instructions that flush.
    for code in ["FFMA", "MUFU.RCP", "FSETP.GTU.FTZ.AND", "DADD"] {
        assert!(breaches(image, "sm_90a", &used, Some(&codes(code))).is_empty(), "{code}");
    }
    for code in ["FFMA.FTZ", "MUFU.EX2", "MUFU.LG2", "HMMA.16816.F32", "LDL", "RED"] {
        assert_eq!(breaches(image, "sm_90a", &used, Some(&codes(code))).len(), image.entries.len(), "{code}");
    }
}

#[test]
fn one_kernel_of_golden_may_use_tensor_cores_and_must() {
    let list = List::read().unwrap();
    let golden = list.images.iter().filter(|image| image.golden).flat_map(|image| &image.entries);
    let with: Vec<&str> = golden.filter(|entry| entry.mma).map(|entry| entry.name.as_str()).collect();
    assert_eq!(with, ["golden_split_product"]);
    let image = list.image("golden-split").unwrap();
    let used: Vec<Resources> = (image.entries.iter())
        .map(|entry| Resources { entry: entry.name.clone(), registers: 32, ..Resources::default() })
        .collect();
    let codes =
        |code: &str| image.entries.iter().map(|e| (e.name.clone(), BTreeMap::from([(code.to_string(), 1)]))).collect();
    let others = breaches(image, "sm_90a", &used, Some(&codes("HMMA.16816.F32.BF16")));
    assert_eq!(others.len(), image.entries.len() - 1, "{others:?}");
    assert!(others.iter().all(|breach| breach.contains("tensor-core instructions, but the list says none")));
    let none = breaches(image, "sm_90a", &used, Some(&codes("FFMA")));
    assert!(none.len() == 1 && none[0].contains("golden_split_product"), "{none:?}");
}

#[test]
fn each_breach_is_told() {
    let list = List::read().unwrap();
    let image = list.image("split-gemm-3").unwrap();
    let found = breaches(image, "sm_90a", &resources(LOG), Some(&opcodes(SASS)));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("split_gemm") && found[0].contains("spill stores 12"), "{found:?}");
    assert!(found[1].contains("1 LDL"), "{found:?}");
    let clean =
        LOG.replace("16 bytes stack frame, 12 bytes spill stores, 8", "0 bytes stack frame, 0 bytes spill stores, 0");
    assert!(breaches(image, "sm_90a", &resources(&clean), None).is_empty());
    let greedy = clean.replace("Used 226", "Used 256");
    assert!(breaches(image, "sm_90a", &resources(&greedy), None)[0].contains("256 registers, at most 255"));
    // 512 bytes of static shared memory on top of all that sm_120 has.
    let mut full = image.clone();
    full.entries[0].shared = 101_376;
    assert!(breaches(&full, "sm_120a", &resources(&clean), None)[0].contains("101888 bytes of shared memory"));
    let idle = SASS.replace("HMMA.16816.F32.BF16", "FFMA").replace("LDL", "LDS");
    assert!(
        breaches(image, "sm_90a", &resources(&clean), Some(&opcodes(&idle)))[0].contains("tensor cores are not used")
    );
    assert_eq!(breaches(image, "sm_90a", &[], None).len(), 2);
}
