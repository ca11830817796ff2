//! Settings over the file: one variable or flag at a time.
//!
//! In: a variable's or a flag's text. Out: the same as a value in the file's table. Always: a value is only put there
//! when the configuration can be read with it; text is taken as it is where a text is wanted, and as TOML elsewhere.

use super::{Config, ConfigError, Flag, Origin};
use serde::Deserialize;
use toml::{Table, Value};

/// What all our variables begin with.
const PREFIX: &str = "SLACKWATER_";

/// Variables that configure no field: they are read by `main.rs`.
const OTHERS: &[&str] = &["CONFIG", "LOG", "LOG_FORMAT", "URL", "KEY"];

/// The tables of the configuration file.
const SECTIONS: &[&str] = &["agent", "model", "tool", "approvals", "gateway", "journal"];

/// The tables inside them.
const TABLES: &[&str] = &["limits"];

/// Whether a line of a file, or the name of a field, is about a secret.
pub(super) fn is_secret(text: &str) -> bool {
    let name = text.trim_start();
    name.starts_with("keys") || (name.starts_with("api_key") && !name.starts_with("api_key_env"))
}

/// Puts a variable over the file. False when it begins as ours do and means nothing.
pub(super) fn variable(said: &mut Table, name: &str, text: &str) -> Result<bool, ConfigError> {
    let Some(rest) = name.strip_prefix(PREFIX) else { return Ok(true) };
    if OTHERS.contains(&rest) {
        return Ok(true);
    }
    let field = rest.to_ascii_lowercase();
    let origin = Origin::Variable(name.to_owned());
    if field == "directory" {
        return put(said, &[&field], text, origin).map(|()| true);
    }
    if SECTIONS.contains(&field.as_str()) {
        let problem = format!("names a whole section; set its fields, as {name}_<FIELD>");
        return Err(ConfigError::Setting { source: origin, problem });
    }
    let Some((section, field)) = field.split_once('_').filter(|(section, _)| SECTIONS.contains(section)) else {
        return Ok(false);
    };
    match field.split_once('_').filter(|(table, _)| TABLES.contains(table)) {
        Some((table, inner)) => put(said, &[section, table, inner], text, origin),
        None => put(said, &[section, field], text, origin),
    }
    .map(|()| true)
}

/// Puts a flag over the file and the variables.
pub(super) fn flag(said: &mut Table, flag: &Flag) -> Result<(), ConfigError> {
    let path: Vec<&str> = flag.field.split('.').collect();
    put(said, &path, &flag.text, Origin::Flag(flag.name))
}

fn put(said: &mut Table, path: &[&str], text: &str, origin: Origin) -> Result<(), ConfigError> {
    let list = || Value::Array(text.split(',').map(|piece| Value::String(piece.trim().to_owned())).collect());
    let parsed = format!("value = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    let mut problem = None;
    for value in [Some(Value::String(text.to_owned())), parsed, Some(list())].into_iter().flatten() {
        let alone = path
            .iter()
            .rev()
            .fold(value.clone(), |inner, name| Value::Table(Table::from_iter([((*name).to_owned(), inner)])));
        match Config::deserialize(alone) {
            Ok(_) => {
                insert(said, path, value);
                return Ok(());
            }
            // What a plain text is told is what its writer understands; a number's or table's own fault is told instead.
            Err(error) => {
                let message = error.message().replace('\n', ", ");
                problem =
                    Some(problem.filter(|_| !matches!(value, Value::Integer(_) | Value::Table(_))).unwrap_or(message));
            }
        }
    }
    let problem = problem.unwrap_or_default();
    let name = path[path.len() - 1];
    let problem = if problem.starts_with("unknown field") && problem.contains(&format!("`{name}`")) {
        let expected = problem.split_once("expected").map_or("", |(_, expected)| expected);
        format!("there is no `{}` in [{}]; expected{expected}", path[1..].join("_"), path[0])
    } else if is_secret(name) {
        "the value is not of the right type (it is not shown here because it is secret)".to_owned()
    } else {
        problem
    };
    Err(ConfigError::Setting { source: origin, problem })
}

fn insert(said: &mut Table, path: &[&str], value: Value) {
    match path {
        [] => {}
        [name] => {
            said.insert((*name).to_owned(), value);
        }
        [name, rest @ ..] => {
            let inner = said.entry(*name).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}
