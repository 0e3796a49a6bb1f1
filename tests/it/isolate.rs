//! The story, unattended: a fault in the optimized path of the golden model is isolated to its patches, layer and op.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Inputs, Isolate, Job, Quiet, Subject, isolate};
use karat_bundle::Verdict;
use karat_model::Checkpoint;
use karat_model::prompt::{Encoder, Tokenizer};
use karat_optimized::{History, Stock};
use karat_scenarios::Content;
use karat_seam::{DataMut, Result, RowId, Site, Tap, TensorMut, Visitor, Want};

/// Compressed entries that are written to the cache as zeros: the history behind the window is gone.
struct LostEntries(Site);

impl Visitor for LostEntries {
    fn want(&self, at: Site) -> Want {
        if at == self.0 { Want::Write } else { Want::Skip }
    }

    fn visit(&mut self, _: Site, _: &[RowId], tensor: TensorMut<'_>) -> Result<()> {
        let DataMut::F32(values) = tensor.data else { panic!("entries are numbers") };
        values.fill(0.0);
        Ok(())
    }
}

#[test]
#[ignore = "slow: run with --include-ignored (CI does)"]
fn entries_that_two_patches_lose_together_are_isolated_to_patches_layer_and_op() {
    let checkpoint = Arc::new(Checkpoint::from_memory("golden", karat_golden::files()).unwrap());
    let (tokenizer, encoder) = (Tokenizer::of(&checkpoint).unwrap(), Encoder::of(&checkpoint).unwrap());
    let text = "format = \"karat-scenario/1\"\ntitle = \"t\"\n[generate]\nmaker = \"needle\"\ncontext = 500\nfacts = 3\nseed = 36";
    let mut inputs = Inputs::default();
    for made in Content::from_toml("r", "r.toml", text).unwrap().conversations(&tokenizer, &encoder).unwrap() {
        let rendered = made.render(&tokenizer, &encoder).unwrap();
        inputs.requests.seqs.push(rendered.sequence);
        inputs.scenarios.push("r".into());
        inputs.asks.push(rendered.asks);
    }
    let patches = ["bf16-mhc", "fp8-kv", "fp8-wo-a", "mma-sparse-mla"].map(String::from).to_vec();
    // Layer 2 is the first with compressed entries; each of the two patches alone is harmless.
    let change = |set: &[String]| -> Option<Box<dyn Visitor>> {
        let both = ["fp8-kv", "mma-sparse-mla"].iter().all(|p| set.iter().any(|s| s == p));
        both.then(|| Box::new(LostEntries(Site::layer(2, Tap::AttnCkv))) as Box<dyn Visitor>)
    };
    let stop = AtomicBool::new(false);
    let job = Job { threads: 2, ..Job::new(checkpoint, inputs, &Quiet, &stop) };
    let subject = Subject { stock: Stock::Official, patches, history: History::Cold };
    let ask = Isolate {
        subject,
        quick: Err("not asked".into()),
        arguments: "r.toml".into(),
        change: Some(&change),
        books: None,
    };
    let out = isolate(&job, &ask).unwrap();
    let suspects: Vec<&str> = out.suspects.iter().map(|s| s.what.as_str()).collect();
    // One layer's entries cost 24 times stock's mean KL, and no answer: the others remember.
    assert_eq!(out.verdict, Verdict::Pass, "{out:?}");
    assert!(out.sentence.ends_with("comes from fp8-kv and mma-sparse-mla together"), "{}", out.sentence);
    assert_eq!(suspects[0], "fp8-kv and mma-sparse-mla together", "{suspects:?}");
    assert!(suspects.contains(&"attn.compress_pool of layer 2"), "{suspects:?}");
    // The two that have no part in it are ruled out, and so is the cache.
    for innocent in ["bf16-mhc", "fp8-wo-a", "the cache and the scheduler"] {
        assert!(out.ruled_out.iter().any(|m| m.what.starts_with(innocent)), "{innocent}: {:?}", out.ruled_out);
    }
    assert!(
        out.next[0].command.contains("bisect r.toml") && out.next[0].command.contains("--over all"),
        "{:?}",
        out.next
    );
}
