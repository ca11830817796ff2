#!/usr/bin/env bash
# Installs the servers that tests/models.rs talks to: LiteLLM's proxy (PyPI) and aimock (npm), under target/peers or
# where SLACKWATER_PEERS says. Does nothing when they are there already.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
peers="${SLACKWATER_PEERS:-$root/target/peers}"
litellm_version=1.108.7
aimock_version=1.43.0
mkdir -p "$peers"

# Its programs name the place that they were installed at, so elsewhere it is another one.
litellm="$litellm_version at $peers/litellm"
if [ "$(cat "$peers/litellm/version" 2>/dev/null)" != "$litellm" ]; then
    rm -rf "$peers/litellm"
    python3 -m venv "$peers/litellm"
    "$peers/litellm/bin/pip" install --quiet --disable-pip-version-check "litellm[proxy]==$litellm_version"
    echo "$litellm" > "$peers/litellm/version"
fi

if [ "$(cat "$peers/aimock/version" 2>/dev/null)" != "$aimock_version" ]; then
    rm -rf "$peers/aimock"
    mkdir -p "$peers/aimock"
    npm install --silent --no-audit --no-fund --prefix "$peers/aimock" "@copilotkit/aimock@$aimock_version"
    echo "$aimock_version" > "$peers/aimock/version"
fi
