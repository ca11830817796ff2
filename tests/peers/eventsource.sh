#!/usr/bin/env bash
# Installs the stock EventSource client (npm `eventsource`) that tests/gateway.rs reads streams with.
#
# In: nothing; SLACKWATER_PEERS names another place than target/peers. Needs node 20 and npm.
# Out: <peers>/eventsource/node_modules/eventsource, and the path of <peers>/eventsource on the last line of standard output.
# Always: what is there already is not installed again; quiet unless something fails.
set -euo pipefail
cd "$(dirname "$0")/../.."

# The last version that runs on node 20.
version=4.1.1
peers="${SLACKWATER_PEERS:-$PWD/target/peers}"
root="$peers/eventsource"

if ! grep -qs "\"version\": \"$version\"" "$root/node_modules/eventsource/package.json"; then
    command -v npm >/dev/null || { echo "npm is missing; install node 20 with npm" >&2; exit 1; }
    mkdir -p "$root"
    [ -f "$root/package.json" ] || echo '{"private": true}' >"$root/package.json"
    log="$(mktemp)"
    trap 'rm -f "$log"' EXIT
    npm install --prefix "$root" --no-audit --no-fund --no-progress --save-exact "eventsource@$version" >"$log" 2>&1 ||
        { echo "failed: npm install eventsource@$version" >&2; tail -n 40 "$log" >&2; exit 1; }
fi
echo "$root"
