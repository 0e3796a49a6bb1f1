//! A layer's state in pages: every call's state is read from them before it runs, and what it adds is written after.

use std::collections::BTreeMap;

use super::Resident;
use super::attention::LayerState;
use crate::ops::compress::CompressorWeights;
use crate::serving::{Compressor, Event, Geometry, PageRow, Paged, Part, Piece, Store, Told, Window};

/// The pages of one layer and lane, and how far the program has run.
pub(super) struct Pages<'a> {
    layer: &'a Resident<'a>,
    paged: &'a Paged,
    store: Store<f32>,
    pieces: Vec<&'a Piece>,
    /// The next event to happen.
    next: usize,
    /// Pieces of the calls that happened.
    begun: usize,
    /// The piece after which each request that reaches its end is done.
    ends: BTreeMap<usize, usize>,
    /// Final content by the last piece of its request.
    finals: BTreeMap<usize, LayerState>,
}

impl<'a> Pages<'a> {
    pub(super) fn new(layer: &'a Resident<'a>, paged: &'a Paged) -> Self {
        let config = layer.config();
        let state = |w: Option<usize>| w.map_or(0, |width| 2 * width);
        let main = layer.w.compressor.as_ref().map(CompressorWeights::width);
        let index = layer.w.indexer.as_ref().map(|i| i.compressor.width());
        let parts = Geometry::parts(layer.kind);
        let width = |part| match part {
            part if !parts.contains(&part) => 0,
            Part::Window | Part::CsaEntries | Part::HcaEntries => config.head_dim,
            Part::CsaState | Part::HcaState => state(main),
            Part::IndexState => state(index),
            Part::IndexKeys => layer.state().keys.row_width(),
        };
        Self {
            layer,
            paged,
            store: Store::new(paged.geometry, layer.l, width),
            pieces: paged.program.pieces().collect(),
            next: 0,
            begun: 0,
            ends: paged.program.ends(),
            finals: BTreeMap::new(),
        }
    }

    /// The state that piece `j` starts from, out of the pages that its kernels are told.
    pub(super) fn load(&mut self, j: usize) -> LayerState {
        while self.begun <= j {
            self.happen();
        }
        let piece = self.pieces[j];
        let len = self.paged.program.rows[piece.rows.start].id.pos as usize;
        self.read(j, piece.request, &piece.told, len)
    }

    /// The next event: all of it but the computation of its pieces.
    fn happen(&mut self) {
        let Some(event) = self.paged.program.events.get(self.next) else {
            self.begun = usize::MAX;
            return;
        };
        self.next += 1;
        self.store.apply(event);
        match event {
            Event::Forward { pieces, .. } => self.begun += pieces.len(),
            Event::Done { request, told, rows } => {
                if let Some(end) = self.ends.get(request) {
                    let state = self.read(self.pieces.len(), *request, told, rows.len());
                    self.finals.insert(*end, state);
                }
            }
            Event::Freed { .. } | Event::Cleared { .. } | Event::Moved { .. } => {}
        }
    }

    /// The rest of the program; final content by the last piece of its request.
    pub(super) fn finish(mut self) -> BTreeMap<usize, LayerState> {
        while self.next < self.paged.program.events.len() {
            self.happen();
        }
        self.finals
    }

    /// A row of the cache. One that a kernel was not told of is not there for it.
    fn row(&self, (piece, request): (usize, usize), told: &Told, part: Part, index: usize) -> &[f32] {
        let known = self.paged.geometry.last_token(part, index) < told.seen;
        let values = if known { self.store.read(told, part, index) } else { self.store.poison(part) };
        if let Some(watch) = &self.paged.watch {
            let (layer, at) = (self.layer.l, self.store.place(told, part, index).filter(|_| known));
            watch.read(&PageRow { layer, part, index, piece, request, at, values });
        }
        values
    }

    /// The state after `len` tokens.
    fn read(&self, piece: usize, request: usize, told: &Told, len: usize) -> LayerState {
        let (layer, config) = (self.layer, self.layer.config());
        let row = |part| move |index| self.row((piece, request), told, part, index);
        let mut state = layer.state();
        state.window = Window::restore(config.sliding_window, config.head_dim, len, row(Part::Window));
        let overlaps = layer.kind.has_indexer();
        if let Some(w) = &layer.w.compressor {
            let (rows, entries) =
                if overlaps { (Part::CsaState, Part::CsaEntries) } else { (Part::HcaState, Part::HcaEntries) };
            state.compressor = Compressor::restore(w, len, row(rows));
            let read = row(entries);
            state.entries = (0..len / w.ratio).flat_map(|e| read(e).iter().copied()).collect();
        }
        if let Some(w) = &layer.w.indexer {
            state.index_compressor = Compressor::restore(&w.compressor, len, row(Part::IndexState));
            let read = row(Part::IndexKeys);
            (0..len / w.compressor.ratio).for_each(|e| state.keys.push_row(read(e)));
        }
        state
    }

    /// Writes what piece `j` added to its state.
    pub(super) fn save(&mut self, j: usize, state: &LayerState) {
        let piece = self.pieces[j];
        let told = &piece.told;
        let hd = self.layer.config().head_dim;
        for (part, indices) in self.paged.geometry.writes(self.layer.kind, told.seen..told.seen + piece.rows.len()) {
            let first = indices.start;
            for index in indices {
                let key;
                let width = self.store.width(part);
                let fresh = (index - first) * width..(index - first + 1) * width;
                // Told of more tokens than there are, a call has no such entry.
                let values = match part {
                    Part::Window => state.window.fresh().get(fresh),
                    Part::CsaState | Part::HcaState => state.compressor.fresh().get(fresh),
                    Part::IndexState => state.index_compressor.fresh().get(fresh),
                    Part::CsaEntries | Part::HcaEntries => state.entries.get(index * hd..(index + 1) * hd),
                    Part::IndexKeys => {
                        key = (index < state.keys.len()).then(|| state.keys.row(index));
                        key.as_deref()
                    }
                };
                let Some(values) = values else { continue };
                self.store.write(told, part, index, values);
                if let Some(watch) = &self.paged.watch {
                    let (layer, at) = (self.layer.l, self.store.place(told, part, index));
                    watch.wrote(&PageRow { layer, part, index, piece: j, request: piece.request, at, values });
                }
            }
        }
    }
}
