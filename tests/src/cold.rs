//! Driving any path through the seam, one lane with its own KV.

use karat_seam::{Lane, Path, Result, Streams, Tensor, Visitor};

/// Embeds, runs every layer and the head; returns the streams that enter the head and the logits `[rows,V]`.
pub fn cold_run(path: &dyn Path, see: &mut dyn Visitor) -> Result<(Streams, Tensor)> {
    let mut x = path.embed(see)?;
    for l in 0..path.blocks().layers {
        let layer = path.layer(l)?;
        let mut lanes = [Lane::new(&x, see)];
        layer.run(&mut lanes)?;
        let [lane] = lanes;
        x = lane.out.expect("a layer fills every lane").streams;
    }
    let mut logits = path.head(&mut [Lane::new(&x, see)])?;
    Ok((x, logits.pop().expect("one lane, one tensor")))
}

/// Bits of an f32 tensor.
pub fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.as_f32("bits").expect("an f32 tensor").iter().map(|v| v.to_bits()).collect()
}
