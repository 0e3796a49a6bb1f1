//! Columns as data. The `table!` macro makes struct, header, writer and reader from one list.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::{BadCell, tables};

/// Version of the csv columns and of both json files. It changes when the schema hash does.
pub const SCHEMA_VERSION: u32 = 4;

/// A column as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its name in the header.
    pub name: &'static str,
    /// What its cells hold.
    pub kind: &'static str,
    /// What it means.
    pub doc: &'static str,
}

/// A row of one of the bundle's tables.
pub trait Row: Sized {
    /// File name.
    const FILE: &'static str;
    /// Columns in file order.
    const COLUMNS: &'static [Column];
    /// The row's cells, in column order.
    fn cells(&self) -> Vec<String>;
    /// The row from its cells, in column order.
    fn from_cells(cells: &[&str]) -> Result<Self, BadCell>;
}

macro_rules! table {
    ($(#[$meta:meta])* $ty:ident = $file:literal { $($(#[doc = $doc:literal])+ $name:ident: $kind:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $ty { $($(#[doc = $doc])+ pub $name: $kind,)+ }

        impl $crate::Row for $ty {
            const FILE: &'static str = $file;
            const COLUMNS: &'static [$crate::Column] = &[$($crate::Column {
                name: stringify!($name), kind: <$kind as $crate::Cell>::KIND, doc: concat!($($doc),+),
            },)+];

            fn cells(&self) -> Vec<String> {
                vec![$($crate::Cell::write(&self.$name),)+]
            }

            fn from_cells(cells: &[&str]) -> Result<Self, $crate::BadCell> {
                let mut cells = cells.iter().copied();
                Ok(Self { $($name: {
                    let text = cells.next().unwrap_or_default();
                    <$kind as $crate::Cell>::read(text).ok_or_else(|| $crate::BadCell {
                        column: stringify!($name), expected: <$kind as $crate::Cell>::KIND, found: text.to_string(),
                    })?
                },)+ })
            }
        }
    };
}
pub(crate) use table;

fn describe<R: Row>(into: &mut String) {
    into.push_str(R::FILE);
    for column in R::COLUMNS {
        // Writing to a String cannot fail.
        let _ = write!(into, "\n{}: {}", column.name, column.kind);
    }
    into.push('\n');
}

/// sha256 (hex) over the names, order and kinds of all columns.
pub fn schema_hash() -> String {
    let mut text = format!("karat-bundle/{SCHEMA_VERSION}\n");
    describe::<tables::TapRow>(&mut text);
    describe::<tables::DerivationRow>(&mut text);
    describe::<tables::TokenRow>(&mut text);
    describe::<tables::FlipRow>(&mut text);
    describe::<tables::RecallRow>(&mut text);
    describe::<tables::PatchRow>(&mut text);
    describe::<tables::HistoryRow>(&mut text);
    hex(&Sha256::digest(text.as_bytes()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}
