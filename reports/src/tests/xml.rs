//! A strict reader of the little XML that reports are made of: well-formed or a message.

use std::collections::BTreeMap;

/// An element.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) children: Vec<Element>,
    pub(super) text: String,
}

impl Element {
    /// This one and all below it, first to last.
    pub(super) fn all(&self) -> Vec<&Element> {
        let mut out = vec![self];
        out.extend(self.children.iter().flat_map(Element::all));
        out
    }

    pub(super) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

/// Elements that html leaves open.
const VOID: [&str; 2] = ["meta", "br"];

/// Reads a document; `is_html` allows void elements, attributes without value and raw text in `style`.
pub(super) fn parse(text: &str, is_html: bool) -> Result<Element, String> {
    let mut rest = text.trim_start();
    for start in ["<?xml", "<!DOCTYPE"] {
        if rest.starts_with(start) {
            rest = rest.split_once('>').ok_or("an unfinished first line")?.1.trim_start();
        }
    }
    let mut open: Vec<Element> = vec![Element::default()];
    while !rest.is_empty() {
        let (before, tag_on) = rest.split_once('<').unwrap_or((rest, ""));
        let text = unescape(before)?;
        let top = open.last_mut().ok_or("text after the end")?;
        top.text.push_str(&text);
        if tag_on.is_empty() {
            break;
        }
        if let Some(after) = tag_on.strip_prefix("!--") {
            rest = after.split_once("-->").ok_or("an unfinished comment")?.1;
            continue;
        }
        let (tag, after) = end_of_tag(tag_on)?;
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            let done = open.pop().ok_or("too many ends")?;
            if done.name != name {
                return Err(format!("</{name}> ends <{}>", done.name));
            }
            let parent = open.last_mut().ok_or("too many ends")?;
            parent.children.push(done);
            continue;
        }
        let is_closed = tag.ends_with('/');
        let element = start(tag.trim_end_matches('/'), is_html)?;
        if is_closed || (is_html && VOID.contains(&element.name.as_str())) {
            open.last_mut().ok_or("outside")?.children.push(element);
        } else if is_html && element.name == "style" {
            rest = rest.split_once("</style>").ok_or("an unfinished style")?.1;
            open.last_mut().ok_or("outside")?.children.push(element);
        } else {
            open.push(element);
        }
    }
    let mut root = open.pop().ok_or("nothing")?;
    if !open.is_empty() {
        return Err(format!("<{}> has no end", root.name));
    }
    match (root.children.len(), root.text.trim().is_empty()) {
        (1, true) => Ok(root.children.remove(0)),
        (n, _) => Err(format!("{n} roots")),
    }
}

/// The tag up to its `>`, which may stand in a quoted value.
fn end_of_tag(text: &str) -> Result<(&str, &str), String> {
    let mut quoted = false;
    for (i, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '<' => return Err(format!("< within a tag: {}", &text[..i])),
            '>' if !quoted => return Ok((&text[..i], &text[i + 1..])),
            _ => {}
        }
    }
    Err("an unfinished tag".to_string())
}

fn start(tag: &str, is_html: bool) -> Result<Element, String> {
    let (name, mut rest) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || ":-".contains(c)) {
        return Err(format!("not a name: <{tag}>"));
    }
    let mut element = Element { name: name.to_string(), ..Element::default() };
    rest = rest.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let key = &rest[..end];
        let mut value = String::new();
        rest = rest[end..].trim_start();
        match rest.strip_prefix('=') {
            Some(after) => {
                let after = after.strip_prefix('"').ok_or(format!("{key} is not quoted"))?;
                let (inner, after) = after.split_once('"').ok_or(format!("{key} does not end"))?;
                value = unescape(inner)?;
                rest = after.trim_start();
            }
            None if is_html => {}
            None => return Err(format!("{key} has no value")),
        }
        if !key.chars().all(|c| c.is_ascii_alphanumeric() || "-:".contains(c)) {
            return Err(format!("not an attribute: {key}"));
        }
        if element.attributes.insert(key.to_string(), value).is_some() {
            return Err(format!("{key} twice"));
        }
    }
    Ok(element)
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let (name, after) = after.split_once(';').ok_or("& without ;")?;
        out.push(match name {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" | "#39" => '\'',
            other => return Err(format!("&{other};")),
        });
        rest = after;
    }
    out.push_str(rest);
    match out.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        Some(c) => Err(format!("a control character {c:?}")),
        None => Ok(out),
    }
}
