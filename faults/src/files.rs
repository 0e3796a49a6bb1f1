//! The bytes of a made model, to be edited: what a faulty loader or a wrong config would have made of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use karat_model::Checkpoint;
use karat_model::formats::bf16;
use serde_json::Value;

use crate::size::{mixed, spread};

const WEIGHTS: &str = "model.safetensors";
const CONFIG: &str = "config.json";

/// A tensor in the shard.
#[derive(Clone)]
struct Stored {
    at: Range<usize>,
    shape: Vec<usize>,
    dtype: String,
}

/// Files of one model, with each tensor's bytes in reach. Only models that this workspace makes come here: a name that
/// is not there is a mistake of a fault, and panics.
#[derive(Clone)]
pub struct Files {
    config: Value,
    weights: Vec<u8>,
    tensors: BTreeMap<String, Stored>,
    rest: BTreeMap<String, Arc<[u8]>>,
}

impl Files {
    /// Reads the header of the one shard.
    pub fn of(files: &BTreeMap<String, Arc<[u8]>>) -> Self {
        let mut rest = files.clone();
        let weights = rest.remove(WEIGHTS).expect("a made model has one shard").to_vec();
        let config = rest.remove(CONFIG).expect("a made model has a config");
        let config = serde_json::from_slice(&config).expect("the config of a made model is JSON");
        let (size, body) = weights.split_at(8);
        let size = u64::from_le_bytes(size.try_into().expect("eight bytes")) as usize;
        let header: BTreeMap<String, Value> = serde_json::from_slice(&body[..size]).expect("a safetensors header");
        let number = |v: &Value| v.as_u64().expect("a size") as usize;
        let tensor = |v: &Value| {
            let (shape, at) = (v["shape"].as_array()?, v["data_offsets"].as_array()?);
            let at = 8 + size + number(&at[0])..8 + size + number(&at[1]);
            Some(Stored { at, shape: shape.iter().map(number).collect(), dtype: v["dtype"].as_str()?.to_string() })
        };
        let tensors = header.iter().filter_map(|(name, v)| Some((name.clone(), tensor(v)?))).collect();
        Self { config, weights, tensors, rest }
    }

    /// Sets a field of config.json.
    pub fn set(&mut self, field: &str, value: Value) {
        let old = self.config.get_mut(field).unwrap_or_else(|| panic!("the config has no {field}"));
        *old = value;
    }

    fn at(&self, name: &str) -> &Stored {
        self.tensors.get(name).unwrap_or_else(|| panic!("the model has no tensor {name}"))
    }

    /// Shape of a tensor as stored.
    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.at(name).shape.clone()
    }

    /// Bytes of a tensor.
    pub fn bytes(&mut self, name: &str) -> &mut [u8] {
        let range = self.at(name).at.clone();
        &mut self.weights[range]
    }

    /// Values of an F32 tensor.
    pub fn f32s(&self, name: &str) -> Vec<f32> {
        let bytes = &self.weights[self.at(name).at.clone()];
        bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// Writes values of an F32 tensor.
    pub fn put_f32s(&mut self, name: &str, values: &[f32]) {
        let bytes = self.bytes(name);
        assert_eq!(bytes.len(), 4 * values.len(), "{name}");
        bytes.as_chunks_mut::<4>().0.iter_mut().zip(values).for_each(|(b, v)| *b = v.to_le_bytes());
    }

    /// Changes every value of a BF16 tensor.
    pub fn map_bf16(&mut self, name: &str, map: impl Fn(f32) -> f32) {
        for b in self.bytes(name).as_chunks_mut::<2>().0 {
            *b = bf16::encode(map(bf16::decode(u16::from_le_bytes(*b)))).to_le_bytes();
        }
    }

    /// Changes a tensor of every routed expert of a layer: `w1.weight`, `w3.scale`.
    pub fn experts(&mut self, layer: u16, tensor: &str, edit: impl Fn(&mut [u8], &[usize])) {
        let prefix = format!("layers.{layer}.ffn.experts.");
        let names: Vec<String> =
            self.tensors.keys().filter(|n| n.starts_with(&prefix) && n.ends_with(tensor)).cloned().collect();
        assert!(!names.is_empty(), "no expert of layer {layer} has {tensor}");
        for name in names {
            let shape = self.shape(&name);
            edit(self.bytes(&name), &shape);
        }
    }

    /// Goes back to `right` by all but a share of what was changed: of stored numbers (F32, BF16, config fields) by so much
    /// of each difference; of codes and scales, which hold no value between, in all but so many of the changed rows.
    pub fn shrink(&mut self, right: &Self, share: f32) {
        if let (Some(wrong), Some(right)) = (self.config.as_object_mut(), right.config.as_object()) {
            for (field, value) in wrong {
                let Some((w, r)) = value.as_f64().zip(right.get(field).and_then(Value::as_f64)) else { continue };
                if w != r {
                    *value = Value::from(r + f64::from(share) * (w - r));
                }
            }
        }
        let tensors: Vec<(String, Stored)> = self.tensors.iter().map(|(n, t)| (n.clone(), t.clone())).collect();
        let mut rows = Vec::new();
        for (name, tensor) in tensors {
            let (wrong, right) = (&mut self.weights[tensor.at.clone()], &right.weights[right.at(&name).at.clone()]);
            if wrong == right {
                continue;
            }
            match tensor.dtype.as_str() {
                "F32" => {
                    for (w, r) in wrong.as_chunks_mut::<4>().0.iter_mut().zip(right.as_chunks::<4>().0) {
                        *w = mixed(f32::from_le_bytes(*r), f32::from_le_bytes(*w), share).to_le_bytes();
                    }
                }
                "BF16" => {
                    let value = |b: [u8; 2]| bf16::decode(u16::from_le_bytes(b));
                    for (w, r) in wrong.as_chunks_mut::<2>().0.iter_mut().zip(right.as_chunks::<2>().0) {
                        *w = bf16::encode(mixed(value(*r), value(*w), share)).to_le_bytes();
                    }
                }
                _ => {
                    let width = wrong.len() / tensor.shape[0].max(1);
                    let differs = |i: &usize| wrong[i * width..][..width] != right[i * width..][..width];
                    let at = |i: usize| tensor.at.start + i * width..tensor.at.start + (i + 1) * width;
                    rows.extend((0..tensor.shape[0]).filter(differs).map(at));
                }
            }
        }
        let kept = spread(rows.len(), (rows.len() as f64 * f64::from(share)).round().max(1.0) as usize);
        let back = rows.iter().enumerate().filter(|(i, _)| !kept.contains(i));
        back.for_each(|(_, at)| self.weights[at.clone()].copy_from_slice(&right.weights[at.clone()]));
    }

    /// The files as they are now.
    pub fn into_files(self) -> BTreeMap<String, Arc<[u8]>> {
        let mut files = self.rest;
        files.insert(WEIGHTS.to_string(), Arc::from(self.weights));
        files.insert(CONFIG.to_string(), Arc::from(self.config.to_string().into_bytes()));
        files
    }

    /// The model of these files.
    ///
    /// # Errors
    /// The checkpoint refuses them.
    pub fn checkpoint(self) -> karat_model::Result<Arc<Checkpoint>> {
        Ok(Arc::new(Checkpoint::from_memory("faulty", self.into_files())?))
    }
}
