#!/usr/bin/env bash
# Fetches what the providers of Google Cloud and Azure know, in the versions that clusters ask for: CDKTF's bindings, which are
# generated from the providers' own schemas. terraform_schema.py reads them, and tests/cluster/providers.rs drives that.
#
# In: nothing; SLACKWATER_PEERS names another place than target/peers. Out: <peers>/terraform/{google,azurerm}/package, and the
# place on the last line of standard output.
# Always: what is there already is not fetched again; quiet unless something fails.
set -euo pipefail
cd "$(dirname "$0")/../.."

place="${SLACKWATER_PEERS:-$PWD/target/peers}/terraform"
fetch() { # PROVIDER VERSION-OF-BINDINGS: those of google 4.53.1 and azurerm 3.67.0
    [ ! -d "$place/$1/package" ] || return 0
    mkdir -p "$place/$1"
    (cd "$place/$1" && npm pack --silent "@cdktf/provider-$1@$2" >/dev/null)
    tar -xzf "$place/$1"/*.tgz -C "$place/$1" --wildcards '*.d.ts'
    rm "$place/$1"/*.tgz
}
fetch google 5.0.6
fetch azurerm 9.0.5
echo "$place"
