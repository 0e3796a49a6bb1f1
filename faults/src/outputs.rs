//! A path of which nothing is seen but the streams that leave each layer, and the logits.

use karat_seam::{
    Blocks, Lane, Layer, Op, Path, Phase, Requests, RowId, Site, Streams, Tap, Tensor, TensorMut, Visitor, Want,
};

/// A path of which nothing is seen but the streams that leave each layer, and the logits.
pub struct Outputs<'a>(pub &'a dyn Path);

struct Only<'a>(&'a mut dyn Visitor);

impl Visitor for Only<'_> {
    fn want(&self, at: Site) -> Want {
        if matches!(at.tap, Tap::Out | Tap::Logits) { self.0.want(at) } else { Want::Skip }
    }

    fn visit(&mut self, at: Site, rows: &[RowId], tensor: TensorMut<'_>) -> karat_seam::Result<()> {
        self.0.visit(at, rows, tensor)
    }
}

struct OutputsOf<'a>(Box<dyn Layer + 'a>);

/// Runs lanes whose visitors see no more than that.
fn only(
    lanes: &mut [Lane<'_>],
    mut run: impl FnMut(&mut [Lane<'_>]) -> karat_seam::Result<Vec<Tensor>>,
) -> karat_seam::Result<Vec<Tensor>> {
    let mut out = Vec::new();
    for lane in lanes {
        let mut see = Only(&mut *lane.see);
        let mut own = [Lane { x: lane.x, kv: lane.kv, routing: lane.routing, see: &mut see, out: None }];
        out.extend(run(&mut own)?);
        lane.out = own[0].out.take();
    }
    Ok(out)
}

impl Layer for OutputsOf<'_> {
    fn run(&self, lanes: &mut [Lane<'_>]) -> karat_seam::Result<()> {
        only(lanes, |lanes| self.0.run(lanes).map(|()| Vec::new())).map(|_| ())
    }

    fn has_op(&self, op: Op) -> bool {
        self.0.has_op(op)
    }
}

impl Path for Outputs<'_> {
    fn name(&self) -> String {
        format!("{}, outputs alone", self.0.name())
    }

    fn identity(&self) -> [u8; 32] {
        [0; 32]
    }

    fn requests(&self) -> &Requests {
        self.0.requests()
    }

    fn blocks(&self) -> Blocks {
        self.0.blocks()
    }

    fn phase_of(&self, row: RowId) -> Phase {
        self.0.phase_of(row)
    }

    fn embed(&self, see: &mut dyn Visitor) -> karat_seam::Result<Streams> {
        self.0.embed(see)
    }

    fn layer(&self, l: u16) -> karat_seam::Result<Box<dyn Layer + '_>> {
        Ok(Box::new(OutputsOf(self.0.layer(l)?)))
    }

    fn head(&self, lanes: &mut [Lane<'_>]) -> karat_seam::Result<Vec<Tensor>> {
        only(lanes, |lanes| self.0.head(lanes))
    }
}
