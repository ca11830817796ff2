#!/usr/bin/env bash
# Installs MCP's own SDK for Python (PyPI), on which tests/peers/mcp_server.py stands, and its reference server
# `server-everything` (npm), under target/peers or where SLACKWATER_PEERS says.
#
# Out: <peers>/mcp/python/bin/python and <peers>/mcp/node_modules/.bin/mcp-server-everything.
# Always: what is there already is not installed again; quiet unless something fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
sdk=2.3.0
everything=2026.8.31
peers="${SLACKWATER_PEERS:-$PWD/target/peers}"
root="$peers/mcp"

if [ "$(cat "$root/version" 2>/dev/null)" != "$sdk $everything" ]; then
    rm -rf "$root"
    mkdir -p "$root"
    python3 -m venv "$root/python"
    "$root/python/bin/pip" install --quiet --disable-pip-version-check "mcp==$sdk"
    echo '{"private": true}' >"$root/package.json"
    log="$(mktemp)"
    trap 'rm -f "$log"' EXIT
    npm install --prefix "$root" --no-audit --no-fund --no-progress --save-exact \
        "@modelcontextprotocol/server-everything@$everything" >"$log" 2>&1 ||
        { echo "failed: npm install server-everything@$everything" >&2; tail -n 40 "$log" >&2; exit 1; }
    echo "$sdk $everything" >"$root/version"
fi
