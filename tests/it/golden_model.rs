//! The mini golden model: its files are what CHECKSUMS says, golden reproduces the logits of the training code on them,
//! and greedy decoding recalls what it was told.

use std::sync::Arc;

use karat_model::prompt::{EncodeOptions, Encoder, Message, Role, Tokenizer};
use karat_model::{Checkpoint, prompt::special};
use karat_reference::{Golden, Mode, Session};
use karat_seam::{Lane, NoTaps, Path, Requests, Sequence};
use karat_tests::{cold_run, read_safetensors, rel_max, unpack};
use sha2::{Digest, Sha256};

fn checkpoint() -> Arc<Checkpoint> {
    Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap())
}

#[test]
fn files_have_their_checksums_and_fit_in_ten_megabytes() {
    let files = karat_golden::files();
    let mut lines = String::new();
    for (name, bytes) in &files {
        let sum: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
        lines += &format!("{sum}  {name}\n");
    }
    assert_eq!(lines, karat_golden::CHECKSUMS);
    assert!(files.values().map(|f| f.len()).sum::<usize>() <= 10_000_000);
}

/// The fixture holds rows of the logits that the training code's exact pass (another language, other people's matrix
/// products) gives for one conversation with tools.
#[test]
fn golden_gives_the_logits_of_the_training_code() {
    let want = read_safetensors(&unpack("golden/torch.safetensors"));
    let ids: Vec<u32> = want["ids"].as_i64("ids").unwrap().iter().map(|&v| v as u32).collect();
    let rows: Vec<usize> = want["rows"].as_i64("rows").unwrap().iter().map(|&v| v as usize).collect();
    let requests = Requests { seqs: vec![Sequence::prompt("a", ids.clone())] };
    let golden = Golden::new(checkpoint(), requests, Mode::F32, 2).unwrap();
    let (streams, logits) = cold_run(&golden, &mut NoTaps).unwrap();
    let mut next = ids[1..].to_vec();
    next.push(ids[0]);
    let mtp = golden.mtp(0, &mut [Lane::new(&streams, &mut NoTaps)], &next).unwrap();
    for (name, got) in [("logits", &logits), ("mtp_logits", &mtp[0])] {
        let width = got.width();
        let all = got.as_f32(name).unwrap();
        let want = want[name].as_f32(name).unwrap();
        let rows = &rows[..want.len() / width];
        let got: Vec<f32> = rows.iter().flat_map(|&r| all[r * width..(r + 1) * width].iter().copied()).collect();
        let found = rel_max(&got, want);
        println!("{name}: {found:.2e} over {} rows", rows.len());
        assert!(found <= 2e-5, "{name}: {found:e}");
    }
}

#[test]
fn greedy_decoding_recalls_a_code_after_other_talk() {
    let checkpoint = checkpoint();
    let (encoder, tokenizer) = (Encoder::of(&checkpoint).unwrap(), Tokenizer::of(&checkpoint).unwrap());
    let say = |role, text: &str| Message::new(role, text);
    let mut messages =
        vec![say(Role::User, "remember: the code of the amber falcon is K472."), say(Role::Assistant, "noted.")];
    for _ in 0..12 {
        messages.push(say(
            Role::User,
            "the old song follows the rain. my ticket needs a big hotel. a goal keeps the new team.",
        ));
        messages.push(say(Role::Assistant, "i see."));
    }
    messages.push(say(Role::User, "what is the code of the amber falcon?"));
    let prompt = encoder.encode(&messages, &EncodeOptions::chat()).unwrap();
    let ids = tokenizer.encode_prompt(&prompt).unwrap().ids;
    assert!(ids.len() > 300, "the fact lies outside of the window: {}", ids.len());
    let golden = Golden::new(checkpoint.clone(), Requests { seqs: vec![] }, Mode::F32, 2).unwrap();
    let mut session = Session::new(&golden).unwrap();
    let eos = tokenizer.required_id(special::EOS).unwrap();
    let mut logits = session.extend(&ids, &mut NoTaps).unwrap();
    let mut answer = Vec::new();
    while answer.len() < 24 {
        let width = logits.width();
        let all = logits.as_f32("logits").unwrap();
        let last = &all[all.len() - width..];
        let best = (0..width).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap() as u32;
        if best == eos {
            break;
        }
        answer.push(best);
        logits = session.extend(&[best], &mut NoTaps).unwrap();
    }
    let text = tokenizer.decode(&answer).unwrap();
    assert!(text.contains("K472"), "{text:?}");
}
