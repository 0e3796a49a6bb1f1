//! An NVFP4 checkpoint: golden is its bytes dequantised. The same experts stored in MXFP4 and, exactly, in NVFP4 are the
//! same model to golden, bit for bit, and every report on the second says what golden is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use karat_audit::{Inputs, Job, Quiet, Subject};
use karat_bundle::Bundle;
use karat_model::checkpoint::Encoding;
use karat_model::{Checkpoint, Experts, Geometry, new_model, new_model_with};
use karat_optimized::{History, Stock};
use karat_reference::{Golden, Mode};
use karat_seam::{NoTaps, Requests};
use karat_tests::{bits, cold_run};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::optimized_drive::{ids, turns};

fn requests() -> Requests {
    Requests { seqs: vec![turns("a", ids(40, 3).into_iter().map(|i| i % 500).collect(), &[30, 10])] }
}

/// E4M3 code of 2^k: normal from 2^-6 on, subnormal steps of 2^-9 below.
fn e4m3_power(k: i32) -> u8 {
    match k {
        -6..=8 => ((k + 7) as u8) << 3,
        -9..=-7 => 1 << (k + 9),
        _ => panic!("2^{k} has no E4M3 code"),
    }
}

/// The mini model with its experts' power-of-two scales stored as E4M3 scales under one f32 scale a matrix.
fn in_nvfp4(files: &BTreeMap<String, Arc<[u8]>>) -> BTreeMap<String, Arc<[u8]>> {
    let file = SafeTensors::deserialize(&files["model.safetensors"]).unwrap();
    let mut out: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (name, view) in file.iter() {
        let Some(matrix) = name.strip_suffix(".scale").filter(|n| n.contains(".ffn.experts.")) else {
            out.insert(name.to_string(), (view.dtype(), view.shape().to_vec(), view.data().to_vec()));
            continue;
        };
        let exponents: Vec<i32> = view.data().iter().map(|b| i32::from(*b) - 127).collect();
        let global = exponents.iter().max().unwrap() - 8;
        // One scale for 32 columns becomes two for 16.
        let scales = exponents.iter().flat_map(|e| [e4m3_power(e - global); 2]).collect();
        let shape = vec![view.shape()[0], 2 * view.shape()[1]];
        out.insert(format!("{matrix}.weight_scale"), (Dtype::F8_E4M3, shape, scales));
        let global = 2f32.powi(global).to_le_bytes().to_vec();
        out.insert(format!("{matrix}.weight_scale_2"), (Dtype::F32, Vec::new(), global));
    }
    let views = out
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    let bytes = safetensors::serialize(views, None).unwrap();
    let mut files = files.clone();
    files.insert("model.safetensors".to_string(), bytes.into());
    files
}

fn audit(checkpoint: &Arc<Checkpoint>, patch: &str) -> Bundle {
    let (requests, stop) = (requests(), AtomicBool::new(false));
    let job = Job {
        random_weights: true,
        layers: Some(2),
        threads: 2,
        ..Job::new(
            checkpoint.clone(),
            Inputs { scenarios: vec!["made".to_string()], requests, ..Inputs::default() },
            &Quiet,
            &stop,
        )
    };
    let subject = Subject { stock: Stock::Official, patches: vec![patch.to_string()], history: History::Cold };
    karat_audit::audit(&job, &subject).unwrap()
}

#[test]
fn golden_of_an_nvfp4_checkpoint_is_its_bytes_dequantised() {
    let files = new_model(Geometry::Mini, 3);
    let open = |label: &str, files| Arc::new(Checkpoint::from_memory(label, files).unwrap());
    let (mxfp4, nvfp4) = (open("mxfp4", files.clone()), open("nvfp4", in_nvfp4(&files)));
    let expert = nvfp4.linear("layers.1.ffn.experts.2.w2").unwrap();
    assert_eq!(expert.encoding, Encoding::Nvfp4);
    let logits = |checkpoint: &Arc<Checkpoint>| {
        let golden = Golden::new(checkpoint.clone(), requests(), Mode::F32, 2).unwrap();
        bits(&cold_run(&golden, &mut NoTaps).unwrap().1)
    };
    assert!(logits(&mxfp4) == logits(&nvfp4), "the same weights in another format");
    let note = "NVFP4 experts: golden is these bytes dequantised, not the checkpoint they were made from";
    let says = |bundle: &Bundle| bundle.run.notes.iter().any(|n| n == note);
    for act in ["bf16", "fp4"] {
        let bundle = audit(&nvfp4, &format!("nvfp4-moe:act={act}"));
        assert!(says(&bundle), "{:?}", bundle.run.notes);
        assert_eq!(bundle.patches[0].state, "active", "{act}");
    }
    assert!(!says(&audit(&mxfp4, "mxfp4-moe")));
    // A model that is made in NVFP4 from the same values is another model: its golden is what its own bytes say.
    let made = open("made", new_model_with(Geometry::Mini, 3, Experts::Nvfp4));
    assert!(logits(&made) != logits(&mxfp4));
    let bundle = audit(&made, "nvfp4-moe");
    assert!(says(&bundle) && bundle.patches[0].state == "active", "{:?}", bundle.run.notes);
}
