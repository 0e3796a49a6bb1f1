//! A pickle read as data. Nothing is executed: there are no objects, only tables of plain values; a call is accepted
//! for the handful of names in [`globals`] and is then a value of ours; every other name and opcode is refused.
//!
//! Memory is bounded: values lie in one table and refer to each other by number, texts stay where they are, and values, items
//! of values, memo and stack each have a largest number.

mod bytes;
pub(crate) mod globals;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use karat_model::{Error, Result};

use bytes::Reader;
use globals::Global;

/// Largest pickle that is read: a folder of a hundred thousand tensors has less.
pub(crate) const LIMIT: usize = 64 << 20;
/// Most values, places of the memo and values on the stack: a tensor takes under twenty.
const MAX_NODES: usize = 2 << 20;
/// Most items of all tuples, lists and dicts together, those that a call copies counted again.
const MAX_ITEMS: usize = 16 << 20;
/// Most open marks.
const MAX_MARKS: usize = 1 << 16;
/// Most axes of a tensor (torch's own limit).
const MAX_AXES: usize = 64;

/// Number of a value.
pub(crate) type Id = u32;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node<'a> {
    /// None, floats, bytes, long integers, devices: nothing that is looked at.
    Other,
    Bool(bool),
    Int(i64),
    Text(&'a str),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    // Boxed: there are many values and few of these.
    Storage(Box<Storage<'a>>),
    Tensor(Box<Tensor<'a>>),
}

impl Node<'_> {
    fn items(&self) -> usize {
        match self {
            Self::Tuple(items) | Self::List(items) => items.len(),
            Self::Dict(pairs) => 2 * pairs.len(),
            _ => 0,
        }
    }
}

/// A storage: a member of the archive.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Storage<'a> {
    /// Name of the member under `data/`.
    pub(crate) key: &'a str,
    /// Element type; of an untyped storage none.
    pub(crate) dtype: Option<&'static str>,
    /// Elements, or bytes of an untyped storage.
    pub(crate) len: usize,
}

/// A tensor over a storage.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tensor<'a> {
    pub(crate) storage: Storage<'a>,
    /// torch's name of the element type, without `torch.`.
    pub(crate) dtype: &'static str,
    pub(crate) offset: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

/// All values and the one that the pickle is of.
#[derive(Debug)]
pub(crate) struct Pickle<'a> {
    pub(crate) nodes: Vec<Node<'a>>,
    pub(crate) root: Id,
}

impl<'a> Pickle<'a> {
    /// Reads a pickle. Errors (input) name the byte, and the global or opcode that is refused.
    pub(crate) fn read(data: &'a [u8]) -> Result<Self> {
        if data.len() > LIMIT {
            return Err(Error::input("pickle is too large")
                .expected(format!("at most {LIMIT} bytes"))
                .found(data.len()));
        }
        let mut machine = Machine {
            reader: Reader::new(data),
            nodes: Vec::new(),
            items: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
        };
        loop {
            let at = machine.reader.at();
            match machine.step() {
                Ok(None) => {}
                Ok(Some(root)) => return Ok(Self { nodes: machine.nodes, root }),
                Err(e) => return Err(e.at(format!("pickle byte {at}"))),
            }
        }
    }

    pub(crate) fn node(&self, id: Id) -> &Node<'a> {
        self.nodes.get(id as usize).unwrap_or(&Node::Other)
    }
}

struct Machine<'a> {
    reader: Reader<'a>,
    nodes: Vec<Node<'a>>,
    /// Items of all values so far.
    items: usize,
    stack: Vec<Id>,
    /// Heights of the stack at open marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

fn bad(what: &str) -> Error {
    Error::input(what)
}

fn underflow() -> Error {
    bad("pickle takes a value that isn't there").hint("the file is damaged")
}

impl<'a> Machine<'a> {
    /// One opcode; the root at the end.
    fn step(&mut self) -> Result<Option<Id>> {
        let op = self.reader.byte()?;
        match op {
            b'.' => return self.pop().map(Some),
            0x80 => match self.reader.byte()? {
                0..=5 => {}
                other => return Err(bad("pickle protocol isn't known").expected("0 to 5").found(other)),
            },
            // A frame only says how much to read ahead.
            0x95 => drop(self.reader.take(8)?),
            b'(' => {
                most("open marks", self.marks.len(), MAX_MARKS)?;
                self.marks.push(self.stack.len());
            }
            b'0' => drop(self.pop()?),
            b'1' => drop(self.take_marked()?),
            b'2' => {
                let top = *self.stack.last().filter(|_| self.above_mark()).ok_or_else(underflow)?;
                self.stack(top)?;
            }
            b'N' => self.push(Node::Other)?,
            0x88 | 0x89 => self.push(Node::Bool(op == 0x88))?,
            b'K' | b'M' | b'J' => self.int(op)?,
            0x8a => {
                let n = usize::from(self.reader.byte()?);
                let bytes = self.reader.take(n)?;
                self.push(long(bytes))?;
            }
            b'G' => {
                self.reader.take(8)?;
                self.push(Node::Other)?;
            }
            b'X' | 0x8c | 0x8d => {
                let bytes = self.reader.counted(op)?;
                let text = std::str::from_utf8(bytes).map_err(|_| bad("text of the pickle is no UTF-8"))?;
                self.push(Node::Text(text))?;
            }
            b'B' | b'C' | 0x8e => {
                self.reader.counted(op)?;
                self.push(Node::Other)?;
            }
            b'}' => self.push(Node::Dict(Vec::new()))?,
            b']' => self.push(Node::List(Vec::new()))?,
            b')' => self.push(Node::Tuple(Vec::new()))?,
            b't' => {
                let items = self.take_marked()?;
                self.push(Node::Tuple(items))?;
            }
            0x85..=0x87 => {
                let items = self.pop_many(usize::from(op) - 0x84)?;
                self.push(Node::Tuple(items))?;
            }
            b'l' => {
                let items = self.take_marked()?;
                self.push(Node::List(items))?;
            }
            b'd' => {
                let items = self.take_marked()?;
                let pairs = pairs(&items)?;
                self.push(Node::Dict(pairs))?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.take_marked()?;
                self.append(items)?;
            }
            b's' => {
                let items = self.pop_many(2)?;
                self.set(&items)?;
            }
            b'u' => {
                let items = self.take_marked()?;
                self.set(&items)?;
            }
            b'q' | b'r' | 0x94 => self.remember(op)?,
            b'h' | b'j' => self.recall(op)?,
            b'c' => {
                let (module, name) = (self.reader.line()?, self.reader.line()?);
                self.push(Node::Global(Global::named(module, name)?))?;
            }
            0x93 => {
                let items = self.pop_many(2)?;
                let (Node::Text(module), Node::Text(name)) = (self.node(items[0])?, self.node(items[1])?) else {
                    return Err(bad("pickle names a global without a name"));
                };
                let global = Global::named(module, name)?;
                self.push(Node::Global(global))?;
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = globals::storage(&self.nodes, id)?;
                self.push(Node::Storage(Box::new(storage)))?;
            }
            b'R' => {
                let items = self.pop_many(2)?;
                let made = globals::call(&self.nodes, items[0], items[1])?;
                self.push(made)?;
            }
            b'b' => self.build()?,
            other => {
                return Err(bad("pickle does something that isn't read as data")
                    .found(format!("opcode 0x{other:02x}"))
                    .hint(globals::HINT));
            }
        }
        Ok(None)
    }

    fn push(&mut self, node: Node<'a>) -> Result<()> {
        most("values", self.nodes.len(), MAX_NODES)?;
        self.add_items(node.items())?;
        self.stack(self.nodes.len() as Id)?;
        self.nodes.push(node);
        Ok(())
    }

    fn stack(&mut self, id: Id) -> Result<()> {
        most("values on its stack", self.stack.len(), MAX_NODES)?;
        self.stack.push(id);
        Ok(())
    }

    fn add_items(&mut self, n: usize) -> Result<()> {
        self.items += n;
        most("items", self.items, MAX_ITEMS)
    }

    fn above_mark(&self) -> bool {
        self.stack.len() > self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Id> {
        if !self.above_mark() {
            return Err(underflow());
        }
        self.stack.pop().ok_or_else(underflow)
    }

    fn pop_many(&mut self, n: usize) -> Result<Vec<Id>> {
        let low = self.marks.last().copied().unwrap_or(0);
        let start = self.stack.len().checked_sub(n).filter(|start| *start >= low).ok_or_else(underflow)?;
        Ok(self.stack.split_off(start))
    }

    fn take_marked(&mut self) -> Result<Vec<Id>> {
        let mark = self.marks.pop().ok_or_else(underflow)?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn node(&self, id: Id) -> Result<&Node<'a>> {
        self.nodes.get(id as usize).ok_or_else(underflow)
    }

    fn top(&mut self) -> Result<&mut Node<'a>> {
        let id = *self.stack.last().ok_or_else(underflow)?;
        self.nodes.get_mut(id as usize).ok_or_else(underflow)
    }

    fn int(&mut self, op: u8) -> Result<()> {
        let value = match op {
            b'K' => i64::from(self.reader.byte()?),
            b'M' => i64::from(u16::from_le_bytes(self.reader.array()?)),
            _ => i64::from(i32::from_le_bytes(self.reader.array()?)),
        };
        self.push(Node::Int(value))
    }

    fn append(&mut self, items: Vec<Id>) -> Result<()> {
        self.add_items(items.len())?;
        match self.top()? {
            Node::List(list) => list.extend(items),
            _ => return Err(bad("pickle appends to what is no list")),
        }
        Ok(())
    }

    fn set(&mut self, items: &[Id]) -> Result<()> {
        self.add_items(items.len())?;
        let pairs = pairs(items)?;
        match self.top()? {
            Node::Dict(dict) => dict.extend(pairs),
            _ => return Err(bad("pickle sets a key of what is no dict")),
        }
        Ok(())
    }

    fn remember(&mut self, op: u8) -> Result<()> {
        let key = match op {
            b'q' => u32::from(self.reader.byte()?),
            b'r' => u32::from_le_bytes(self.reader.array()?),
            _ => self.memo.len() as u32,
        };
        let top = *self.stack.last().ok_or_else(underflow)?;
        most("places in its memo", self.memo.len(), MAX_NODES)?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, op: u8) -> Result<()> {
        let key = if op == b'h' { u32::from(self.reader.byte()?) } else { u32::from_le_bytes(self.reader.array()?) };
        let id = *self.memo.get(&key).ok_or_else(|| bad("pickle recalls what it never stored").found(key))?;
        self.stack(id)
    }

    /// Attributes of a dict (a state dict's `_metadata`) or a tensor: left out.
    fn build(&mut self) -> Result<()> {
        self.pop()?;
        match self.top()? {
            Node::Dict(_) | Node::Tensor(_) => Ok(()),
            _ => Err(bad("pickle sets attributes of an object").hint(globals::HINT)),
        }
    }
}

/// Room for one more.
fn most(what: &str, now: usize, most: usize) -> Result<()> {
    if now < most { Ok(()) } else { Err(bad("pickle is too much").expected(format!("at most {most} {what}"))) }
}

fn pairs(items: &[Id]) -> Result<Vec<(Id, Id)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    if rest.is_empty() {
        Ok(pairs.iter().map(|[k, v]| (*k, *v)).collect())
    } else {
        Err(bad("pickle sets a key without a value"))
    }
}

/// A little-endian integer in two's complement; one that is longer than 64 bits is none that is looked at.
fn long(bytes: &[u8]) -> Node<'static> {
    if bytes.len() > 8 {
        return Node::Other;
    }
    let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    Node::Int(i64::from_le_bytes(wide))
}
