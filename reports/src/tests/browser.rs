//! The page in headless Chromium, where there is one (`$KARAT_CHROMIUM`, or on the path): no console error, no request, no
//! overflow, everything reached by keyboard, nothing run; and axe-core's rules, where it is (`$KARAT_AXE`, axe.min.js).

use std::path::Path;

use serde_json::{Value, json};

use super::devtools::{Browser, find};
use super::{fixture, hostile};

fn left_out(what: &str, why: &str) {
    // Said on stderr: cargo shows it with --nocapture, and a skipped check is never counted as one that held.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("left out: {what}: {why}\n").as_bytes());
}

#[test]
fn a_browser_shows_the_page_without_errors() {
    let Some(program) = find() else {
        return left_out("the page in a browser", "no Chromium on the path, and KARAT_CHROMIUM names none");
    };
    let dir = tempfile::tempdir().unwrap();
    let mut browser = Browser::start(&program, &dir.path().join("profile"));
    let pages = [
        ("full", crate::html(&fixture::bundle())),
        ("passing", crate::html(&fixture::passing())),
        ("hostile", hostile::page()),
    ];
    for (name, html) in pages {
        let page = dir.path().join(format!("{name}.html"));
        std::fs::write(&page, html).unwrap();
        for theme in ["light", "dark"] {
            browser.call(
                "Emulation.setEmulatedMedia",
                &json!({"features": [{"name": "prefers-color-scheme", "value": theme}]}),
            );
            for width in [360, 1280, 1920] {
                fits(&mut browser, &page, width, &format!("{name}, {theme}, {width} px"));
            }
            if name != "hostile" {
                axe(&mut browser, &page, &format!("{name}, {theme}"));
            }
        }
    }
    let page = dir.path().join("full.html");
    browser.open(&page);
    keyboard(&mut browser);
    assert_eq!(browser.value("typeof window.pwned"), json!("undefined"));
}

fn fits(browser: &mut Browser, page: &Path, width: u32, what: &str) {
    let screen = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
    browser.call("Emulation.setDeviceMetricsOverride", &screen);
    browser.open(page);
    assert_eq!(browser.value("innerWidth"), json!(width), "{what}");
    // Without fonts everything fits.
    let text = browser.value("(r => (r.selectNodeContents(document.querySelector('.verdict')), r.getBoundingClientRect().width))(document.createRange())");
    assert!(text.as_f64().is_some_and(|w| w > 30.0), "{what}: this browser finds no fonts: {text}");
    // Everything open: what is folded away must fit too.
    browser.value("document.querySelectorAll('details').forEach(d => d.open = true)");
    let wide = browser.value(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.wide') && !e.closest('.skip') \
         && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 120))",
    );
    assert_eq!(wide, json!([]), "{what}: stands out to the right");
    assert_eq!(browser.value("document.documentElement.scrollWidth"), json!(width), "{what}: scrolls sideways");
    assert_eq!(
        browser.value("typeof window.pwned + document.querySelectorAll('script, img').length"),
        json!("undefined0"),
        "{what}"
    );
    for event in &browser.events {
        let (method, told) = (event["method"].as_str().unwrap_or_default(), &event["params"]);
        let is_error = match method {
            "Log.entryAdded" => told["entry"]["level"] == "error" || told["entry"]["level"] == "warning",
            "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Page.javascriptDialogOpening" => true,
            "Network.requestWillBeSent" => !told["request"]["url"].as_str().unwrap_or_default().starts_with("file:"),
            _ => false,
        };
        assert!(!is_error, "{what}: {event}");
    }
}

/// axe-core's rules for WCAG 2 A and AA, contrast among them.
fn axe(browser: &mut Browser, page: &Path, what: &str) {
    let Some(file) = std::env::var_os("KARAT_AXE") else {
        return left_out("axe-core", "KARAT_AXE names no axe.min.js");
    };
    let source = std::fs::read_to_string(file).expect("KARAT_AXE is a file");
    browser.open(page);
    browser.value("document.querySelectorAll('details').forEach(d => d.open = true)");
    browser.value(&format!("{source}; 1"));
    let found = browser.value(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']}).then(r => ({bad: \
         r.violations.map(v => [v.id, v.help, v.nodes.slice(0, 2).map(n => n.html.slice(0, 200))]), good: r.passes.map(p => p.id)}))",
    );
    assert_eq!(found["bad"], json!([]), "{what}");
    let good: Vec<&str> = found["good"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(good.contains(&"color-contrast") && good.contains(&"bypass"), "{good:?}");
}

/// Tab reaches every link, fold and scrolling table in the order of the page; Enter opens a fold and follows a link.
fn keyboard(browser: &mut Browser) {
    let screen = json!({"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": false});
    browser.call("Emulation.setDeviceMetricsOverride", &screen);
    let all = "[...document.querySelectorAll('a, summary, [tabindex=\"0\"]')].filter(e => e.checkVisibility())";
    let count = browser.value(&format!("{all}.length")).as_u64().unwrap();
    assert!(count > 20, "{count}");
    for i in 0..count {
        browser.press("Tab", 9, "");
        let at = browser.value(&format!("{all}.indexOf(document.activeElement)"));
        assert_eq!(at, json!(i), "Tab number {i}");
        if i == 0 {
            assert_eq!(browser.value("document.activeElement.className"), json!("skip"));
            assert_eq!(browser.value("getComputedStyle(document.activeElement).outlineStyle"), json!("solid"));
        }
    }
    let fold = "document.querySelector('#layer-0 > summary')";
    browser.value(&format!("{fold}.focus()"));
    browser.press("Enter", 13, "\r");
    assert_eq!(browser.value("document.querySelector('#layer-0').open"), json!(true));
    browser.value("document.querySelector('nav a').focus()");
    browser.press("Enter", 13, "\r");
    assert_eq!(browser.value("location.hash"), json!("#layers"));
}
