use crate::Kind;
use crate::effective::How;
use crate::evidence::Evidence;
use crate::facts::Facts;

fn at(kind: Kind) -> Evidence {
    Evidence::new(kind, "f", 1, "x")
}

#[test]
fn a_default_needs_a_whole_environment_the_version_and_the_architecture() {
    let name = "SGLANG_OPT_DEEPGEMM_HC_PRENORM";
    let mut facts = Facts::default();
    let how = |facts: &Facts| (facts.effective(name).how, facts.effective(name).value);
    assert_eq!(how(&facts), (How::Unknown, None));
    facts.environment = Some(at(Kind::Environment));
    assert_eq!(how(&facts), (How::Unknown, None));
    assert!(facts.effective(name).why.contains("version was not seen"));
    facts.told("version", "0.5.23", at(Kind::ServerInfo));
    assert_eq!(how(&facts), (How::Unknown, None), "it depends on the architecture");
    facts.told("arch", "sm_90", at(Kind::Log));
    assert_eq!(how(&facts), (How::Default, Some("true".into())));
    facts.told("arch", "sm_121", at(Kind::Log));
    assert_eq!(how(&facts), (How::Default, Some("false".into())), "sm_121 is of sm_120's family");
    facts.told("version", "0.5.24", at(Kind::Scheduler));
    assert_eq!(how(&facts), (How::Unknown, None), "other versions' defaults are not known");
}

#[test]
fn a_stronger_witness_counts_and_what_is_left_to_the_engine_is_open() {
    let mut facts = Facts::default();
    facts.argument("moe_runner_backend", "triton", at(Kind::ServerInfo));
    facts.argument("moe_runner_backend", "marlin", at(Kind::Unit));
    assert_eq!(facts.effective("moe_runner_backend").value.as_deref(), Some("triton"));
    let condition = |values: &[&str]| crate::data::Condition {
        setting: "moe_runner_backend".into(),
        values: values.iter().map(|v| (*v).to_owned()).collect(),
        not: Vec::new(),
        above: None,
    };
    assert_eq!(facts.holds(&condition(&["triton"])).0, Some(true));
    assert_eq!(facts.holds(&condition(&["marlin"])).0, Some(false));
    facts.argument("moe_runner_backend", "auto", at(Kind::Scheduler));
    assert_eq!(facts.holds(&condition(&["triton"])).0, None);
    assert_eq!(facts.holds(&condition(&["auto"])).0, Some(true));
}

#[test]
fn defaults_of_another_engine_are_not_known() {
    let mut facts = Facts { environment: Some(at(Kind::Environment)), ..Facts::default() };
    facts.told("version", "0.5.23", at(Kind::Log));
    assert_eq!(facts.effective("SGLANG_DSV4_FP4_DEQUANT").how, How::Default);
    facts.told("engine", "vllm", at(Kind::Process));
    assert_eq!(facts.effective("SGLANG_DSV4_FP4_DEQUANT").how, How::Unknown);
}

#[test]
fn two_names_with_one_ending_are_told_apart() {
    let mut facts = Facts::default();
    facts.variable("SGLANG_MMA_FLASHMLA", "1", (Kind::Environment, "f", 1));
    assert_eq!(facts.effective("MMA_FLASHMLA").value.as_deref(), Some("true"));
    facts.variable("MMA_FLASHMLA", "0", (Kind::Environment, "f", 2));
    let both = facts.effective("MMA_FLASHMLA");
    assert_eq!((both.how, both.evidence.len()), (How::Unknown, 2));
}
