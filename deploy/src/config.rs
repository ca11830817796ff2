//! The configuration of the program: a file, the environment over it, and flags over both.
//!
//! In: a TOML file, variables `SLACKWATER_<SECTION>_<FIELD>` and flags. Out: a [`Config`]. Always: what is not understood
//! is an error that names the file and line, the variable or the flag; a secret is shown to nobody.

mod overlay;

use serde::Deserialize;
pub(crate) use slackwater::settings::Settings as Config;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The file that is read when no other is named and it is there.
pub(crate) const DEFAULT_FILE: &str = "slackwater.toml";

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}; name another with --config", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Something in the file is wrong.
    #[error("{}, line {line}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A variable or a flag has a value that it cannot have, or does not exist.
    #[error("{source}: {problem}")]
    Setting {
        /// The variable or the flag.
        source: Origin,
        /// What is wrong with it.
        problem: String,
    },
}

/// Where a setting over the file comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An environment variable.
    Variable(String),
    /// A flag.
    Flag(&'static str),
}

// `ConfigError::Setting` calls it its source, as thiserror understands the word.
impl std::error::Error for Origin {}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Variable(name) => write!(f, "environment variable {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A flag's value for a field, as its path and text.
pub(crate) struct Flag {
    /// What people type.
    pub(crate) name: &'static str,
    /// The field, for example `gateway.listen`.
    pub(crate) field: &'static str,
    /// The value.
    pub(crate) text: String,
}

/// What was loaded.
pub(crate) struct Loaded {
    /// The configuration.
    pub(crate) config: Config,
    /// The file it came from, if there was one.
    pub(crate) file: Option<PathBuf>,
    /// Which fields were said in the file, the environment or a flag, as `gateway.listen`.
    said: Table,
    /// Variables that begin as ours do and mean nothing.
    pub(crate) unknown_variables: Vec<String>,
}

impl Loaded {
    /// What was said, as a configuration file for other processes, with this directory and these tool servers beside.
    pub(crate) fn to_toml(&self, directory: &Path, servers: &[String]) -> String {
        let mut said = self.said.clone();
        said.insert("directory".to_owned(), Value::String(directory.display().to_string()));
        let tool = said.entry("tool").or_insert_with(|| Value::Table(Table::new()));
        if let (Value::Table(tool), false) = (tool, servers.is_empty()) {
            let all = tool.entry("server").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(all) = all {
                all.extend(
                    servers
                        .iter()
                        .map(|url| Value::Table(Table::from_iter([("url".to_owned(), Value::String(url.clone()))]))),
                );
            }
        }
        // The other processes run elsewhere.
        if let Some(Value::String(script)) = said.get_mut("model").and_then(|model| model.get_mut("script"))
            && let Ok(path) = std::path::absolute(&*script)
        {
            *script = path.display().to_string();
        }
        said.to_string()
    }

    /// Whether somebody has said what a field is, rather than leaving it to its default.
    pub(crate) fn says(&self, section: &str, field: &str) -> bool {
        self.said.get(section).and_then(|section| section.get(field)).is_some()
    }
}

/// Loads the configuration: the file that is named, or the default one if it is there; the variables over it; the flags
/// over both.
pub(crate) fn load(
    named: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    flags: &[Flag],
) -> Result<Loaded, ConfigError> {
    let default = Path::new(DEFAULT_FILE);
    let file = named.or_else(|| default.exists().then_some(default));
    let mut said = match file {
        Some(path) => read(path)?,
        None => Table::new(),
    };
    let mut unknown_variables = Vec::new();
    let mut variables: Vec<_> = variables.into_iter().collect();
    variables.sort();
    for (name, text) in variables {
        if !overlay::variable(&mut said, &name, &text)? {
            unknown_variables.push(name);
        }
    }
    for flag in flags {
        overlay::flag(&mut said, flag)?;
    }
    let config = Config::deserialize(Value::Table(said.clone()));
    let config = config.expect("invariant: the file and each setting over it were read as a configuration before");
    Ok(Loaded { config, file: file.map(Path::to_owned), said, unknown_variables })
}

fn read(path: &Path) -> Result<Table, ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let wrong = |error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        let line_text = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let line_text = text[line_text..].lines().next().unwrap_or_default();
        let problem = match overlay::is_secret(line_text) {
            true => "the value is not of the right type (it is not shown here because it is secret)".to_owned(),
            false => error.message().replace('\n', ", "),
        };
        ConfigError::File { path: path.to_owned(), line: text[..at].matches('\n').count() + 1, problem }
    };
    // As a whole first: only this knows the lines.
    toml::from_str::<Config>(&text).map_err(wrong)?;
    text.parse::<Table>().map_err(wrong)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    fn pairs(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn flags_go_over_variables_and_variables_over_the_file() {
        let file = file("directory = 'f'\n[gateway]\nlisten = '127.0.0.1:1'\n[model.limits]\nattempts_max = 1\n");
        let variables = pairs(&[("SLACKWATER_GATEWAY_LISTEN", "127.0.0.1:2"), ("SLACKWATER_DIRECTORY", "v")]);
        let flags = [Flag { name: "--listen", field: "gateway.listen", text: "127.0.0.1:3".to_owned() }];
        let port = |variables: &[(String, String)], flags: &[Flag]| {
            let loaded = load(Some(file.path()), variables.to_vec(), flags).unwrap();
            assert!(loaded.says("gateway", "listen") && !loaded.says("gateway", "shards"));
            (loaded.config.gateway.listen.port(), loaded.config.directory, loaded.config.model.limits.attempts_max)
        };
        assert_eq!(port(&[], &[]), (1, "f".into(), 1));
        assert_eq!(port(&variables, &[]), (2, "v".into(), 1));
        assert_eq!(port(&variables, &flags), (3, "v".into(), 1));
    }

    #[test]
    fn variables_reach_every_type_and_depth() {
        let variables = pairs(&[
            ("SLACKWATER_AGENT_SYSTEM", "42"),
            ("SLACKWATER_MODEL_API_KEY", "sk-secret"),
            ("SLACKWATER_MODEL_EXTRA", "{ temperature = 0.5 }"),
            ("SLACKWATER_GATEWAY_KEYS", "ann:0123456789abcdef, bob:0123456789abcdeg"),
            ("SLACKWATER_GATEWAY_LIMITS_CONNECTIONS_MAX", "7"),
            ("SLACKWATER_TOOL_SERVER", "[{ url = 'http://h:1' }]"),
            ("SLACKWATER_JOURNAL_SEGMENT_MAX_BYTES", "8192"),
        ]);
        let Loaded { config, .. } = load(Some(file("").path()), variables, &[]).unwrap();
        assert_eq!(config.agent.system, "42");
        assert_eq!(config.model.extra["temperature"], 0.5);
        assert_eq!(config.gateway.keys, ["ann:0123456789abcdef", "bob:0123456789abcdeg"]);
        assert_eq!(config.gateway.limits.connections_max, 7);
        assert_eq!(config.tool.server[0].url.as_deref(), Some("http://h:1"));
        assert_eq!(config.journal.segment_max_bytes, 8192);
        let shown = format!("{config:?}");
        assert!(
            shown.contains("ann:(secret)") && !shown.contains("0123456789") && !shown.contains("sk-secret"),
            "{shown}"
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, said) in [
            ("directory = 'd'\n[gatewy]\n", "line 2: unknown field `gatewy`, expected one of"),
            ("[gateway]\n\nlistn = 'x'\n", "line 3: unknown field `listn`"),
            ("[gateway]\nlisten = 'here'\n", "line 2: invalid socket address"),
            ("[model]\nprovider = 'gpt'\n", "line 2: unknown variant `gpt`, expected one of"),
            ("[gateway.limits]\nconnections_max = 'many'\n", "line 2: invalid type: string \"many\""),
            ("[model\n", "line 1: "),
            ("[gateway]\nkeys = 'ann:0123456789abcdef'\n", "line 2: the value is not of the right type"),
        ] {
            let file = file(text);
            let error = load(Some(file.path()), [], &[]).err().unwrap().to_string();
            let place = file.path().display().to_string();
            assert!(error.contains(said) && error.contains(&place), "{error}");
            assert!(!error.contains("0123456789abcdef"), "{error}");
        }
        for (name, text, said) in [
            (
                "SLACKWATER_GATEWAY_LISTN",
                "1",
                "environment variable SLACKWATER_GATEWAY_LISTN: there is no `listn` in [gateway]",
            ),
            (
                "SLACKWATER_GATEWAY_LISTEN",
                "here",
                "environment variable SLACKWATER_GATEWAY_LISTEN: invalid socket address",
            ),
            ("SLACKWATER_GATEWAY_LIMITS_X", "1", "there is no `limits_x` in [gateway]"),
            ("SLACKWATER_JOURNAL_GROUP_MAX_BYTES", "lots", "\"lots\""),
            ("SLACKWATER_MODEL_PROVIDER", "gpt", "unknown variant `gpt`"),
            ("SLACKWATER_MODEL", "x", "names a whole section"),
        ] {
            let error = load(Some(file("").path()), pairs(&[(name, text)]), &[]).err().unwrap().to_string();
            assert!(error.contains(said), "{error}");
        }
        let flag = Flag { name: "--listen", field: "gateway.listen", text: "x".to_owned() };
        let error = load(Some(file("").path()), [], &[flag]).err().unwrap().to_string();
        assert!(error.starts_with("flag --listen: invalid socket address"), "{error}");
        let error = load(Some(Path::new("/nowhere/s.toml")), [], &[]).err().unwrap().to_string();
        assert!(error.contains("/nowhere/s.toml") && error.contains("--config"), "{error}");
    }

    #[test]
    fn a_variable_that_means_nothing_is_told() {
        let variables = pairs(&[
            ("SLACKWATER_CONFIG", "x"),
            ("SLACKWATER_LOG", "info"),
            ("SLACKWATER_MODLE_NAME", "m"),
            ("PATH", "/"),
        ]);
        let loaded = load(Some(file("").path()), variables, &[]).unwrap();
        assert_eq!(loaded.unknown_variables, ["SLACKWATER_MODLE_NAME"]);
    }
}
