//! What may import what: the table of the design's section 6.
//!
//! In: where a file is, and a path that it mentions. Out: the rule that this breaks, if it breaks one. Always: a place that
//! the table does not name is free.

use std::collections::BTreeSet;

/// The words, in their order. `port` is the fifth: what crosses between the flow and the adapters.
const WORDS: [&str; 5] = ["id", "record", "history", "effect", "port"];

const ADAPTERS: [&str; 5] = ["journal", "model", "tool", "gateway", "timer"];

/// What of `std` touches the world.
const WORLD: [&str; 7] = ["time", "fs", "net", "io", "process", "env", "thread"];

/// The crates of the dataflow.
const DATAFLOW: [&str; 6] = ["hydro_lang", "hydro_std", "hydro_deploy", "dfir_rs", "stageleft", "hydro_build_utils"];

/// Names that begin a path and are no crate: what the language has, and what attributes of its tools begin with.
const LANGUAGE: [&str; 26] = [
    "core", "alloc", "use", "clippy", "rustfmt", "rustdoc", "bool", "char", "str", "u8", "u16", "u32", "u64", "u128",
    "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64", "slice", "array", "tuple",
];

/// A part of the house.
#[derive(Debug, PartialEq)]
pub(crate) enum Place {
    /// A word, by its place among them.
    Word(usize),
    /// `thread/*` or `tools/*`.
    Fold,
    Flow,
    /// An adapter, by its name.
    Adapter(String),
    /// What the adapters share: `port`, `catalog`, `capability`, `clock`, `placement`.
    Seam,
    /// Hosts, and what stands above them: they put the parts together.
    Free,
}

pub(crate) fn place(module: &[String]) -> Place {
    let parts: Vec<&str> = module.iter().map(String::as_str).collect();
    match parts[..] {
        ["slackwater_core", word] if WORDS.contains(&word) => {
            Place::Word(WORDS.iter().position(|known| *known == word).unwrap_or_default())
        }
        ["slackwater_core", "thread" | "tools", ..] => Place::Fold,
        ["slackwater_core", "flow", ..] => Place::Flow,
        ["slackwater", adapter, ..] if ADAPTERS.contains(&adapter) => Place::Adapter(adapter.to_owned()),
        ["slackwater", "port" | "catalog" | "capability" | "clock" | "placement"] => Place::Seam,
        _ => Place::Free,
    }
}

/// The rule that a file breaks when it mentions this path. `modules` are all modules there are, written out.
pub(crate) fn broken(module: &[String], path: &[String], modules: &BTreeSet<String>) -> Option<&'static str> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let root = *parts.first()?;
    let is_path_of_a_type = root.starts_with(|c: char| c.is_uppercase() || c == '_' || c.is_numeric());
    if is_path_of_a_type || LANGUAGE.contains(&root) {
        return None;
    }
    let place = place(module);
    let touches_world = root == "std" && parts.get(1).is_some_and(|part| WORLD.contains(part));
    let is_unordered = root == "std" && parts.iter().any(|part| matches!(*part, "HashMap" | "HashSet"));
    match place {
        Place::Free => None,
        Place::Word(_) | Place::Fold if touches_world => {
            Some("the words and the fold touch no clock, file, socket or task")
        }
        Place::Word(_) | Place::Fold if is_unordered => Some("the words and the fold know no order of a hash map"),
        Place::Word(rank) => match parts[..] {
            ["std" | "serde", ..] => None,
            ["slackwater_core", "thread", "Standing" | "State" | "Why", ..] if WORDS[rank] == "port" => None,
            ["slackwater_core", word, ..] if WORDS[..=rank].contains(&word) => None,
            ["slackwater_core", ..] => {
                Some("a word imports only the words above it: id, record, history, effect, port")
            }
            _ => Some("a word imports nothing but std and serde"),
        },
        Place::Fold => match parts[..] {
            ["std" | "serde" | "serde_json", ..] => None,
            ["slackwater_core", word, ..] if WORDS.contains(&word) => None,
            ["slackwater_core", "thread" | "tools", ..] => fold_to_fold(module, &parts, modules),
            ["slackwater_core", ..] => Some("the fold imports only the words"),
            _ => Some("the fold imports nothing but the words, std, serde and serde_json"),
        },
        Place::Flow => match parts[..] {
            _ if touches_world => Some("a flow touches no clock, file, socket or task"),
            ["std" | "serde" | "hydro_lang" | "hydro_std" | "stageleft", ..] => None,
            ["slackwater_core", word, ..] if WORDS.contains(&word) => None,
            ["slackwater_core", "thread" | "flow", ..] => None,
            ["slackwater_core", ..] => Some("a flow imports only the words, thread and flows"),
            _ => Some("a flow imports nothing but hydro_lang, hydro_std, stageleft, std and serde"),
        },
        Place::Adapter(_) | Place::Seam if DATAFLOW.contains(&root) => Some("an adapter knows no dataflow"),
        Place::Adapter(own) => match parts[..] {
            ["slackwater_core", "thread", "Standing" | "State" | "Why", ..] => None,
            ["slackwater_core", "thread", ..] if own == "journal" => None,
            ["slackwater_core", "thread", ..] => Some("only the journal and the flow know how a thread is folded"),
            ["slackwater_core", "flow", ..] => Some("an adapter knows no dataflow"),
            ["slackwater", "tool", "wire", ..] if own == "gateway" => None,
            ["slackwater", "host", ..] => Some("an adapter knows no host"),
            ["slackwater", other, ..] if ADAPTERS.contains(&other) && other != own => {
                Some("an adapter imports no other adapter")
            }
            _ => None,
        },
        Place::Seam => match parts[..] {
            ["slackwater_core", "thread" | "flow", ..] => Some("what adapters share knows no fold and no flow"),
            ["slackwater", part, ..] if ADAPTERS.contains(&part) || part == "host" => {
                Some("what adapters share imports no adapter and no host")
            }
            _ => None,
        },
    }
}

/// Files of the fold meet in their `mod.rs`: that one calls them, and they use what it has.
fn fold_to_fold(module: &[String], parts: &[&str], modules: &BTreeSet<String>) -> Option<&'static str> {
    let (own, other) = (module.get(1)?.as_str(), *parts.get(1)?);
    if own == "tools" && other == "thread" {
        return Some("a built-in tool plans and knows no thread");
    }
    let file = parts.iter().take(3).copied().collect::<Vec<_>>().join("::");
    let is_file = parts.len() > 2 && modules.contains(&file);
    let is_own = file == module.join("::") || (module.len() == 2 && own == other);
    (is_file && !is_own).then_some("files of the fold import no file beside them; mod.rs calls them")
}
