//! Serving: how requests become steps, and the KV state that steps carry. Made from the requests alone, so that a layer
//! can run the whole schedule before the next layer starts.
//!
//! `schedule` and `state` are the plain form: each sequence alone, its state in one piece. The rest is an engine with
//! pages: `script` says what happens, `engine` makes a `program` of forward calls and page events of it, and `store` holds
//! what is in the pages while a layer (or the check of owners) replays the program.

mod allocator;
mod captured;
mod coverage;
mod engine;
mod facts;
mod geometry;
mod histories;
mod instance;
mod layout;
mod owners;
mod paged;
mod program;
mod radix;
mod record;
mod schedule;
mod script;
mod shuffle;
mod state;
mod store;
mod table;
mod tally;

pub use allocator::{Allocator, PAD_PAGE};
pub use captured::Captured;
pub use coverage::{Coverage, PatchCoverage};
pub use engine::{Engine, Setup, Work};
pub use facts::Facts;
pub use geometry::{Geometry, Part, Pool};
pub use histories::Served;
pub use instance::Instance;
pub use layout::Layout;
pub use owners::{Lost, Misplaced, Owner, check_owners, lost_rows};
pub use paged::{PageRow, Paged, Watch};
pub use program::{Copied, Event, Piece, Program, Row, Told};
pub use radix::{Hit, Radix};
pub use schedule::History;
pub use script::{Action, Script};
pub use store::{Content, Store, place};
pub use table::{Table, Tables};
pub use tally::Tally;

pub(crate) use coverage::Counters;
pub(crate) use schedule::{Schedule, Segment, Step};
pub(crate) use state::{Compressor, Window};

#[cfg(test)]
mod tests;
