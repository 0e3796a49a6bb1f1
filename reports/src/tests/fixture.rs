//! A bundle with something in every table, small enough to be read; and one with 10^5 rows.

use karat_bundle::gate::gate;
use karat_bundle::policy::{Limit, Metric};
use karat_bundle::{
    Bundle, Candidate, ChangePoint, Date, DerivationRow, Effect, Examination, FlipRow, HistoryRow, KvShares, Model,
    PatchRow, Policy, RecallRow, Run, Scenario, SignatureTest, TapRow, TokenRow, Verdict, Walls, history_verdict,
};

pub(super) const SETS: [&str; 3] = ["stock", "stock+fp8-kv", "stock+all"];
const TAPS: [(&str, &str); 5] = [
    ("attn.norm", "attn.in"),
    ("attn.compress_pool", "attn.ckv"),
    ("attn.select", "attn.selected"),
    ("attn.attend", "attn.o"),
    ("hc_ffn.post", "out"),
];

/// The day of the verdict.
pub(super) fn day() -> Date {
    Date::of_unix_seconds(1_800_000_000)
}

/// A number between 0.5 and 1.5 that depends on all of its arguments.
fn wobble(parts: &[u64]) -> f64 {
    let mixed = parts.iter().fold(0x9e37_79b9_u64, |h, p| (h ^ p).wrapping_mul(0x100_0000_01b3).rotate_left(23));
    0.5 + (mixed >> 40) as f64 / (1_u64 << 24) as f64
}

fn tap(layer: &str, order: u64, op: &str, tap: &str, set: usize, phase: &str) -> TapRow {
    let w = |n: u64| wobble(&[order, set as u64, phase.len() as u64, n]);
    let is_count = tap == "attn.selected";
    let number = |v: f64| (!is_count).then_some(v);
    let error = 1e-2 * w(1) * if set == 1 && tap == "attn.o" && layer == "2" && phase == "decode" { 6.0 } else { 1.0 };
    let inherited = 1e-2 * w(2);
    TapRow {
        scenario: "tic-tac-toe".into(),
        sequence: "first".into(),
        history: "cold".into(),
        phase: phase.into(),
        patch_set: SETS[set].into(),
        backend: "cpu".into(),
        layer: layer.into(),
        op: op.into(),
        tap: tap.into(),
        n: 4096,
        rel_l2: number(error),
        max_abs: number(error * 3.0),
        max_abs_position: Some((w(3) * 31.0) as u64),
        cosine: number(1.0 - error * error / 2.0),
        gain: number(1.0 + error / 10.0),
        sign_bias: number(0.01 * w(4)),
        ulp_p99: number(4.0 * w(5)),
        total: number(error.hypot(inherited)),
        inherited: number(inherited),
        injected: number(error),
        cross: number(0.0),
        floor: number(1e-6 * w(6)),
        predicted: if is_count { None } else { Some(1.5e-2) },
        tolerance: Some(if is_count { 0.0 } else { 2.25e-2 }),
        ratio_to_predicted: number(error / 1.5e-2),
        order,
        gate: if is_count { "unexplained_flips" } else { "rel_l2" }.into(),
        value: Some(if is_count { 0.0 } else { error }),
        rows: 48,
        basis: "derived".into(),
        ..TapRow::default()
    }
}

fn taps() -> Vec<TapRow> {
    let mut out = Vec::new();
    for (set, _) in SETS.iter().enumerate() {
        for phase in ["prefill", "decode"] {
            for layer in ["0", "1", "2"] {
                let start = 1000 * (1 + layer.parse::<u64>().unwrap_or(0));
                for (i, (op, name)) in TAPS.iter().enumerate() {
                    out.push(tap(layer, start + i as u64, op, name, set, phase));
                }
                let part = tap(layer, start + 4, "hc_ffn.post", "out", set, phase);
                out.push(TapRow { part: "stream.0".into(), value: None, tolerance: None, gate: String::new(), ..part });
            }
            out.push(tap("embed", 0, "embed", "embed", set, phase));
            out.push(tap("head", 9000, "head.logits", "logits", set, phase));
        }
    }
    out
}

fn tokens() -> Vec<TokenRow> {
    let token = |set: usize, position: u64| {
        let w = |n: u64| wobble(&[position, set as u64, n, 77]);
        TokenRow {
            scenario: "tic-tac-toe".into(),
            sequence: "first".into(),
            position,
            phase: if position < 32 { "prefill" } else { "decode" }.into(),
            history: "cold".into(),
            kl: 3e-4 * w(1) * w(2).powi(8),
            js: 1e-4 * w(1),
            delta_logit_rms: 0.02 * w(3),
            top1_golden: 100 + position,
            top1_candidate: if (position + set as u64).is_multiple_of(23) { 7 } else { 100 + position },
            margin_golden: 4.0 * w(4),
            expected_flip_probability: (set > 0).then(|| 0.01 * w(5)),
            top_k_overlap: 0.9,
            target_rank: (position < 47).then_some(1),
            stratum: "prompt".into(),
            patch_set: SETS[set].into(),
            target_logprob_golden: Some(-0.7 * w(6)),
            target_logprob_candidate: Some(-0.7 * w(7)),
        }
    };
    (0..SETS.len()).flat_map(|set| (0..48).map(move |p| token(set, p))).collect()
}

fn flips(tokens: &[TokenRow]) -> Vec<FlipRow> {
    let of = |set: &str, layer: &str, kind: &str, position: u64, n: u64| FlipRow {
        scenario: "tic-tac-toe".into(),
        sequence: "first".into(),
        history: "cold".into(),
        layer: layer.into(),
        kind: kind.into(),
        position,
        golden: 21 + n as i64,
        candidate: 3,
        margin: 0.016 * wobble(&[position, n]),
        predicted_noise: Some(0.0105),
        expected_probability: Some(0.25 * wobble(&[position, n, 5])),
        patch_set: set.into(),
        phase: if position < 32 { "prefill" } else { "decode" }.into(),
    };
    let changed = tokens.iter().filter(|t| t.top1_golden != t.top1_candidate);
    let mut out: Vec<FlipRow> = changed.map(|t| of(&t.patch_set, "head", "argmax", t.position, 0)).collect();
    for n in 0..30 {
        let kind = if n % 3 == 0 { "expert" } else { "entry" };
        out.push(of(SETS[(n % 3) as usize], ["1", "2"][(n % 2) as usize], kind, (n * 7) % 48, n));
        out.push(of("stock+all", "2", "entry", 30 + n % 9, n));
    }
    out
}

fn recall() -> Vec<RecallRow> {
    let row = |set: usize, n: u64| {
        let is_lost = set == 1 && n == 3;
        RecallRow {
            scenario: "tic-tac-toe".into(),
            conversation: format!("talk-{}", n / 2),
            variant: "file".into(),
            history: "cold".into(),
            context_tokens: 400 + 900 * n,
            depth: (n != 5).then_some(0.15 * n as f64),
            length_phase: format!("{}|{}|{}|{}", n % 4, 5 * n, 30 * n, 400 + 900 * n),
            margin_stratum: if n == 3 { "0.5-1" } else { "4+" }.into(),
            expected: "tiny tower".into(),
            matched_golden: 2,
            matched_candidate: if is_lost { 1 } else { 2 },
            answer_kl: 1e-6 * wobble(&[n, set as u64]),
            worst_margin_golden: if n == 3 { 0.75 } else { 6.5 },
            worst_margin_candidate: if is_lost { -0.25 } else { 6.25 },
            amnesia: is_lost.then_some(0.125),
            symptom: if is_lost { "wrong value" } else { "fine" }.into(),
            lost_at_layer: is_lost.then_some(2),
            finish_reason: "forced".into(),
            patch_set: SETS[set].into(),
            question: n % 2,
            kind: "fact".into(),
            answer_tokens: 2,
            phase: "decode".into(),
            said: if is_lost { "tiny boat" } else { "tiny tower" }.into(),
            ..RecallRow::default()
        }
    };
    (0..SETS.len()).flat_map(|set| (0..6).map(move |n| row(set, n))).collect()
}

fn histories() -> Vec<HistoryRow> {
    let row = |history: &str, against: &str, what: &str, value: f64, tolerance: f64| HistoryRow {
        scenario: "tic-tac-toe".into(),
        sequence: "first".into(),
        history: history.into(),
        against: against.into(),
        what: what.into(),
        compared: 96,
        differs: value as u64,
        gate: "rows".into(),
        value: Some(value),
        tolerance: Some(tolerance),
        calls: 3,
        rows: 48,
        ..HistoryRow::default()
    };
    let bad = HistoryRow {
        layer: "1".into(),
        tensor: "attn.ckv".into(),
        pool: "compressed".into(),
        page: Some(2),
        position: Some(35),
        found: Some(0.25),
        expected: Some(0.5),
        read_by: "decode at 36".into(),
        minimal: "one request, aborted after 33".into(),
        ..row("after-abort", "cold run", "pages", 4.0, 0.0)
    };
    vec![
        row("chunked", "cold run", "pages", 0.0, 0.0),
        row("chunked", "golden", "logits", 0.0125, 0.5),
        bad,
        HistoryRow { missing: "no page was reused".into(), ..row("warm", "cold run", "pages", 0.0, 0.0) },
    ]
}

fn patches() -> Vec<PatchRow> {
    let row = |patch: &str, calls: u64, state: &str| PatchRow {
        patch: patch.into(),
        profile: "official".into(),
        phases: "prefill|decode".into(),
        risk: "medium".into(),
        claimed_error: 0.026,
        measured_error: Some(0.0195),
        calls_prefill: calls,
        calls_decode: 16 * calls,
        largest_prefill: 32,
        state: state.into(),
        speedup: (patch == "fp8-kv").then_some(1.375),
        expected_verdict: Some(karat_bundle::Verdict::Pass),
        ..PatchRow::default()
    };
    vec![row("fp8-kv", 3, "active"), row("chunked-prefill", 3, "inert")]
}

fn examination() -> Examination {
    let test = |name: &str, share: f64, fits: Option<&str>| SignatureTest {
        name: name.into(),
        share,
        fits: fits.map(str::to_string),
    };
    Examination {
        summary: "layers.2.attn.o errs 4.1 times its prediction since layer 2, and looks like a constant gain".into(),
        change_point: Some(ChangePoint { layer: "2".into(), tap: "attn.o".into(), statistic: 9.5, chance: 1.5e-7 }),
        op: "attn.attend".into(),
        tap: "attn.o".into(),
        op_error: 0.0575,
        op_predicted: 0.0145,
        routing_share: Some(0.03125),
        kv: Some(KvShares { stream: 0.0023, cache: 0.0017, both: 0.0029, kernel: 0.0571, fault: String::new() }),
        signatures: vec![
            test("constant gain", 0.96875, Some("gain 1.0625: a scale applied twice")),
            test("stale rows", 0.015625, None),
        ],
        kl: 4.5e-3,
        kl_with_golden_op: 2.5e-4,
        effects: vec![Effect { layer: "2".into(), removed: 4.25e-3, alone: 4.125e-3 }],
    }
}

fn run() -> Run {
    Run {
        format: "karat-bundle/1".into(),
        producer: "karat 0.1.0".into(),
        command: vec!["audit".into(), "--patches".into(), "fp8-kv,chunked-prefill".into()],
        model: Model {
            label: "mini golden model".into(),
            config_sha256: "d8d67bfd10443c2f".repeat(4),
            weights_sha256: "c9fc31a2a01c4538".repeat(4),
            random_weights: false,
        },
        scenarios: vec![Scenario {
            name: "tic-tac-toe".into(),
            ids_sha256: "71ff8478428c3c4d".repeat(4),
            sequences: 1,
            rows: 48,
        }],
        candidate: Candidate {
            name: "optimized".into(),
            claims: "official".into(),
            patch_sets: SETS.map(String::from).to_vec(),
        },
        backend: "cpu".into(),
        threads: 2,
        wall_s: Walls { total: 5.25, golden: 1.5, candidate: 1.75, diff: 2.0, parts: None },
        peak_memory_bytes: 813_441_024,
        notes: vec!["multi-token-prediction blocks were not audited".into()],
        ..Run::default()
    }
}

/// The policy: one limit that is broken beside the tolerances.
fn policy() -> Policy {
    let limit = Limit { name: "kl".into(), metric: Metric::KlMax, max: Some(1e-9), ..Limit::default() };
    Policy { limit: vec![limit], recall_margin: Some(0.25), ..Policy::default() }
}

/// A run that fails, with something in every table.
pub(super) fn bundle() -> Bundle {
    let tokens = tokens();
    let mut bundle = Bundle {
        run: run(),
        taps: taps(),
        derivations: vec![DerivationRow {
            layer: "2".into(),
            tap: "attn.o".into(),
            cost: 0.0145,
            times: 1.0,
            ..DerivationRow::default()
        }],
        flips: flips(&tokens),
        tokens,
        recall: recall(),
        patches: patches(),
        histories: histories(),
        ..Bundle::default()
    };
    bundle.verdict.forward_equivalents = 9.5;
    gate(&mut bundle, &policy(), None, day());
    bundle.verdict.examination = Some(examination());
    bundle.verdict.signature = Some("constant gain 1.0625".into());
    bundle
}

/// A run that passes and has tables of taps alone.
pub(super) fn passing() -> Bundle {
    let mut taps = taps();
    taps.retain(|r| r.patch_set == "stock");
    let mut bundle = Bundle { run: run(), taps, tokens: tokens(), ..Bundle::default() };
    bundle.tokens.retain(|t| t.patch_set == "stock");
    gate(&mut bundle, &Policy::default(), None, day());
    bundle
}

/// A run of recall alone, which passes.
pub(super) fn recalling() -> Bundle {
    let mut bundle = Bundle { run: run(), recall: recall(), ..Bundle::default() };
    bundle.recall.retain(|r| r.patch_set == "stock");
    gate(&mut bundle, &Policy::default(), None, day());
    bundle
}

/// A run of histories alone, which passes.
pub(super) fn serving() -> Bundle {
    let mut bundle = Bundle { run: run(), histories: histories(), ..Bundle::default() };
    let policy = Policy::default();
    bundle.histories.retain(|r| history_verdict(r, &policy).is_none_or(|v| v == Verdict::Pass));
    gate(&mut bundle, &policy, None, day());
    bundle
}

/// 43 layers, 40 taps, 29 patch sets, two phases: 10^5 rows of taps.
pub(super) fn large() -> Bundle {
    let mut taps = Vec::new();
    for layer in 0..43_u64 {
        for t in 0..41_u64 {
            for set in 0..29_u64 {
                for phase in ["prefill", "decode"] {
                    let name = format!("attn.tap-{t}");
                    let row = tap(&layer.to_string(), 1000 * layer + t, "attn.op", &name, (set % 3) as usize, phase);
                    taps.push(TapRow { patch_set: format!("stock+patch-{set}"), ..row });
                }
            }
        }
    }
    let of = |set: u64| tokens().into_iter().map(move |t| TokenRow { patch_set: format!("stock+patch-{set}"), ..t });
    let tokens: Vec<TokenRow> = (0..29).flat_map(of).collect();
    let flips = flips(&tokens);
    let mut bundle = Bundle { run: run(), taps, tokens, flips, ..Bundle::default() };
    bundle.run.candidate.patch_sets = (0..29).map(|set| format!("stock+patch-{set}")).collect();
    gate(&mut bundle, &Policy::default(), None, day());
    bundle
}
