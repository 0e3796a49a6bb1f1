//! JUnit against its schema: `junit-10.xsd` beside this file is read, and the report is held to it.

use std::collections::{BTreeMap, BTreeSet};

use super::fixture;
use super::xml::{Element, parse};

/// The schema of Jenkins' xUnit plugin, whole, with its licence, as the source package of pytest 8.4.2 carries it.
const SCHEMA: &str = include_str!("junit-10.xsd");

/// What the schema says of one element.
#[derive(Default)]
struct Rule {
    children: BTreeSet<String>,
    attributes: BTreeMap<String, (bool, String)>,
}

fn rules() -> BTreeMap<String, Rule> {
    let schema = parse(SCHEMA, false).expect("the schema is well-formed");
    let mut out = BTreeMap::new();
    for element in schema.children.iter().filter(|e| e.name == "xs:element") {
        let mut rule = Rule::default();
        for part in element.all() {
            match part.name.as_str() {
                "xs:element" if !part.attribute("ref").is_empty() => {
                    rule.children.insert(part.attribute("ref").to_string());
                }
                "xs:attribute" => {
                    let is_required = part.attribute("use") == "required";
                    rule.attributes.insert(part.attribute("name").into(), (is_required, part.attribute("type").into()));
                }
                _ => {}
            }
        }
        out.insert(element.attribute("name").to_string(), rule);
    }
    out
}

fn validate(element: &Element, rules: &BTreeMap<String, Rule>) -> Result<(), String> {
    let name = &element.name;
    let rule = rules.get(name).ok_or(format!("the schema has no <{name}>"))?;
    for (attribute, value) in &element.attributes {
        let (_, kind) = rule.attributes.get(attribute).ok_or(format!("<{name}> has no {attribute}"))?;
        // A report has no times; the only other kind of the schema is any text.
        if kind != "xs:string" {
            return Err(format!("{name}/{attribute}: {value} is held to no pattern here"));
        }
    }
    let missing =
        rule.attributes.iter().find(|(a, (is_required, _))| *is_required && !element.attributes.contains_key(*a));
    if let Some((attribute, _)) = missing {
        return Err(format!("<{name}> lacks {attribute}"));
    }
    for child in &element.children {
        if !rule.children.contains(&child.name) {
            return Err(format!("<{name}> holds <{}>", child.name));
        }
        validate(child, rules)?;
    }
    Ok(())
}

/// Reads, validates, and checks the counts.
pub(super) fn check(text: &str) -> Element {
    let root = parse(text, false).unwrap_or_else(|e| panic!("{e}"));
    validate(&root, &rules()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(root.name, "testsuites");
    for suite in root.all().into_iter().filter(|e| e.name.starts_with("testsuite")) {
        let cases: Vec<&Element> = suite.all().into_iter().filter(|e| e.name == "testcase").collect();
        let having =
            |kind: &str| cases.iter().filter(|c| c.children.iter().any(|e| e.name == kind)).count().to_string();
        assert_eq!(suite.attribute("tests"), cases.len().to_string());
        assert_eq!((suite.attribute("failures"), suite.attribute("errors")), (&*having("failure"), &*having("error")));
    }
    root
}

#[test]
fn a_report_is_valid_and_names_are_stable() {
    let bundle = fixture::bundle();
    let root = check(&crate::junit(&bundle));
    let cases: Vec<&Element> = root.all().into_iter().filter(|e| e.name == "testcase").collect();
    let names: BTreeSet<(&str, &str)> = cases.iter().map(|c| (c.attribute("classname"), c.attribute("name"))).collect();
    assert_eq!(names.len(), cases.len(), "each case has a name of its own");
    let failed = cases
        .iter()
        .find(|c| c.attribute("name") == "layers.2.attn.o@decode" && c.attribute("classname") == "stock+fp8-kv");
    assert_eq!(failed.expect("it is there").children[0].name, "failure");
    assert!(names.contains(&("stock", "layers.2.attn.o@decode")));
    // What proves nothing is an error, never a pass.
    let warm = cases.iter().find(|c| c.attribute("classname") == "history warm").expect("it is there");
    assert_eq!((warm.children[0].name.as_str(), warm.children[0].attribute("type")), ("error", "unproven"));
    // Another run of other numbers has the same names.
    let mut other = bundle.clone();
    other.taps.iter_mut().for_each(|r| r.value = r.value.map(|v| v * 0.5));
    let again = check(&crate::junit(&other));
    let other: BTreeSet<(&str, &str)> = again
        .all()
        .into_iter()
        .filter(|e| e.name == "testcase")
        .map(|c| (c.attribute("classname"), c.attribute("name")))
        .collect();
    assert_eq!(names, other);
}

#[test]
fn the_schema_refuses_what_is_wrong() {
    let rules = rules();
    let fails = |text: &str| validate(&parse(text, false).unwrap(), &rules).unwrap_err();
    assert!(fails("<testsuite tests=\"0\" failures=\"0\" errors=\"0\"/>").contains("lacks name"));
    assert!(fails("<testcase name=\"a\" seconds=\"1\"/>").contains("no seconds"));
    assert!(fails("<testsuites time=\"0\"/>").contains("no pattern"));
    assert!(fails("<testcase name=\"a\"><failed/></testcase>").contains("holds <failed>"));
    assert!(
        parse("<a><b></a></b>", false).is_err()
            && parse("<a x=1/>", false).is_err()
            && parse("<a>&x;</a>", false).is_err()
    );
}
