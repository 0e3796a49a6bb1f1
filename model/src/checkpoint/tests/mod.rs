//! Small checkpoints built by hand.
