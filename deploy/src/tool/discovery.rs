//! Discovery: what a RAP server offers.
//!
//! In: the base URL of a server. Out: its toolset. Always: every name in it can be called by a model and is nobody else's
//! word; a toolset with faults is refused as a whole, with all of them listed.

use super::Error;
use super::config::http_url;
use super::schema::{Schema, Schemas};
use super::terms::Terms;
use super::wire::Manifest;
use crate::catalog::ToolSpec;
use slackwater_core::record::Origin;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The longest manifest that is read, in bytes.
const MANIFEST_LENGTH_MAX: usize = 4 << 20;
/// How long a server may take to answer, in milliseconds.
const DISCOVERY_TIMEOUT_MS: u64 = 10_000;
/// The name under which events are shown to the model.
const EVENT_NAME: &str = "receive_event__injected";

/// A toolset as it is used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Toolset {
    /// Its name.
    pub(super) name: String,
    /// The base URL of its server, for notifications.
    pub(super) base: String,
    /// Where invocations go.
    pub(super) endpoint: String,
    /// What it offers.
    pub(super) tools: Vec<ToolSpec>,
    /// The terms of its tools, by their names.
    pub(super) terms: BTreeMap<String, Terms>,
}

/// Asks a server for its toolset. Calls may take so long if their tools do not say, in milliseconds.
pub(super) async fn discover(
    client: &reqwest::Client,
    base: &str,
    schemas: &Schemas,
    timeout_ms: Option<u64>,
) -> Result<Toolset, Error> {
    let url = format!("{base}/.well-known/rap-toolset");
    let unreachable = |fault: String| Error::Unreachable { url: url.clone(), fault };
    let response = client
        .get(&url)
        .header("accept", "application/json")
        .timeout(Duration::from_millis(DISCOVERY_TIMEOUT_MS))
        .send()
        .await
        .map_err(|error| unreachable(in_words(&error)))?;
    let status = response.status();
    if !status.is_success() {
        return Err(unreachable(format!("answered {status} where a RAP server has its toolset")));
    }
    let body = read_at_most(response, MANIFEST_LENGTH_MAX).await.map_err(|error| unreachable(in_words(&error)))?;
    if body.len() > MANIFEST_LENGTH_MAX {
        return Err(Error::Refused { url, faults: vec![format!("it is longer than {MANIFEST_LENGTH_MAX} bytes")] });
    }
    let manifest: Manifest = serde_json::from_slice(&body).map_err(|error| Error::Refused {
        url: url.clone(),
        faults: vec![format!("it is not a RAP toolset: {error}")],
    })?;
    let mut schemas = checked(&manifest, schemas).map_err(|faults| Error::Refused { url, faults })?;
    let (mut tools, mut terms) = (Vec::new(), BTreeMap::new());
    for tool in manifest.tools {
        let compiled = schemas.remove(&tool.name).expect("invariant: a toolset that was checked has its schemas");
        let (of_tool, schema) = Terms::new(compiled, &tool.input_schema, tool.annotations.clone(), timeout_ms);
        terms.insert(tool.name.clone(), of_tool);
        let (name, description, annotations) = (tool.name, tool.description, tool.annotations);
        tools.push(ToolSpec { name, description, schema, annotations });
    }
    Ok(Toolset { name: manifest.name, base: base.to_owned(), endpoint: manifest.endpoint, tools, terms })
}

/// What the tools of a toolset take; or everything that is wrong with it.
fn checked(manifest: &Manifest, schemas: &Schemas) -> Result<BTreeMap<String, Arc<Schema>>, Vec<String>> {
    let mut faults = Vec::new();
    if let Err(rule) = check_name(&manifest.name) {
        faults.push(format!("the toolset's name {:?} {rule}", manifest.name));
    }
    if manifest.name == Origin::runtime().who {
        faults.push(format!("the toolset's name {:?} belongs to the runtime", manifest.name));
    }
    if let Err(wrong) = http_url(&manifest.endpoint) {
        faults.push(format!("its endpoint {wrong}"));
    }
    match checked_tools(manifest.tools.iter().map(|tool| (tool.name.as_str(), &tool.input_schema)), schemas) {
        Ok(checked) if faults.is_empty() => Ok(checked),
        Ok(_) => Err(faults),
        Err(more) => {
            faults.extend(more);
            Err(faults)
        }
    }
}

/// What the tools of one source take, by their names; or everything that is wrong with their names and schemas.
pub(super) fn checked_tools<'a>(
    tools: impl Iterator<Item = (&'a str, &'a serde_json::Value)>,
    schemas: &Schemas,
) -> Result<BTreeMap<String, Arc<Schema>>, Vec<String>> {
    let mut faults = Vec::new();
    let mut checked = BTreeMap::new();
    for (name, schema) in tools {
        if let Err(rule) = check_name(name) {
            faults.push(format!("the tool name {name:?} {rule}"));
        }
        if name == EVENT_NAME || slackwater_core::tools::BUILT_IN.iter().any(|tool| tool.name == name) {
            faults.push(format!("the tool name {name:?} belongs to the runtime"));
        }
        if checked.contains_key(name) {
            faults.push(format!("the tool name {name:?} is there twice"));
        }
        if schema.get("type").and_then(|kind| kind.as_str()) != Some("object") {
            faults.push(format!("the schema of {name:?} is not one of an object (it needs \"type\": \"object\")"));
        }
        match schemas.compile(schema) {
            Ok(schema) => {
                checked.insert(name.to_owned(), schema);
            }
            Err(why) => faults.push(format!("the schema of {name:?} cannot be used: {why}")),
        }
    }
    if faults.is_empty() { Ok(checked) } else { Err(faults) }
}

/// The names that every provider takes.
fn check_name(name: &str) -> Result<(), &'static str> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if fits { Ok(()) } else { Err("is not 1 to 64 of the letters A-Z, a-z, 0-9, _ and -") }
}

/// Reads a body, but not much more than `length_max` bytes of it.
pub(super) async fn read_at_most(mut response: reqwest::Response, length_max: usize) -> reqwest::Result<Vec<u8>> {
    let mut body = Vec::new();
    while body.len() <= length_max
        && let Some(chunk) = response.chunk().await?
    {
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// What went wrong with a request, with its causes and without the URL, which is said elsewhere.
pub(super) fn in_words(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "did not answer in time".to_owned();
    }
    let mut text = match error.is_connect() {
        true => "cannot be connected to".to_owned(),
        false => "broke the exchange off".to_owned(),
    };
    let mut last = None;
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        last = Some(error.to_string());
        cause = error.source();
    }
    if let Some(last) = last {
        text.push_str(&format!(" ({last})"));
    }
    text
}
