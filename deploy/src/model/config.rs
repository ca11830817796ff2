//! The configuration: which model, and where.
//!
//! In: what a configuration file says, and the environment. Out: a model. Always: without anything it is the scripted
//! stand-in; a key is shown to nobody; what is missing is named with where to put it.

use super::{Anthropic, Limits, Model, OpenAi, ScriptError, Scripted};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;

/// Which model is asked, and how.
///
/// ```toml
/// provider = "anthropic"        # or "openai" (anything OpenAI-compatible), or "scripted"
/// model = "the-models-name"
/// context_window_tokens = 200000  # above 75 % of it (compact_at_percent) a history is summarized
/// [limits]
/// prompts_at_once = 32
/// [extra]                       # goes into every request as it is
/// temperature = 0.2
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What kind of provider.
    pub provider: Provider,
    /// The model, as the provider calls it.
    pub model: Option<String>,
    /// Where the provider answers: without it, `OPENAI_BASE_URL` or `ANTHROPIC_BASE_URL`, or the provider's own address.
    /// For `openai` it ends with the version (`https://api.openai.com/v1`), for `anthropic` before it.
    pub base_url: Option<String>,
    /// The environment variable that holds the key: without it, `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`.
    pub api_key_env: Option<String>,
    /// The key itself. Better kept in the environment.
    pub api_key: Option<Secret>,
    /// The script that `scripted` plays; without it, one that says what it is.
    pub script: Option<PathBuf>,
    /// The longest answer, in tokens: 8192 for `anthropic`, which must be told one, and the provider's own for others.
    pub max_tokens: Option<u32>,
    /// How many tokens the model's window holds: the prompt and its answer together. Without it nobody knows when a history
    /// gets too long before the provider refuses it.
    pub context_window_tokens: Option<u64>,
    /// At which share of the window a history is summarized, in percent: 75 without it, 0 for never.
    pub compact_at_percent: Option<u8>,
    /// What goes into every request as it is.
    pub extra: Map<String, Value>,
    /// The bounds within which it is asked.
    pub limits: Limits,
}

/// The kinds of providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// The stand-in that plays a script.
    #[default]
    Scripted,
    /// An OpenAI-compatible chat completions endpoint.
    #[serde(rename = "openai")]
    OpenAi,
    /// Anthropic's Messages.
    Anthropic,
}

/// A text that is shown to nobody.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// A configuration of which no model can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The provider needs a model's name.
    #[error("no model is named for the provider {provider}; set `model` to the name that the provider uses")]
    NoModel {
        /// The provider.
        provider: &'static str,
    },
    /// The provider needs a key.
    #[error("there is no key for the provider {provider}; put it into the environment as {variable}")]
    NoKey {
        /// The provider.
        provider: &'static str,
        /// Where it was looked for.
        variable: String,
    },
    /// The address or the key cannot be used.
    #[error("the provider {provider} cannot be used: {problem}")]
    Unusable {
        /// The provider.
        provider: &'static str,
        /// Why.
        problem: String,
    },
    /// There is no such share.
    #[error("compact_at_percent is {percent}; give 1 to 100 percent of context_window_tokens, or 0 for never")]
    NoShare {
        /// What was said.
        percent: u8,
    },
    /// The script cannot be used.
    #[error(transparent)]
    Script(#[from] ScriptError),
}

/// At which share of the window a history is summarized when nothing else is said, in percent.
const COMPACT_AT_PERCENT: u8 = 75;

impl Config {
    /// The bounds within which the model is asked, with how long a history may get.
    pub fn limits(&self) -> Limits {
        let percent = u64::from(self.compact_at_percent.unwrap_or(COMPACT_AT_PERCENT));
        let share = |window: u64| (u128::from(window) * u128::from(percent) / 100) as u64;
        let compact_at_tokens = self.context_window_tokens.filter(|_| percent > 0).map(share);
        Limits { compact_at_tokens, ..self.limits.clone() }
    }

    /// Makes the model, with what is missing taken from the environment.
    ///
    /// # Errors
    /// When something is missing or cannot be used.
    pub fn build(&self) -> Result<Arc<dyn Model>, ConfigError> {
        self.build_with(|name| std::env::var(name).ok())
    }

    /// Makes the model, with `environment` in place of the process's own.
    ///
    /// # Errors
    /// When something is missing or cannot be used.
    pub fn build_with(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Arc<dyn Model>, ConfigError> {
        if let Some(percent) = self.compact_at_percent.filter(|percent| *percent > 100) {
            return Err(ConfigError::NoShare { percent });
        }
        let environment = |name: &str| environment(name).map(|v| v.trim().to_owned()).filter(|value| !value.is_empty());
        let (provider, key_variable, url_variable, own_url) = match self.provider {
            Provider::Scripted => {
                let scripted = match &self.script {
                    Some(path) => Scripted::from_file(path)?,
                    None => Scripted::default_script(),
                };
                return Ok(Arc::new(scripted));
            }
            Provider::OpenAi => ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1"),
            Provider::Anthropic => {
                ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com")
            }
        };
        let model = self.model.clone().filter(|m| !m.is_empty()).ok_or(ConfigError::NoModel { provider })?;
        let named_url = self.base_url.clone().or_else(|| environment(url_variable));
        let key_variable = self.api_key_env.as_deref().unwrap_or(key_variable);
        let key = match &self.api_key {
            Some(Secret(key)) => Some(key.clone()),
            None => environment(key_variable),
        };
        // A server of one's own may want no key. A variable that was named is meant.
        if key.is_none() && (named_url.is_none() || self.api_key_env.is_some()) {
            return Err(ConfigError::NoKey { provider, variable: key_variable.to_owned() });
        }
        let own = named_url.is_none();
        let url = named_url.unwrap_or_else(|| own_url.to_owned());
        let mut extra = self.extra.clone();
        let limits = self.limits.clone();
        let unusable = |problem| ConfigError::Unusable { provider, problem };
        Ok(if self.provider == Provider::OpenAi {
            if let Some(most) = self.max_tokens {
                // OpenAI has renamed it; most servers that are compatible know the old name.
                extra.insert(if own { "max_completion_tokens" } else { "max_tokens" }.to_owned(), most.into());
            }
            Arc::new(OpenAi::new(&url, key, model, extra, limits).map_err(unusable)?)
        } else {
            let most = self.max_tokens.unwrap_or(8192);
            Arc::new(Anthropic::new(&url, key, model, most, extra, limits).map_err(unusable)?)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    fn config(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    fn problem(text: &str, environment: &[(&str, &str)]) -> String {
        match config(text).build_with(|name| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        }) {
            Ok(model) => format!("built {}", model.name()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn without_anything_it_is_the_stand_in() {
        assert_eq!(problem("", &[("OPENAI_API_KEY", "sk-x")]), "built scripted");
    }

    #[test]
    fn what_is_missing_is_named() {
        let key = [("OPENAI_API_KEY", "sk-x"), ("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")];
        assert!(problem("provider = 'openai'", &key).contains("set `model`"));
        assert_eq!(problem("provider = 'openai'\nmodel = 'm'", &key), "built m");
        assert!(problem("provider = 'openai'\nmodel = 'm'", &[]).contains("as OPENAI_API_KEY"));
        assert!(problem("provider = 'openai'\nmodel = 'm'\napi_key_env = 'MINE'", &key).contains("as MINE"));
        assert_eq!(problem("provider = 'openai'\nmodel = 'm'\nbase_url = 'http://127.0.0.1:1/v1'", &[]), "built m");
        assert!(problem("provider = 'anthropic'\nmodel = 'm'", &[]).contains("as ANTHROPIC_API_KEY"));
        assert_eq!(problem("provider = 'anthropic'\nmodel = 'm'", &key), "built m");
        let url = problem("provider = 'anthropic'\nmodel = 'm'\nbase_url = 'nowhere'", &key);
        assert!(url.contains("nowhere/v1/messages is no URL"), "{url}");
        assert!(problem("script = '/nowhere/s.toml'", &[]).contains("/nowhere/s.toml"));
    }

    #[test]
    fn a_history_is_summarized_at_a_share_of_the_window() {
        for (text, at) in [
            ("", None),
            ("context_window_tokens = 200000", Some(150_000)),
            ("context_window_tokens = 200000\ncompact_at_percent = 50", Some(100_000)),
            ("context_window_tokens = 200000\ncompact_at_percent = 0", None),
            ("compact_at_percent = 50", None),
        ] {
            assert_eq!(config(text).limits().compact_at_tokens, at, "{text}");
        }
        assert!(problem("compact_at_percent = 101", &[]).contains("compact_at_percent is 101; give 1 to 100"));
    }

    #[test]
    fn a_key_is_shown_to_nobody() {
        let config = config("provider = 'openai'\nmodel = 'm'\napi_key = 'sk-secret'");
        assert!(!format!("{config:?}").contains("sk-secret"));
        let model = OpenAi::new("http://x", Some("sk-secret".into()), "m".into(), Map::new(), Limits::default());
        assert!(!format!("{model:?}").contains("sk-secret"));
    }

    #[test]
    fn unknown_settings_are_refused() {
        assert!(toml::from_str::<Config>("providr = 'openai'").unwrap_err().message().contains("expected one of"));
        assert!(toml::from_str::<Config>("[limits]\nretries = 4").unwrap_err().message().contains("expected one of"));
        assert_eq!(config("[limits]\nattempts_max = 2").limits, Limits { attempts_max: 2, ..Limits::default() });
    }
}
