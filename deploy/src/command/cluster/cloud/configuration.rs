//! What Terraform is told, as its JSON form has it.
//!
//! In: resources, one by one. Out: the text of `main.tf.json`. Always: in the order of names, so that the same cluster gives the
//! same text.

use super::Keys;
use super::Wanted;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A configuration.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Configuration {
    terraform: Value,
    provider: Map<String, Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) data: BTreeMap<String, BTreeMap<String, Value>>,
    pub(super) resource: BTreeMap<String, BTreeMap<String, Value>>,
    pub(super) output: BTreeMap<String, Value>,
}

impl Configuration {
    /// Of one provider in this version, which is the one that hydro_deploy uses.
    pub(super) fn new(provider: &str, version: &str, settings: Value) -> Self {
        let source = json!({ "source": format!("hashicorp/{provider}"), "version": version });
        Self {
            terraform: json!({ "required_providers": { provider: source } }),
            provider: Map::from_iter([(provider.to_owned(), settings)]),
            ..Self::default()
        }
    }

    pub(super) fn resource(&mut self, kind: &str, name: &str, value: Value) {
        self.resource.entry(kind.to_owned()).or_default().insert(name.to_owned(), value);
    }

    pub(super) fn data(&mut self, kind: &str, name: &str, value: Value) {
        self.data.entry(kind.to_owned()).or_default().insert(name.to_owned(), value);
    }

    /// Where a machine is reached from outside and from its neighbours.
    pub(super) fn addresses(&mut self, machine: &str, public: &str, private: &str) {
        for (what, value) in [("public", public), ("private", private)] {
            self.output.insert(format!("{machine}_{what}"), json!({ "value": format!("${{{value}}}") }));
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("invariant: a configuration is plain data")
    }
}

/// What a machine does when it starts for the first time, as root: it takes the host key by which it is known, and makes the
/// cluster's directory once its user is there, whom a cloud may make later than this.
pub(super) fn first_start(wanted: &Wanted, keys: &Keys) -> String {
    let Wanted { user, directory, .. } = wanted;
    let Keys { host_private, host_public, .. } = keys;
    // In Terraform's strings `${` begins an expression; there is none in this script.
    format!(
        "#!/bin/sh\nset -eu\numask 077\ncat > /etc/ssh/ssh_host_ed25519_key <<'END'\n{host_private}END\n\
         echo '{host_public}' > /etc/ssh/ssh_host_ed25519_key.pub\n\
         systemctl restart ssh || systemctl restart sshd\n\
         n=0; until id -u '{user}' > /dev/null 2>&1 || [ $n -gt 300 ]; do n=$((n + 1)); sleep 1; done\n\
         install -d -m 0700 -o '{user}' '{}'\n",
        directory.display()
    )
}
