//! The scheduler: which rows of which requests a forward call computes, and the pages that they get. It sees token ids
//! and lengths only, never a number.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use karat_model::{Error, Result};
use karat_seam::{Phase, RowId};

use super::shuffle::{Shuffle, extend};
use super::{Captured, Copied, Event, Geometry, Instance, Part, Piece, Pool, Program, Row, Tables, Tally, Told};

/// One request of a client, its answer included (teacher forcing).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Which sequence it belongs to: the index in the requests, or beyond them for company.
    pub seq: u32,
    /// Prompt and answer.
    pub ids: Arc<[u32]>,
    /// Positions that are decoded one by one; the others are prefilled.
    pub decode: Vec<Range<u32>>,
    /// True when it brings its sequence to the final context: it is served to its end whatever happens to it.
    pub last: bool,
    /// Drafts a decode step verifies beside its own token.
    pub drafts: usize,
    /// The token that would be drafted for each position; where it ends, drafts are made up by the seed.
    pub guesses: Arc<[u32]>,
}

/// How an engine is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Pages and windows.
    pub geometry: Geometry,
    /// Tokens of a forward call.
    pub chunk: usize,
    /// Requests in a batch.
    pub batch: usize,
    /// Pages in each pool of an instance.
    pub pages: usize,
    /// Serving instances: 1, or a prefill and a decode instance.
    pub instances: u8,
    /// Keep prefixes for later requests.
    pub cache: bool,
    /// Replay captured graphs for batches of single decode rows.
    pub graphs: bool,
    /// Seed of page orders and drafts.
    pub seed: u64,
}

/// A request that has pages.
#[derive(Debug, Clone)]
struct Running {
    request: usize,
    instance: u8,
    /// Tokens in the cache.
    len: usize,
    tables: Tables,
    /// Which row stands at each of them.
    rows: Vec<usize>,
}

/// Requests, instances, and the program so far.
#[derive(Debug, Clone)]
pub struct Engine {
    setup: Setup,
    works: Vec<Work>,
    instances: Vec<Instance>,
    waiting: VecDeque<usize>,
    running: Vec<Running>,
    /// Most tokens that each request ever had: what lies below is recomputed in prefill after an eviction.
    reached: Vec<usize>,
    done: Vec<bool>,
    /// True for a request that had a place before.
    seated: Vec<bool>,
    passes: BTreeMap<(u32, u32), u32>,
    /// By instance and size.
    graphs: BTreeMap<(u8, usize), Captured>,
    drafts: Shuffle,
    tally: Tally,
    program: Program,
}

impl Engine {
    /// An engine without requests.
    pub fn new(setup: Setup) -> Self {
        let instance = |i: u8| Instance::new(setup.geometry, setup.pages, setup.seed.wrapping_add(u64::from(i) << 8));
        Self {
            setup,
            works: Vec::new(),
            instances: (0..setup.instances.max(1)).map(instance).collect(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            reached: Vec::new(),
            done: Vec::new(),
            seated: Vec::new(),
            passes: BTreeMap::new(),
            graphs: BTreeMap::new(),
            drafts: Shuffle::new(setup.seed ^ 0xd4af),
            tally: Tally::default(),
            program: Program::default(),
        }
    }

    /// Takes a request; gives its number.
    pub fn submit(&mut self, work: Work) -> usize {
        let mut prefix = 0;
        let contexts = work.ids.iter().map(|id| {
            prefix = extend(prefix, *id);
            prefix
        });
        self.program.requests.push((work.seq, contexts.collect()));
        self.program.finals.push(work.last);
        let request = self.works.len();
        self.works.push(work);
        self.reached.push(0);
        self.done.push(false);
        self.seated.push(false);
        self.waiting.push_back(request);
        request
    }

    /// Takes a request that was sent before, if it is neither here nor served.
    pub fn send_again(&mut self, request: usize) {
        if !self.done[request] && self.active(request).is_none() && !self.waiting.contains(&request) {
            self.waiting.push_back(request);
        }
    }

    fn active(&self, request: usize) -> Option<usize> {
        self.running.iter().position(|r| r.request == request)
    }

    /// The client goes away. What was computed stays in the prefix cache, by whole pages.
    pub fn abort(&mut self, request: usize) {
        self.waiting.retain(|r| *r != request);
        if let Some(at) = self.active(request) {
            let gone = self.running.remove(at);
            self.leave(gone, true);
            self.tally.aborts += 1;
        }
        if let Some(reached) = self.reached.get_mut(request) {
            *reached = 0;
        }
    }

    /// The request loses its pages and waits; later it is computed again from what the cache still has.
    pub fn retract(&mut self, request: usize) {
        if let Some(at) = self.active(request) {
            let gone = self.running.remove(at);
            self.leave(gone, false);
            self.waiting.push_front(request);
            self.tally.evictions += 1;
        }
    }

    /// Everything in the prefix caches is evicted.
    pub fn forget(&mut self) {
        for i in 0..self.instances.len() {
            self.instances[i].forget();
            self.note_freed(i as u8);
        }
    }

    /// Moves a running request to the next instance: everything that spec section 3 lists, with its position and ids. When
    /// there is no room it stays.
    pub fn transfer(&mut self, request: usize) {
        let count = self.instances.len() as u8;
        let Some(at) = self.active(request).filter(|_| count > 1) else { return };
        let geometry = self.setup.geometry;
        let (from, to) = (self.running[at].instance, (self.running[at].instance + 1) % count);
        let len = self.running[at].len;
        let mut tables = Tables::default();
        let first = geometry.first_window_page(len);
        tables.of_mut(Pool::Window).first = first.min(geometry.pages(len));
        let room = self.instances[to as usize].reserve(&mut tables, len);
        self.note_freed(to);
        if !room {
            self.instances[to as usize].release_all(&mut tables);
            self.note_freed(to);
            return;
        }
        let old = std::mem::replace(&mut self.running[at].tables, tables.clone());
        self.running[at].instance = to;
        let copies = Part::ALL.into_iter().filter(|p| geometry.pools().any(|pool| pool == p.pool())).map(|part| {
            let (from_table, to_table) = (old.of(part.pool()), tables.of(part.pool()));
            let indices = to_table.first..to_table.end();
            let pages = indices.filter_map(|i| Some((from_table.get(i)?, to_table.get(i)?))).collect();
            Copied { part, layers: 0..u16::MAX, instances: (from, to), pages }
        });
        let copies = copies.collect();
        self.program.events.push(Event::Moved { request, copies });
        self.tally.transfers += 1;
        let mut gone = Running { tables: old, instance: from, ..self.running[at].clone() };
        self.cache(&gone);
        self.instances[from as usize].release_all(&mut gone.tables);
        self.note_freed(from);
    }

    fn cache(&mut self, r: &Running) {
        if self.setup.cache {
            let ids = &self.works[r.request].ids;
            self.instances[r.instance as usize].insert(ids, &r.rows, &r.tables);
        }
    }

    fn leave(&mut self, mut gone: Running, keep: bool) {
        if keep {
            self.cache(&gone);
        }
        self.instances[gone.instance as usize].release_all(&mut gone.tables);
        self.note_freed(gone.instance);
    }

    fn note_freed(&mut self, instance: u8) {
        let freed = self.instances[instance as usize].take_freed();
        self.program.events.extend(freed.into_iter().map(|(pool, page)| Event::Freed { instance, pool, page }));
    }

    /// Waiting requests get a place in the batch, and the pages of the prefix that the cache has.
    fn admit(&mut self) {
        while self.running.len() < self.setup.batch {
            let Some(request) = self.waiting.pop_front() else { return };
            // New requests start on the first instance.
            let hit = self.instances[0].hit(&self.works[request].ids);
            self.tally.hits += usize::from(hit.tokens > 0);
            self.tally.resumes += usize::from(std::mem::replace(&mut self.seated[request], true));
            let running = Running { request, instance: 0, len: hit.tokens, tables: hit.tables, rows: hit.rows };
            self.running.push(running);
        }
    }

    /// Phase and number of the rows that a request computes next.
    fn next_rows(&self, r: &Running) -> (Phase, usize) {
        let (work, len) = (&self.works[r.request], r.len);
        let reached = self.reached[r.request];
        if len < reached {
            return (Phase::Prefill, reached - len);
        }
        let here = len as u32;
        match work.decode.iter().find(|range| range.end > here && range.start < range.end) {
            Some(range) if range.start <= here => (Phase::Decode, (work.drafts + 1).min((range.end - here) as usize)),
            Some(range) => (Phase::Prefill, range.start as usize - len),
            None => (Phase::Prefill, work.ids.len() - len),
        }
    }

    /// One forward call of an instance: decode rows first, then prefill within the chunk. False when nothing is left to
    /// compute there.
    ///
    /// # Errors
    /// Usage: the pools can't hold even one request.
    pub fn step(&mut self, instance: u8) -> Result<bool> {
        self.admit();
        let mut left = self.setup.chunk;
        let mut batch: Vec<(usize, Phase, usize)> = Vec::new();
        for phase in [Phase::Decode, Phase::Prefill] {
            let candidates: Vec<usize> =
                self.running.iter().filter(|r| r.instance == instance).map(|r| r.request).collect();
            for request in candidates {
                let Some(at) = self.active(request) else { continue };
                let (its, rows) = self.next_rows(&self.running[at]);
                let rows = rows.min(left);
                if its != phase || rows == 0 {
                    continue;
                }
                if self.make_room(request, rows, &batch)? {
                    batch.push((request, phase, rows));
                    left -= rows;
                }
            }
        }
        if batch.is_empty() {
            return Ok(false);
        }
        self.forward(instance, &batch);
        Ok(true)
    }

    /// Pages for the next rows of a request. Requests outside the batch give way, the newest first.
    fn make_room(&mut self, request: usize, rows: usize, batch: &[(usize, Phase, usize)]) -> Result<bool> {
        loop {
            let Some(at) = self.active(request) else { return Ok(false) };
            let r = &mut self.running[at];
            let (instance, tokens) = (r.instance, r.len + rows);
            let room = self.instances[instance as usize].reserve(&mut r.tables, tokens);
            self.note_freed(instance);
            if room {
                return Ok(true);
            }
            let in_batch = |r: &Running| batch.iter().any(|(other, ..)| *other == r.request);
            let victim =
                self.running.iter().rev().find(|r| r.instance == instance && r.request != request && !in_batch(r));
            match victim.map(|r| r.request) {
                Some(victim) => self.retract(victim),
                None if batch.is_empty() => {
                    return Err(Error::usage("the page pools are too small for one request")
                        .expected(format!("room for {tokens} tokens"))
                        .found(format!("{} pages of {} tokens", self.setup.pages, self.setup.geometry.page)));
                }
                None => return Ok(false),
            }
        }
    }

    fn forward(&mut self, instance: u8, batch: &[(usize, Phase, usize)]) {
        let mut pieces: Vec<Piece> = Vec::new();
        for &(request, phase, rows) in batch {
            let Some(at) = self.active(request) else { continue };
            let r = &self.running[at];
            let told =
                Told { instance, seen: r.len, tables: r.tables.clone(), state: r.tables.of(Pool::Window).clone() };
            let len = r.len;
            let first = self.program.rows.len();
            self.compute(request, phase, len..len + rows);
            pieces.push(Piece { request, rows: first..self.program.rows.len(), told });
        }
        let single = |p: &Piece| p.rows.len() == 1 && self.program.rows[p.rows.start].phase == Phase::Decode;
        let replayed = self.setup.graphs && pieces.iter().all(single);
        let pads = if replayed { self.replay(instance, &mut pieces) } else { Vec::new() };
        let decodes = |p: &Piece| self.program.rows[p.rows.start].phase == Phase::Decode;
        self.tally.mixed += usize::from(pieces.iter().any(decodes) && !pieces.iter().all(decodes));
        self.tally.replays += usize::from(replayed);
        self.tally.padded += usize::from(!pads.is_empty());
        let rows: Vec<(usize, Range<usize>)> = pieces.iter().map(|p| (p.request, p.rows.clone())).collect();
        self.program.events.push(Event::Forward { pieces, pads, replayed });
        for (request, rows) in rows {
            self.take_in(request, rows);
        }
    }

    /// Adds rows to the program. Drafts are what was guessed; made-up ones are right as often as not.
    fn compute(&mut self, request: usize, phase: Phase, positions: Range<usize>) {
        let work = &self.works[request];
        let mut prefix = positions.start.checked_sub(1).map_or(0, |p| self.program.requests[request].1[p]);
        for (i, position) in positions.enumerate() {
            let pass = self.passes.entry((work.seq, position as u32)).or_default();
            let id = RowId { seq: work.seq, pos: position as u32, pass: *pass };
            *pass += 1;
            let right = work.ids[position];
            let is_draft = phase == Phase::Decode && i > 0;
            let token = match work.guesses.get(position) {
                _ if !is_draft => right,
                Some(guess) => *guess,
                None if self.drafts.once_in(2) => wrong_token(&work.ids, right),
                None => right,
            };
            prefix = extend(prefix, token);
            let next = work.ids.get(position + 1).copied().unwrap_or(token);
            self.program.rows.push(Row { id, token, prefix, phase, next });
        }
    }

    /// Refreshes the smallest captured graph that holds the batch; its rows are what the kernels are told.
    fn replay(&mut self, instance: u8, pieces: &mut [Piece]) -> Vec<Told> {
        let size = pieces.len().next_power_of_two();
        let (geometry, pages) = (self.setup.geometry, self.setup.pages);
        let capture = || Captured::new(geometry, instance, size, pages + 1);
        let graph = self.graphs.entry((instance, size)).or_insert_with(capture);
        graph.refresh(pieces);
        for (i, piece) in pieces.iter_mut().enumerate() {
            piece.told = graph.told(i);
        }
        (pieces.len()..size).map(|i| graph.told(i)).collect()
    }

    /// What a forward call computed is in the cache, as far as its drafts were right.
    fn take_in(&mut self, request: usize, rows: Range<usize>) {
        let Some(at) = self.active(request) else { return };
        let ids = self.works[request].ids.clone();
        let len = self.running[at].len;
        let right = |i: usize| self.program.rows[rows.start + i].token == ids[len + i];
        let accepted = (0..rows.len()).take_while(|i| right(*i)).count();
        let now = len + accepted;
        let drafts = rows.len() > 1 && self.program.rows[rows.start].phase == Phase::Decode;
        self.tally.accepted += usize::from(drafts && accepted == rows.len());
        self.tally.rollbacks += usize::from(accepted < rows.len());
        let r = &mut self.running[at];
        r.len = now;
        r.rows.extend(rows.start..rows.start + accepted);
        self.reached[request] = self.reached[request].max(now);
        let instance = r.instance;
        let mut tables = std::mem::take(&mut r.tables);
        if accepted < rows.len() {
            self.instances[instance as usize].roll_back(&mut tables, now);
        }
        self.running[at].tables = tables;
        let r = self.running[at].clone();
        self.cache(&r);
        let mut tables = r.tables;
        self.instances[instance as usize].leave_window(&mut tables, now);
        self.running[at].tables = tables;
        if now == ids.len() {
            let gone = self.running.remove(at);
            let state = gone.tables.of(Pool::Window).clone();
            let told = Told { instance, seen: now, tables: gone.tables.clone(), state };
            self.done[request] = true;
            self.program.events.push(Event::Done { request, told, rows: gone.rows.clone() });
            self.leave(gone, true);
        }
        self.note_freed(instance);
    }

    /// Runs until every request is served; one that must reach its end is sent again if it was aborted. Then the caches
    /// are dropped.
    ///
    /// # Errors
    /// Usage: the pools can't hold even one request.
    pub fn finish(&mut self) -> Result<()> {
        let lasts: Vec<usize> = (0..self.works.len()).filter(|r| self.works[*r].last).collect();
        lasts.into_iter().for_each(|request| self.send_again(request));
        loop {
            let mut any = false;
            for instance in 0..self.instances.len() as u8 {
                any |= self.step(instance)?;
            }
            if !any {
                break;
            }
        }
        self.forget();
        Ok(())
    }

    /// Number of requests so far.
    pub fn requests(&self) -> usize {
        self.works.len()
    }

    /// What happened so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The program so far.
    pub fn into_program(self) -> Program {
        self.program
    }

    /// What is wrong with the books: holders against tables and caches, pages that one sequence may write and another
    /// holds, free pages in tables. `None` when nothing is.
    pub fn audit(&self) -> Option<String> {
        for (i, instance) in self.instances.iter().enumerate() {
            let mut held: BTreeMap<(Pool, u32), u32> = BTreeMap::new();
            let own = self.running.iter().filter(|r| usize::from(r.instance) == i);
            for r in own.clone() {
                for pool in self.setup.geometry.pools() {
                    r.tables.of(pool).pages.iter().for_each(|page| *held.entry((pool, *page)).or_default() += 1);
                }
            }
            instance.radix.held().for_each(|key| *held.entry(key).or_default() += 1);
            for pool in self.setup.geometry.pools() {
                let allocator = &instance.pools[pool as usize];
                for page in 1..=allocator.pages() as u32 {
                    let expected = held.get(&(pool, page)).copied().unwrap_or(0);
                    if allocator.holders(page) != expected {
                        let found = allocator.holders(page);
                        return Some(format!("{} page {page}: {found} holders counted, {expected} found", pool.name()));
                    }
                }
                let in_use = held.keys().filter(|(p, _)| *p == pool).count();
                if allocator.free() + in_use != allocator.pages() {
                    return Some(format!("{} pool: {} free and {in_use} held", pool.name(), allocator.free()));
                }
            }
            for r in own {
                for pool in self.setup.geometry.pools() {
                    let table = r.tables.of(pool);
                    let writable = (r.len / self.setup.geometry.page).max(table.first)..table.end();
                    for index in writable {
                        let page = table.get(index)?;
                        if held[&(pool, page)] != 1 {
                            return Some(format!("{} page {page} is shared but still written", pool.name()));
                        }
                    }
                }
            }
        }
        None
    }

    /// Pages that nobody gave back. 0 after [`Self::finish`].
    pub fn leaked(&self) -> usize {
        let lost = |i: &Instance| i.pools.iter().map(|p| p.pages() - p.free()).sum::<usize>();
        self.instances.iter().map(lost).sum()
    }
}

/// Another token than `right`, out of those that the sequence has anyway (so that it is in the vocabulary).
fn wrong_token(ids: &[u32], right: u32) -> u32 {
    ids.iter().copied().find(|id| *id != right).unwrap_or(right)
}
