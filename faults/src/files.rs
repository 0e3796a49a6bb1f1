//! The bytes of a made model, to be edited: what a faulty loader or a wrong config would have made of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use karat_model::Checkpoint;
use karat_model::formats::bf16;
use serde_json::Value;

const WEIGHTS: &str = "model.safetensors";
const CONFIG: &str = "config.json";

/// Files of one model, with each tensor's bytes in reach. Only models that this workspace makes come here: a name that
/// is not there is a mistake of a fault, and panics.
pub struct Files {
    config: Value,
    weights: Vec<u8>,
    tensors: BTreeMap<String, (Range<usize>, Vec<usize>)>,
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
            Some((8 + size + number(&at[0])..8 + size + number(&at[1]), shape.iter().map(number).collect()))
        };
        let tensors = header.iter().filter_map(|(name, v)| Some((name.clone(), tensor(v)?))).collect();
        Self { config, weights, tensors, rest }
    }

    /// Sets a field of config.json.
    pub fn set(&mut self, field: &str, value: Value) {
        let old = self.config.get_mut(field).unwrap_or_else(|| panic!("the config has no {field}"));
        *old = value;
    }

    fn at(&self, name: &str) -> &(Range<usize>, Vec<usize>) {
        self.tensors.get(name).unwrap_or_else(|| panic!("the model has no tensor {name}"))
    }

    /// Shape of a tensor as stored.
    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.at(name).1.clone()
    }

    /// Bytes of a tensor.
    pub fn bytes(&mut self, name: &str) -> &mut [u8] {
        let range = self.at(name).0.clone();
        &mut self.weights[range]
    }

    /// Values of an F32 tensor.
    pub fn f32s(&self, name: &str) -> Vec<f32> {
        let bytes = &self.weights[self.at(name).0.clone()];
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
