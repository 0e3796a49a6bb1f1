//! Expected values are those of spec section 1, written out by hand.

use serde_json::{Value, json};

use super::*;
use crate::Error;
