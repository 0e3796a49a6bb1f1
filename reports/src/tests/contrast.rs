//! The page without a browser: well-formed, self-contained, without scripts, and every colour against its background by
//! the formula of WCAG 2.2.

use std::collections::BTreeMap;

use super::fixture;
use super::xml::{Element, parse};

/// Colours of `:root`, light and dark.
fn palettes() -> [BTreeMap<String, [f64; 3]>; 2] {
    let (light, dark) = crate::html::STYLE.split_once("prefers-color-scheme: dark").expect("a dark theme");
    let read = |text: &str| {
        let block = text.split_once(":root").expect("colours").1.split_once('}').expect("their end").0;
        let pairs = block.split(';').filter_map(|line| line.split_once("--")?.1.split_once(": #"));
        pairs.map(|(name, hex)| (name.to_string(), colour(hex.trim()))).collect()
    };
    [read(light), read(dark)]
}

/// Linear red, green and blue.
fn colour(hex: &str) -> [f64; 3] {
    assert_eq!(hex.len(), 6, "{hex}");
    [0, 2, 4].map(|i| {
        let v = f64::from(u8::from_str_radix(&hex[i..i + 2], 16).expect("hex")) / 255.0;
        if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
    })
}

fn contrast(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    let light = |c: &[f64; 3]| 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2] + 0.05;
    let (a, b) = (light(a), light(b));
    a.max(b) / a.min(b)
}

#[test]
fn text_has_contrast_and_lines_can_be_told_from_the_ground() {
    let black_on_white = contrast(&colour("000000"), &colour("ffffff"));
    assert!((black_on_white - 21.0).abs() < 1e-9);
    for (theme, colours) in ["light", "dark"].iter().zip(palettes()) {
        assert_eq!(colours.len(), 20, "{theme}: {:?}", colours.keys());
        for ground in ["bg", "card"] {
            for text in ["ink", "soft", "link", "pass", "fail", "warn"] {
                let found = contrast(&colours[text], &colours[ground]);
                assert!(found >= 4.5, "{theme}: {text} on {ground}: {found:.2}");
            }
        }
        for line in ["inherited", "injected", "floor", "ring"] {
            let found = contrast(&colours[line], &colours["bg"]);
            assert!(found >= 3.0, "{theme}: {line}: {found:.2}");
        }
        // The map gets steadily darker (in the dark theme lighter) away from the background.
        let steps = ["bg", "h1", "h2", "h3", "h4", "h5"].map(|c| contrast(&colours[c], &colours["bg"]));
        assert!(steps.windows(2).all(|w| w[0] < w[1]), "{theme}: {steps:?}");
    }
}

#[test]
fn the_page_is_well_formed_self_contained_and_without_scripts() {
    for bundle in [fixture::bundle(), fixture::passing()] {
        let text = crate::html(&bundle);
        let page = parse(&text, true).unwrap_or_else(|e| panic!("{e}"));
        let all = page.all();
        for banned in ["script", "iframe", "object", "embed", "link", "img", "form", "base"] {
            assert!(all.iter().all(|e| e.name != banned), "<{banned}>");
        }
        let attributes = || all.iter().flat_map(|e| &e.attributes);
        assert!(attributes().all(|(name, _)| !name.starts_with("on") && name != "style" && name != "src"));
        assert!(all.iter().any(|e| e.attribute("content").starts_with("default-src 'none'")), "a content policy");
        let outside = attributes().filter(|(name, _)| *name != "xmlns").find(|(_, v)| v.contains("//"));
        assert!(outside.is_none(), "{outside:?}");
        assert!(!crate::html::STYLE.contains("url(") && !crate::html::STYLE.contains("@import"));
        links_lead_somewhere(&all);
        accessible(&all);
    }
}

fn links_lead_somewhere(all: &[&Element]) {
    let ids: Vec<&str> = all.iter().map(|e| e.attribute("id")).filter(|id| !id.is_empty()).collect();
    let mut once = ids.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(ids.len(), once.len(), "an id twice");
    for link in all.iter().filter(|e| e.name == "a") {
        let target = link.attribute("href").strip_prefix('#').expect("links stay in the page");
        assert!(ids.contains(&target), "{target}");
    }
}

fn accessible(all: &[&Element]) {
    let count = |name: &str| all.iter().filter(|e| e.name == name).count();
    assert_eq!((count("h1"), count("main"), count("title")), (1, 1, 1));
    assert_eq!(all[0].attribute("lang"), "en");
    for wide in all.iter().filter(|e| e.attribute("class") == "wide") {
        assert!(wide.attribute("tabindex") == "0" && !wide.attribute("aria-label").is_empty(), "reached by keyboard");
    }
    for svg in all.iter().filter(|e| e.name == "svg") {
        assert!(svg.attribute("role") == "img" && !svg.attribute("aria-label").is_empty());
    }
    assert!(all.iter().filter(|e| e.name == "th").all(|e| ["col", "row"].contains(&e.attribute("scope"))));
    assert_eq!(count("details"), count("summary"));
}
