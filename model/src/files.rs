//! Files from elsewhere, read with suspicion: the checks that a checkpoint gets, for other readers of safetensors and
//! JSON.

pub use crate::checkpoint::header::{Entry, read as safetensors_header};
pub use crate::json::object as json_object;
