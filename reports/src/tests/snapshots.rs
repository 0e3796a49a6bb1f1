//! One snapshot a format.

use super::fixture;

/// The page without style sheet and plots, a tag a line.
fn shape(html: &str) -> String {
    let (start, rest) = html.split_once("<style>").expect("a style sheet");
    let (_, mut rest) = rest.split_once("</style>").expect("its end");
    let mut out = start.to_string();
    while let Some((before, after)) = rest.split_once("<svg ") {
        out.push_str(before);
        out.push_str("[plot]");
        rest = after.split_once("</svg>").expect("its end").1;
    }
    out.push_str(rest);
    [
        "<section", "<h2", "<h3", "<table", "<tr", "<details", "<p", "<ul", "<li", "<dt", "<header", "<main", "<nav",
        "<body",
    ]
    .iter()
    .fold(out, |text, tag| text.replace(tag, &format!("\n{tag}")))
}

#[test]
fn html() {
    insta::assert_snapshot!(shape(&crate::html(&fixture::bundle())));
}

#[test]
fn html_of_a_run_that_passes() {
    let page = crate::html(&fixture::passing());
    assert!(page.contains("The change may go in"), "{page}");
    let (_, head) = page.split_once("<body>").expect("a body");
    insta::assert_snapshot!(shape(&format!("<style></style>{}", head.split_once("<main").expect("a main part").0)));
}

#[test]
fn plot() {
    let bundle = fixture::passing();
    let layers = crate::facts::layers(&bundle, Some("stock"));
    insta::assert_snapshot!(crate::plot::by_layer(&layers).expect("it has numbers").replace("/>", "/>\n"));
}

#[test]
fn markdown() {
    insta::assert_snapshot!(crate::markdown(&fixture::bundle()));
}

#[test]
fn junit() {
    insta::assert_snapshot!(crate::junit(&fixture::bundle()));
}

#[test]
fn step_summary() {
    let text = crate::step_summary(&fixture::bundle());
    let (top, rest) = text.split_once("\n## Method").expect("the report follows");
    assert!(crate::markdown(&fixture::bundle()).contains(rest), "the rest is report.md");
    insta::assert_snapshot!(top);
}

#[test]
fn annotations() {
    insta::assert_snapshot!(crate::annotations(&fixture::bundle()));
}

#[test]
fn csv() {
    insta::assert_snapshot!(crate::csv(&fixture::bundle()));
}
