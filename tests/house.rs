//! The house stays as the design drew it (section 6).
//!
//! In: the sources as they are in the checkout. Out: each place where they break a rule, with the rule. Always: every rule
//! is shown to catch a small bad sample, so none of them can fall asleep.
//!
//! `house/imports` is the table of who may import whom; `house/source` reads a file; what a file must look like is here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "house/imports.rs"]
mod imports;
#[path = "house/source.rs"]
mod source;

use source::Source;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The longest file, with its tests.
const LINES_MAX: usize = 500;

/// What stands at the top beside what git ignores.
const TOP: [&str; 17] = [
    "Cargo.toml",
    "Cargo.lock",
    "runtime",
    "deploy",
    "examples",
    "tests",
    "benches",
    "README.md",
    "LICENSE",
    ".ci",
    ".gitignore",
    "rustfmt.toml",
    "clippy.toml",
    "deny.toml",
    "rust-toolchain.toml",
    ".cargo",
    ".config",
];

#[test]
fn the_house_is_as_the_design_drew_it() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut broken = broken_at_top(names(top), &std::fs::read_to_string(top.join(".gitignore")).unwrap());
    let mut files = Vec::new();
    for part in ["runtime/src", "deploy/src", "deploy/supervisor/src", "tests", "examples", "benches"] {
        rust_files(&top.join(part), &mut files);
    }
    for build in ["runtime/build.rs", "deploy/build.rs"] {
        files.push(top.join(build));
    }
    let read = |file: &PathBuf| {
        let path = file.strip_prefix(top).unwrap().to_str().unwrap().replace('\\', "/");
        (path, std::fs::read_to_string(file).unwrap())
    };
    let sources = Source::together(files.iter().map(read).collect());
    assert!(sources.iter().any(|source| source.path == "runtime/src/thread/mod.rs"), "the sources were not found");
    broken.extend(broken_in(&sources));
    assert!(broken.is_empty(), "{} rules of the house are broken:\n{}", broken.len(), broken.join("\n"));
}

fn names(directory: &Path) -> Vec<String> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) {
    if !directory.is_dir() {
        return;
    }
    let mut entries = names(directory);
    entries.sort();
    for name in entries.iter().filter(|name| *name != "target" && *name != "node_modules") {
        let path = directory.join(name);
        if path.is_dir() {
            rust_files(&path, files);
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
}

fn broken_at_top(names: Vec<String>, ignored: &str) -> Vec<String> {
    let ignored: Vec<&str> = ignored.lines().map(|line| line.trim_matches('/')).chain([".git"]).collect();
    names
        .into_iter()
        .filter(|name| !TOP.contains(&name.as_str()) && !ignored.contains(&name.as_str()))
        .map(|name| format!("{name}:1: the top level holds only what the design allows"))
        .collect()
}

/// Each place where these sources break a rule: file, line, rule.
fn broken_in(sources: &[Source]) -> Vec<String> {
    let modules: BTreeSet<String> = sources.iter().map(|source| source.module().join("::")).collect();
    sources
        .iter()
        .flat_map(|source| {
            let mut broken = broken_looks(source);
            broken.extend(broken_quotes(source));
            broken.extend(broken_words(source));
            let module = source.module();
            broken.extend(source.mentions().into_iter().filter_map(|mention| {
                let rule = imports::broken(&module, &mention.segments, &modules)?;
                Some((mention.line, format!("{rule}: {}", mention.segments.join("::"))))
            }));
            broken.sort();
            broken.dedup();
            broken.into_iter().map(|(line, rule)| format!("{}:{line}: {rule}", source.path))
        })
        .collect()
}

type Broken = Vec<(usize, String)>;

fn broken_looks(source: &Source) -> Broken {
    let mut broken = Vec::new();
    if !source.text.starts_with("//! ") {
        broken.push((1, "a file opens with `//!`: what comes in, what goes out, what always holds".to_owned()));
    }
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        broken.push((lines, format!("a file has at most {LINES_MAX} lines")));
    }
    broken
}

/// Words that do not belong into what is built, or into any file.
fn broken_words(source: &Source) -> Broken {
    let mut broken = Vec::new();
    let is_pure = matches!(imports::place(&source.module()), imports::Place::Word(_) | imports::Place::Fold);
    for (number, line) in source.code.lines().enumerate() {
        if line.contains("todo!") || line.contains("unimplemented!") {
            broken.push((number + 1, "nothing is left to do later".to_owned()));
        }
    }
    for (number, line) in source.shipped.lines().enumerate() {
        if line.contains(".unwrap()") {
            broken.push((
                number + 1,
                "no unwrap outside tests: say the invariant with expect, or return the error".to_owned(),
            ));
        }
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if is_pure && words.any(|word| matches!(word, "async" | "await")) {
            broken.push((number + 1, "the words and the fold wait for nothing".to_owned()));
        }
    }
    broken
}

/// A quoted closure is a call or a field access; what it decides has a name elsewhere.
fn broken_quotes(source: &Source) -> Broken {
    if !["runtime/src/flow/", "deploy/src/host/"].iter().any(|part| source.path.starts_with(part)) {
        return Vec::new();
    }
    let code: Vec<char> = source.shipped.chars().collect();
    let mut broken = Vec::new();
    for (at, _) in source.shipped.match_indices("q!(") {
        let at = source.shipped[..at].chars().count();
        if at > 0 && (code[at - 1].is_alphanumeric() || code[at - 1] == '_') {
            continue;
        }
        let quoted: String = code[at..source::closing(&code, at + 2)].iter().collect();
        let mut words = quoted.split(|c: char| !c.is_alphanumeric() && c != '_');
        if quoted.contains(';') || words.any(|word| matches!(word, "if" | "match" | "let" | "for" | "while" | "loop")) {
            let line = code[..at].iter().filter(|c| **c == '\n').count() + 1;
            broken.push((line, "a quoted closure is a call or a field access".to_owned()));
        }
    }
    broken
}

/// What the rules say of a file with this path and text beside the files of the fold.
fn said(path: &str, text: &str) -> Vec<String> {
    let beside = [
        ("runtime/src/thread/mod.rs", ""),
        ("runtime/src/thread/call.rs", ""),
        ("runtime/src/tools/sleep.rs", ""),
        ("runtime/src/flow/mod.rs", "pub mod join;\n#[cfg(test)]\n#[path = \"x\"]\npub mod situations;"),
    ];
    let files = beside.into_iter().filter(|(beside, _)| *beside != path).chain([(path, text)]);
    let sources = Source::together(files.map(|(path, text)| (path.to_owned(), format!("//! x\n{text}\n"))).collect());
    broken_in(&sources)
}

#[test]
fn each_rule_catches_a_bad_sample() {
    for (path, text, rule) in [
        ("runtime/src/id.rs", "use crate::record::Record;", "a word imports only the words above it"),
        ("runtime/src/effect.rs", "fn f() -> crate::port::Rest {}", "a word imports only the words above it"),
        ("runtime/src/port.rs", "use crate::{id, thread::{Standing, Thread}};", "slackwater_core::thread::Thread"),
        ("runtime/src/record.rs", "use serde_json::Value;", "nothing but std and serde"),
        ("runtime/src/record.rs", "fn f() { std::time::Instant::now() }", "no clock"),
        ("runtime/src/record.rs", "async fn f() {}", "wait for nothing"),
        ("runtime/src/thread/sleep.rs", "use std::{collections::BTreeMap, time};", "std::time"),
        ("runtime/src/thread/sleep.rs", "use std as s;\nfn f() { s::fs::read(p) }", "no clock, file"),
        ("runtime/src/thread/sleep.rs", "use std::collections::HashMap;", "hash map"),
        ("runtime/src/thread/sleep.rs", "fn f() { tokio::spawn(x) }", "tokio::spawn"),
        ("runtime/src/thread/sleep.rs", "use hydro_lang::prelude::*;", "the fold imports nothing but"),
        ("runtime/src/thread/sleep.rs", "fn f() { rand::random() }", "the fold imports nothing but"),
        ("runtime/src/thread/sleep.rs", "use crate::flow::route;", "the fold imports only the words"),
        ("runtime/src/thread/sleep.rs", "use super::call::answer;", "import no file beside them"),
        ("runtime/src/thread/sleep.rs", "use crate::tools::sleep::TOOL;", "import no file beside them"),
        (
            "runtime/src/thread/sleep.rs",
            "use crate::tools;\nfn f() { tools::sleep::TOOL }",
            "import no file beside them",
        ),
        ("runtime/src/tools/cancel.rs", "use crate::thread::Thread;", "knows no thread"),
        ("runtime/src/tools/cancel.rs", "use super::sleep::TOOL;", "import no file beside them"),
        ("runtime/src/flow/join.rs", "use tokio::sync::mpsc;", "a flow imports nothing but"),
        ("runtime/src/flow/join.rs", "use std::fs;", "a flow touches no clock"),
        ("runtime/src/flow/join.rs", "use crate::tools::plan;", "a flow imports only"),
        ("runtime/src/flow/join.rs", "x.map(q!(|x| if x { 1 } else { 2 }))", "a call or a field access"),
        ("runtime/src/flow/join.rs", "x\n.map(q!(|x| { f(); g() }))", "join.rs:3: a quoted closure"),
        ("deploy/src/host/embedded.rs", "x.map(q!(|x| match x { _ => 1 }))", "a call or a field access"),
        ("deploy/src/journal/writer.rs", "use hydro_lang::prelude::*;", "an adapter knows no dataflow"),
        ("deploy/src/journal/writer.rs", "use slackwater_core::flow::route;", "an adapter knows no dataflow"),
        ("deploy/src/journal/writer.rs", "use super::super::model::Model;", "an adapter imports no other adapter"),
        ("deploy/src/gateway/mod.rs", "use crate::tool::rap;", "an adapter imports no other adapter"),
        ("deploy/src/gateway/mod.rs", "fn f() { slackwater_core::thread::Thread::new(id) }", "how a thread is folded"),
        ("deploy/src/model/openai.rs", "use crate::gateway;", "an adapter imports no other adapter"),
        ("deploy/src/timer.rs", "use crate::host::embedded;", "an adapter knows no host"),
        ("deploy/src/catalog.rs", "use crate::tool::rap;", "imports no adapter"),
        ("deploy/src/capability.rs", "use stageleft::q;", "an adapter knows no dataflow"),
        ("deploy/src/port.rs", "use slackwater_core::thread::Thread;", "no fold"),
        ("deploy/src/main.rs", "fn f() { x.unwrap() }", "no unwrap outside tests"),
        ("examples/agent.rs", "fn f() { x\n.unwrap() }", "agent.rs:3: no unwrap outside tests"),
        ("deploy/src/main.rs", "#[cfg(not(test))]\nfn f() { x.unwrap() }", "no unwrap outside tests"),
        ("deploy/src/main.rs", "#[cfg(test)]\nmod tests { fn f() {} }\nfn f() { x.unwrap() }", "main.rs:4: no unwrap"),
        ("tests/demo.rs", "fn f() { todo!() }", "nothing is left to do later"),
        ("deploy/src/main.rs", "fn f() { unimplemented!() }", "nothing is left to do later"),
        ("benches/scale.rs", &"\n".repeat(LINES_MAX), "at most 500 lines"),
    ] {
        let broken = said(path, text);
        assert!(
            broken.len() == 1 && broken[0].contains(rule),
            "{path}: {text}\nshould break: {rule}\nwas: {broken:#?}"
        );
    }
    let bare = [Source::new("deploy/build.rs", "fn main() {}")];
    assert_eq!(broken_in(&bare).len(), 1, "a file without a head");
    let names = ["runtime", "target", ".git", "scripts", "notes.md"].map(str::to_owned).to_vec();
    assert_eq!(broken_at_top(names, "target/\n*.bk\n").len(), 2, "scripts and notes.md");
}

#[test]
fn what_is_allowed_is_let_through() {
    for (path, text) in [
        ("runtime/src/port.rs", "use crate::id::{self, Ticket};\nfn f() -> crate::thread::Standing {}"),
        (
            "runtime/src/thread/sleep.rs",
            "use super::{Step, Thread};\nuse crate::tools::{self, Plan};\nfn f() { tools::plan(x) }",
        ),
        ("runtime/src/thread/mod.rs", "mod call;\npub use call::Call;\nuse std::sync::Arc;\nuse serde_json::Value;"),
        (
            "runtime/src/thread/call.rs",
            "// tokio::spawn\n/* std::fs /* nested */ */ fn f() { \"std::time\"; r#\"use tokio::x; \" \"#; ':' }",
        ),
        ("runtime/src/thread/call.rs", "#[cfg(test)]\nmod tests { use tokio::x; fn f() { x.unwrap() } }"),
        ("runtime/src/thread/call.rs", "fn f<'a>(x: &'a str) { let q = '\"'; u64::MAX; Self::new(); x as u16; }"),
        (
            "runtime/src/flow/join.rs",
            "use crate::thread::Thread;\nfn f() { sliced! { let a = use::batch(b, nondet!(/** if so; */)); a.map(q!(|x| x.id)) } }",
        ),
        ("runtime/src/flow/situations.rs", "use tokio::sync::mpsc;\nfn f() { x.unwrap() }"),
        (
            "deploy/src/journal/index.rs",
            "use slackwater_core::thread::{Thread, invariant};\nuse crate::port;\nuse super::format;",
        ),
        (
            "deploy/src/model/mod.rs",
            "pub mod openai;\nuse openai::OpenAi;\nuse reqwest::Client;\nuse std::time::Duration;",
        ),
        ("deploy/src/gateway/mod.rs", "use crate::tool::wire::Callback;\nuse slackwater_core::thread::Standing;"),
        (
            "deploy/src/host/embedded.rs",
            "use crate::{gateway, journal};\nuse hydro_lang::prelude::*;\nuse tokio::task;",
        ),
        ("deploy/src/main.rs", "fn f() { x.unwrap_or_default(); \".unwrap()\"; }"),
        ("tests/demo.rs", "fn f() { x.unwrap() }"),
    ] {
        assert_eq!(said(path, text), [""; 0], "{path}: {text}");
    }
}
