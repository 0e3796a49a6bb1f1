//! docs/formats.md says what the code says: the columns of a bundle's tables, and the names it mentions.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use karat_bundle::Row;
use karat_bundle::tables::{DerivationRow, FlipRow, HistoryRow, PatchRow, RecallRow, TapRow, TokenRow};

const START: &str = "<!-- columns: made from the schema by the test `docs`; KARAT_UPDATE_DOCS=1 writes them anew -->\n";
const END: &str = "<!-- end of columns -->\n";

fn formats_md() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/formats.md")
}

fn columns<R: Row>(into: &mut String) {
    writeln!(into, "\n### `{}`\n\n| column | holds | meaning |\n|---|---|---|", R::FILE).expect("a string takes all");
    for column in R::COLUMNS {
        // A bar would end the cell.
        let doc = column.doc.trim().replace('|', "\\|");
        writeln!(into, "| {} | {} | {doc} |", column.name, column.kind).expect("a string takes all");
    }
}

#[test]
fn the_columns_in_the_docs_are_those_of_the_schema() {
    let mut want = String::new();
    columns::<TapRow>(&mut want);
    columns::<DerivationRow>(&mut want);
    columns::<TokenRow>(&mut want);
    columns::<FlipRow>(&mut want);
    columns::<RecallRow>(&mut want);
    columns::<PatchRow>(&mut want);
    columns::<HistoryRow>(&mut want);
    want.push('\n');
    let text = std::fs::read_to_string(formats_md()).expect("docs/formats.md is committed");
    let (before, rest) = text.split_once(START).expect("the columns have a start mark");
    let (found, after) = rest.split_once(END).expect("the columns have an end mark");
    if std::env::var_os("KARAT_UPDATE_DOCS").is_some() {
        std::fs::write(formats_md(), format!("{before}{START}{want}{END}{after}"))
            .expect("docs/formats.md is writable");
    } else {
        assert_eq!(found, want, "run this test with KARAT_UPDATE_DOCS=1");
    }
}
