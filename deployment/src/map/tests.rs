use super::*;

fn hunk(file: &str, function: &str, lines: &str) -> MappedHunk {
    let (old, new) =
        (lines.lines().filter(|l| !l.starts_with('+')).count(), lines.lines().filter(|l| !l.starts_with('-')).count());
    let text = format!("--- a/{file}\n+++ b/{file}\n@@ -1,{old} +1,{new} @@ def {function}(self):\n{lines}\n");
    map_diff("p", text.as_bytes()).unwrap().hunks.remove(0)
}

fn list(set: &BTreeSet<&'static str>) -> Vec<&'static str> {
    set.iter().copied().collect()
}

#[test]
fn the_bf16_line_of_hc_pre() {
    let lines = "-            mixes = (F.linear(x_flat, hc_fn) * rsqrt).unsqueeze(1)\n+            mixes = (F.linear(x_flat.bfloat16(), hc_fn.bfloat16()).float() * rsqrt).unsqueeze(1)";
    let mapped = hunk("python/sglang/srt/models/deepseek_v4.py", "hc_pre_torch_impl", lines);
    assert_eq!(list(&mapped.ops), ["hc_attn.pre", "hc_ffn.pre"]);
    assert_eq!(list(&mapped.patches), ["bf16-mhc"]);
    assert_eq!(mapped.evidence.line, 5);
    // Taking it back touches the same ops and asks for nothing.
    let (removed, added) = lines.split_once('\n').unwrap();
    let back = format!("-{}\n+{}", &added[1..], &removed[1..]);
    let mapped = hunk("python/sglang/srt/models/deepseek_v4.py", "hc_pre_torch_impl", &back);
    assert_eq!((list(&mapped.ops), list(&mapped.patches)), (vec!["hc_attn.pre", "hc_ffn.pre"], vec![]));
}

#[test]
fn words_are_known_in_any_file() {
    let mapped = hunk("ext/fast.py", "f", "+if os.environ.get(\"SGLANG_MMA_FLASHMLA\"):");
    assert_eq!((list(&mapped.ops), list(&mapped.patches)), (vec!["attn.attend"], vec!["mma-sparse-mla"]));
    let mapped = hunk("srt/layers/moe/hash_topk.py", "forward", "+        topk_weights *= self.routed_scaling_factor");
    assert_eq!(list(&mapped.patches), ["routed-scaling-in-topk"]);
}

#[test]
fn what_no_table_knows_is_listed() {
    let other = hunk("my_models/deepseek_v4.py", "hc_pre", "+    hc_prefix = 1");
    assert!(other.ops.is_empty(), "the end of the path is whole parts: {:?}", other.ops);
    let text = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n";
    let map = map_diff("p", text.as_bytes()).unwrap();
    assert_eq!((map.unknown().count(), map.exit_code()), (1, 4));
    let comment = hunk("x.py", "f", "+# hc_fn bfloat16\n+");
    assert!(comment.comments_only && comment.is_known() && comment.patches.is_empty());
}
