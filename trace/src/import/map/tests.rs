use std::collections::BTreeMap;
use std::path::PathBuf;

use super::pattern::Pattern;
use super::*;
use crate::Dtype;
use crate::dumps::{Dump, open_any, pair, pair_mapped};
use crate::import::Array;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/import").join(name)
}

fn f32s(values: &[f32], shape: &[usize]) -> Array {
    Array::held(Dtype::F32, shape.to_vec(), values.iter().flat_map(|v| v.to_le_bytes()).collect()).unwrap()
}

/// The tensor that a map with this rule makes of these.
fn made(rule: &str, tensors: &[(&str, Array)]) -> Result<(Vec<usize>, Vec<f32>, Option<String>)> {
    let map = Map::parse("map", &format!("format = \"karat-map/1\"\n[[tensor]]\n{rule}"))?;
    let held: BTreeMap<&str, &Array> = tensors.iter().map(|(n, a)| (*n, a)).collect();
    let plan = Plan::new(&map, Side::A, held.keys().copied())?;
    let recipe = plan.recipes.get("t").ok_or_else(|| Error::input("no t"))?;
    let built =
        build(recipe, &|name| held.get(name).map(|a| (*a).clone()).ok_or_else(|| Error::input("missing").at(name)))?;
    let tensor = crate::values::decode(built.array.dtype(), built.array.shape(), &built.array.read()?)?;
    let values = tensor.as_f32("t").map(<[f32]>::to_vec).unwrap_or_default();
    Ok((built.array.shape().to_vec(), values, built.problem))
}

#[test]
fn shards_are_joined() {
    let shards = [("x.0", f32s(&[1.0, 2.0, 3.0, 4.0], &[2, 2])), ("x.1", f32s(&[5.0, 6.0], &[2, 1]))];
    let rule = "from = \"x.{r}\"\nto = \"t\"\naxes = \"token head\"\n";
    let concat =
        made(&format!("{rule}shard = {{ over = \"r\", join = \"concat\", axis = \"head\" }}"), &shards).unwrap();
    assert_eq!(concat, (vec![2, 3], vec![1.0, 2.0, 5.0, 3.0, 4.0, 6.0], None));
    let wrong = made(&format!("{rule}shard = {{ over = \"r\", join = \"concat\", axis = \"token\" }}"), &shards);
    assert!(wrong.unwrap_err().to_string().contains("parts don't fit"));
    let twins = [("x.0", f32s(&[1.0, 2.0], &[1, 2])), ("x.1", f32s(&[1.0, 2.5], &[1, 2]))];
    let sum = made(&format!("{rule}shard = {{ over = \"r\", join = \"sum\" }}"), &twins).unwrap();
    assert_eq!(sum, (vec![1, 2], vec![2.0, 4.5], None));
    let (_, _, problem) = made(&format!("{rule}shard = {{ over = \"r\", join = \"replica\" }}"), &twins).unwrap();
    assert_eq!(problem.as_deref(), Some("replicas differ: x.1 is not x.0 (first at element 1)"));
    let same = [("x.0", f32s(&[1.0, 2.0], &[1, 2])), ("x.1", f32s(&[1.0, 2.0], &[1, 2]))];
    assert_eq!(made(&format!("{rule}shard = {{ over = \"r\", join = \"replica\" }}"), &same).unwrap().2, None);
    assert!(made(rule, &same).unwrap_err().to_string().contains("two tensors become one"));
}

#[test]
fn chunks_are_stitched_by_number_and_by_position() {
    let i64s =
        |v: &[i64]| Array::held(Dtype::I64, vec![v.len()], v.iter().flat_map(|v| v.to_le_bytes()).collect()).unwrap();
    let tensors = [
        ("x/step=10", f32s(&[30.0], &[1, 1])),
        ("x/step=2", f32s(&[10.0, 20.0], &[2, 1])),
        ("pos/step=10", i64s(&[0])),
        ("pos/step=2", i64s(&[2, 1])),
    ];
    let rule = |more: &str| {
        format!(
            "from = \"x/step={{s}}\"\nto = \"t\"\naxes = \"token dim\"\nchunks = {{ over = \"s\", axis = \"token\"{more} }}"
        )
    };
    // Step 2 comes before step 10: numbers, not texts.
    assert_eq!(made(&rule(""), &tensors).unwrap().1, [10.0, 20.0, 30.0]);
    let by_position = made(&rule(", positions = \"pos/step={s}\""), &tensors).unwrap();
    assert_eq!((by_position.0, by_position.1), (vec![3, 1], vec![30.0, 20.0, 10.0]));
    let mut twice = tensors.to_vec();
    twice[2].1 = i64s(&[1]);
    assert!(
        made(&rule(", positions = \"pos/step={s}\""), &twice)
            .unwrap_err()
            .to_string()
            .contains("two chunks hold one position")
    );
}

#[test]
fn axes_are_cut_turned_and_rounded() {
    let values: Vec<f32> = (0..24).map(|v| v as f32 + 1.0 / 512.0).collect();
    let x = [("x", f32s(&values, &[1, 2, 3, 4]))];
    let base = "from = \"x\"\nto = \"t\"\naxes = \"batch token stream dim\"\n";
    let (shape, first, _) =
        made(&format!("{base}select = {{ stream = 1 }}\norder = \"dim token\"\nkeep = {{ dim = [1, 3] }}"), &x)
            .unwrap();
    assert_eq!((shape, first), (vec![2, 2], vec![values[5], values[17], values[6], values[18]]));
    let (shape, flat, _) =
        made(&format!("{base}order = \"token stream dim\"\nreshape = [2, -1]\ncast = \"BF16\""), &x).unwrap();
    // 8 bits of mantissa: 1/512 is kept up to 1 and lost beyond.
    assert_eq!((shape, flat[0], flat[1], flat[3]), (vec![2, 12], 1.0 / 512.0, 1.0, 3.0));
    assert!(made(&format!("{base}order = \"token dim\""), &x).unwrap_err().to_string().contains("extent 1"));
    assert!(
        made("from = \"x\"\nto = \"t\"\naxes = \"token dim\"", &x).unwrap_err().to_string().contains("number of axes")
    );
}

#[test]
fn one_tensor_of_layers_is_taken_apart() {
    let map = "format = \"karat-map/1\"\n[[tensor]]\nfrom = \"hidden_states\"\nto = \"layers.{layer}.out\"\naxes = \"token layer dim\"\nunstack = { axis = \"layer\", layers = [3, 7] }";
    let plan = Plan::new(&Map::parse("map", map).unwrap(), Side::B, ["hidden_states"].into_iter()).unwrap();
    assert_eq!(plan.recipes.keys().collect::<Vec<_>>(), ["layers.3.out", "layers.7.out"]);
    let x = f32s(&[0.0, 1.0, 2.0, 3.0], &[2, 2, 1]);
    let seven = build(&plan.recipes["layers.7.out"], &|_| Ok(x.clone())).unwrap().array;
    assert_eq!((seven.shape(), &*seven.read().unwrap()), (&[2, 1][..], &*f32s(&[1.0, 3.0], &[2, 1]).read().unwrap()));
    let three = f32s(&[0.0; 6], &[2, 3, 1]);
    assert!(
        build(&plan.recipes["layers.7.out"], &|_| Ok(three.clone())).err().unwrap().to_string().contains("each index")
    );
}

#[test]
fn the_last_hidden_state_is_not_a_layer() {
    let dump = open_any(&fixture("hidden_states.pt")).unwrap();
    let found = builtin(Side::A, &dump.names()).unwrap().unwrap();
    let names: Vec<_> = found.plan.recipes.iter().map(|(to, r)| (to.as_str(), r.sources().next().unwrap())).collect();
    assert_eq!(found.name, "transformers");
    assert_eq!(
        names,
        [
            ("head.normed", "hidden_states.2"),
            ("hidden_states.0", "hidden_states.0"),
            ("layers.0.out", "hidden_states.1")
        ]
    );
}

#[test]
fn hooks_of_two_ranks_become_taps() {
    let hooks = open_any(&fixture("hooks")).unwrap();
    let expected = open_any(&fixture("expected.safetensors")).unwrap();
    let plan = builtin(Side::A, &hooks.names()).unwrap().unwrap().plan;
    let out = hooks.build(&plan.recipes["layers.1.attn.out"]).unwrap();
    assert_eq!((out.problem, out.array.read().unwrap()), (None, expected.held("plain").unwrap().bytes));
    assert_eq!(plan.unmatched.len(), 12, "{:?}", plan.unmatched);
    let map = Map::parse("m", &[
        "format = \"karat-map/1\"\n[[tensor]]\nfrom = \"model.layers.{layer}.self_attn.wq_b/pass={pass}/pp={pp}/tp={tp}\"\nto = \"plain\"\naxes = \"token head\"",
        "shard = { over = \"tp\", join = \"concat\", axis = \"head\" }\nchunks = { over = \"pass\", axis = \"token\" }",
        "[[tensor]]\nside = \"a\"\nfrom = \"*.partial/pass={pass}/pp=0/tp={tp}\"\nto = \"double\"\naxes = \"token dim\"\nshard = { over = \"tp\", join = \"sum\" }",
        "chunks = { over = \"pass\", axis = \"token\", positions = \"model.forward_batch_info.positions/pass={pass}/pp=0/tp={tp}\" }\ncast = \"F64\"",
    ].join("\n")).unwrap();
    let pairs = pair_mapped(&hooks, &expected, &map).unwrap();
    let names: Vec<_> = pairs.matched.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["double", "plain"]);
    for m in &pairs.matched {
        let (a, b) = (hooks.build(&m.a).unwrap().array, expected.build(&m.b).unwrap().array);
        if m.name == "plain" {
            assert_eq!(a.read().unwrap(), b.read().unwrap());
        } else {
            // The sum of two halves of f32 values, as f64.
            let f64s = |a: &Array| {
                a.read().unwrap().as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b) as f32).collect::<Vec<_>>()
            };
            assert_eq!(f64s(&a), f64s(&b));
        }
    }
    // Positions were used; the rest of the hooks' tensors is listed.
    assert!(pairs.only_a.iter().all(|n| n.contains("wo_b")) && pairs.only_a.len() == 4, "{:?}", pairs.only_a);
    assert_eq!(pairs.only_b.len(), 15);
}

#[test]
fn sglangs_dumper_is_read_and_nothing_is_left_out_in_silence() {
    let dump = open_any(&fixture("sglang")).unwrap();
    let base = "layer_start__hidden_states/layer_id=3/rank=0";
    assert_eq!(
        dump.names().collect::<Vec<_>>(),
        [format!("{base}/step=0"), format!("{base}/step=0/call=1"), format!("{base}/step=1")]
    );
    assert_eq!(dump.unread(), [("rids/rank=0/step=1".to_string(), "no tensor".to_string())]);
    let values = |dump: &Dump, name: &str| dump.tensor(name).unwrap().as_f32(name).unwrap()[0];
    assert_eq!(
        (values(&dump, &format!("{base}/step=0")), values(&dump, &format!("{base}/step=0/call=1"))),
        (-1.5, -0.5)
    );
    let expected = open_any(&fixture("expected.safetensors")).unwrap();
    let pairs = pair(&dump, &expected).unwrap();
    assert_eq!((pairs.matched.len(), pairs.only_a.len(), pairs.only_b.len()), (0, 3, 17));
}

#[test]
fn patterns_take_parts() {
    let p = Pattern::new("model.layers.{layer}.mlp.*/rank={rank}").unwrap();
    let words = p.fits("model.layers.12.mlp.experts.w1/rank=0").unwrap();
    assert_eq!((words["layer"].as_str(), words["rank"].as_str()), ("12", "0"));
    assert!(p.fits("model.layers.x.mlp.a/rank=0").is_none() && p.fits("model.layers.1.mlp.a/rank=0/x").is_none());
    assert_eq!(Pattern::new("TP{tp}_x").unwrap().fits("TP12_x").unwrap()["tp"], "12");
    for bad in ["", "{a", "{a}{b}", "{a}-{a}", "{a b}", "*-*-*", "**"] {
        assert!(Pattern::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn mistakes_name_line_and_field() {
    for (text, expected) in [
        ("format = \"karat-map/2\"", "unknown format"),
        ("x", "map: line 1"),
        ("format = \"karat-map/1\"\n[[tensor]]\nfrom = \"a\"\nto = \"b\"\ntypo = 1", "map: line 5"),
        ("format = \"karat-map/1\"\n\n[[tensor]]\nfrom = \"a\"\nto = \"{layer}\"", "a word that `from` doesn't have"),
        (
            "format = \"karat-map/1\"\n[[tensor]]\nfrom = \"a{r}\"\nto = \"b\"\nshard = { over = \"r\", join = \"concat\" }",
            "need an `axis`",
        ),
        (
            "format = \"karat-map/1\"\n[[tensor]]\nfrom = \"a{r}\"\nto = \"b\"\nshard = { over = \"q\", join = \"sum\" }",
            "names no word",
        ),
        ("format = \"karat-map/1\"\n[[tensor]]\nfrom = \"a\"\nto = \"b\"\ncast = \"INT4\"", "unknown `cast`"),
        ("format = \"karat-map/1\"\n[[tensor]]\nfrom = \"a\"\nto = \"b\"\nselect = { x = 1 }", "isn't named in `axes`"),
    ] {
        let found = Map::parse("map", text).unwrap_err().to_string();
        assert!(found.contains(expected), "{found}");
    }
    for (name, text) in [
        ("sglang", include_str!("maps/sglang.toml")),
        ("transformers", include_str!("maps/transformers.toml")),
        ("vllm", include_str!("maps/vllm.toml")),
    ] {
        Map::parse(name, text).unwrap();
    }
}
