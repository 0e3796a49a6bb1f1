use super::*;

fn name(path: &str, inner: &str) -> String {
    Origin::of(Path::new(path)).name(inner)
}

#[test]
fn places_become_names() {
    let sglang = "exp/step=1___rank=0___dump_index=7___name=layer_start__hidden_states___recompute_status=disabled___layer_id=3.pt";
    assert_eq!(name(sglang, "value"), "layer_start__hidden_states/layer_id=3/rank=0/step=1");
    assert_eq!(Origin::of(Path::new(sglang)).index, 7);
    assert_eq!(name(sglang, "value.1"), "layer_start__hidden_states/value.1/layer_id=3/rank=0/step=1");
    assert_eq!(name("name=x___recompute_status=original.pt", "value"), "x/recompute_status=original");
    assert_eq!(name("d/TP1_PP0_Rank1_pid77/Pass00012.pt", "model.norm"), "model.norm/pass=12/pp=0/tp=1");
    assert_eq!(name("TP1_PP0_Rank1_pid77/other.pt", "x"), "TP1_PP0_Rank1_pid77/other/x");
    assert_eq!(name("a/b.npy", "value"), "a/b");
    assert_eq!(name("a=b.pt", "x"), "a=b/x");
}
