//! A source file as the house's rules look at it.
//!
//! In: the text of a file. Out: its code without comments and what is in strings, the same without its tests, and every
//! path that it mentions, with lines. Always: lines keep their numbers; no more of Rust is understood than that takes.

use std::collections::{BTreeMap, BTreeSet};

/// A file.
pub(crate) struct Source {
    /// Where it is, from the top, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with comments and what is in strings blanked.
    pub(crate) code: String,
    /// The code that is built for users: without items under `#[cfg(test)]`; nothing of a file that is a test.
    pub(crate) shipped: String,
}

/// A path in the code, such as `std::time::Instant`, with what a `use` has shortened written out.
pub(crate) struct Mention {
    pub(crate) line: usize,
    pub(crate) segments: Vec<String>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = blank(text);
        let shipped = if path.starts_with("tests/") { String::new() } else { without_tests(&code) };
        Self { path: path.to_owned(), text: text.to_owned(), code, shipped }
    }

    /// Several files that belong together: those that one of them declares for its tests only are tests.
    pub(crate) fn together(files: Vec<(String, String)>) -> Vec<Self> {
        let mut sources: Vec<Self> = files.iter().map(|(path, text)| Self::new(path, text)).collect();
        let modules_in = |source: &Self, code: &str| -> BTreeSet<Vec<String>> {
            let module = source.module();
            declared_modules(code).into_iter().map(|name| module.iter().cloned().chain([name]).collect()).collect()
        };
        let tests: BTreeSet<Vec<String>> = sources
            .iter()
            .flat_map(|source| &modules_in(source, &source.code) - &modules_in(source, &source.shipped))
            .collect();
        for source in &mut sources {
            let module = source.module();
            if (1..=module.len()).any(|length| tests.contains(&module[..length])) {
                source.shipped.clear();
            }
        }
        sources
    }

    /// The crate and the modules that the file is, for example `slackwater_core::thread::call`.
    pub(crate) fn module(&self) -> Vec<String> {
        let (package, inside) = match self.path.split_once("/src/") {
            Some(("runtime", inside)) => ("slackwater_core", inside),
            Some(("deploy", inside)) => ("slackwater", inside),
            _ => return Vec::new(),
        };
        let inside = inside.strip_suffix(".rs").unwrap_or(inside);
        let parts = inside.split('/').filter(|part| !matches!(*part, "mod" | "lib" | "main"));
        std::iter::once(package).chain(parts).map(str::to_owned).collect()
    }

    /// Every path that the shipped code mentions, from its crate on.
    pub(crate) fn mentions(&self) -> Vec<Mention> {
        let Paths { uses, others } = paths(&self.shipped);
        let module = self.module();
        let below = |declared: String| (declared.clone(), module.iter().cloned().chain([declared]).collect());
        let mut short: BTreeMap<String, Vec<String>> = declared_modules(&self.shipped).into_iter().map(below).collect();
        let mut mentions = Vec::new();
        for (line, segments, name) in uses {
            let segments = absolute(&module, segments, &short);
            short.insert(name, segments.clone());
            mentions.push(Mention { line, segments });
        }
        mentions.extend(
            others
                .into_iter()
                .filter(|(_, segments)| segments.len() > 1)
                .map(|(line, segments)| Mention { line, segments: absolute(&module, segments, &short) }),
        );
        mentions
    }
}

/// Writes a path out from its crate on.
fn absolute(module: &[String], mut segments: Vec<String>, short: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut base = match segments[0].as_str() {
        "crate" => module.iter().take(1).cloned().collect(),
        "self" | "super" => module.to_vec(),
        other => match short.get(other) {
            Some(full) => full.clone(),
            None => return segments,
        },
    };
    if segments[0] != "super" {
        segments.remove(0);
    }
    while segments.first().is_some_and(|segment| segment == "super") {
        segments.remove(0);
        base.pop();
    }
    base.extend(segments);
    // The library shows the core again under a short name.
    if base.len() > 1 && base[0] == "slackwater" && base[1] == "core" {
        base.splice(0..2, ["slackwater_core".to_owned()]);
    }
    base
}

/// Blanks comments, and what is in strings and character literals.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let keep_line = |c: char| if c == '\n' { '\n' } else { ' ' };
    while at < chars.len() {
        let rest = &chars[at..];
        let length = if rest.starts_with(&['/', '/']) {
            rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
        } else if rest.starts_with(&['/', '*']) {
            block_comment(rest)
        } else if let Some(length) = string(rest, at.checked_sub(1).map(|before| chars[before])) {
            length
        } else {
            out.push(rest[0]);
            at += 1;
            continue;
        };
        out.extend(rest[..length].iter().map(|c| keep_line(*c)));
        at += length;
    }
    out
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(rest.len())
}

/// The length of the string or character literal that begins here, if one does.
fn string(rest: &[char], before: Option<char>) -> Option<usize> {
    let in_word = before.is_some_and(is_word);
    let raw = if rest[0] == 'r' && !in_word { Some(1) } else { None };
    let raw = raw.or(if rest.starts_with(&['b', 'r']) && !in_word { Some(2) } else { None });
    if let Some(start) = raw {
        let hashes = rest[start..].iter().take_while(|c| **c == '#').count();
        if rest.get(start + hashes) == Some(&'"') {
            let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            let from = start + hashes + 1;
            let inside = rest[from..].windows(end.len()).position(|window| window == end);
            return Some(inside.map_or(rest.len(), |inside| from + inside + end.len()));
        }
    }
    match rest {
        ['"', ..] => {
            let mut at = 1;
            while at < rest.len() && rest[at] != '"' {
                at += if rest[at] == '\\' { 2 } else { 1 };
            }
            Some((at + 1).min(rest.len()))
        }
        ['\'', '\\', ..] => Some(rest[3..].iter().position(|c| *c == '\'').map_or(rest.len(), |end| end + 4)),
        ['\'', _, '\'', ..] => Some(3),
        _ => None,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Blanks each item that stands under a `#[cfg(test)]` or the like.
fn without_tests(code: &str) -> String {
    let mut out: Vec<char> = code.chars().collect();
    let mut from = 0;
    while let Some(start) = find(&out, from, "#[cfg(") {
        let attribute_end = closing(&out, start + 1);
        let attribute: String = out[start..attribute_end].iter().collect();
        from = attribute_end;
        let words: Vec<&str> = attribute.split(|c: char| !is_word(c)).collect();
        if !words.contains(&"test") || words.contains(&"not") {
            continue;
        }
        let mut end = attribute_end;
        while end < out.len() && !matches!(out[end], ';' | '{') {
            end = if matches!(out[end], '[' | '(') { closing(&out, end) } else { end + 1 };
        }
        let end = if out.get(end) == Some(&'{') { closing(&out, end) } else { (end + 1).min(out.len()) };
        out[start..end].iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
        from = end;
    }
    out.into_iter().collect()
}

fn find(code: &[char], from: usize, what: &str) -> Option<usize> {
    let what: Vec<char> = what.chars().collect();
    code[from.min(code.len())..].windows(what.len()).position(|window| window == what).map(|at| at + from)
}

/// The place after the bracket that closes the one at `open`.
pub(crate) fn closing(code: &[char], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.iter().enumerate().skip(open) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// The words and signs of a code that paths are made of, with their lines.
fn tokens(code: &str) -> Vec<(usize, String)> {
    let mut tokens = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let length = if is_word(c) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                c.len_utf8()
            };
            if !c.is_whitespace() {
                tokens.push((number + 1, rest[..length].to_owned()));
            }
            rest = &rest[length..];
        }
    }
    tokens
}

struct Paths {
    /// What `use` brings: line, path, and the name under which it is known from there on.
    uses: Vec<(usize, Vec<String>, String)>,
    others: Vec<(usize, Vec<String>)>,
}

fn paths(code: &str) -> Paths {
    let tokens = tokens(code);
    let mut found = Paths { uses: Vec::new(), others: Vec::new() };
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at].1.as_str();
        let next = tokens.get(at + 1).map(|(_, token)| token.as_str());
        if token == "use" && next != Some("::") {
            at = use_tree(&tokens, at + 1, &[], &mut found.uses);
        } else if token.starts_with(is_word) && (at == 0 || !matches!(tokens[at - 1].1.as_str(), "." | "::")) {
            let (line, mut segments) = (tokens[at].0, vec![token.to_owned()]);
            while let [(_, colons), (_, word), ..] = &tokens[at + 1..]
                && colons == "::"
                && word.starts_with(is_word)
            {
                segments.push(word.clone());
                at += 2;
            }
            found.others.push((line, segments));
            at += 1;
        } else {
            at += 1;
        }
    }
    found
}

/// Reads what stands after a `use` or inside its braces; returns the place after it.
fn use_tree(
    tokens: &[(usize, String)],
    mut at: usize,
    prefix: &[String],
    uses: &mut Vec<(usize, Vec<String>, String)>,
) -> usize {
    let mut path = prefix.to_vec();
    let mut alias = None;
    let mut in_group = false;
    while at < tokens.len() {
        let (line, token) = &tokens[at];
        at += 1;
        match token.as_str() {
            "::" => {}
            "{" => {
                at = use_tree(tokens, at, &path, uses);
                in_group = true;
            }
            "as" => {
                alias = tokens.get(at).map(|(_, name)| name.clone());
                at += 1;
            }
            "," | "}" | ";" => {
                if !in_group && path.len() > prefix.len() {
                    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
                        path.pop();
                    }
                    let name = alias.take().or(path.last().cloned()).unwrap_or_default();
                    uses.push((*line, path, name));
                }
                if token != "," {
                    return at;
                }
                (path, in_group) = (prefix.to_vec(), false);
            }
            word => path.push(word.to_owned()),
        }
    }
    at
}

fn declared_modules(code: &str) -> Vec<String> {
    let tokens = tokens(code);
    let declared = tokens.windows(2).filter(|pair| pair[0].1 == "mod").map(|pair| pair[1].1.clone());
    declared.collect()
}
