#!/usr/bin/env bash
# Installs the published RAP servers that tests/rap.rs drives: sandbox-local and rap-steering-server 0.2, unchanged.
#
# In: nothing; SLACKWATER_PEERS names another place than target/peers, CARGO_TARGET_DIR another place for the build.
# Out: <peers>/rap/bin/{sandbox-local,rap-steering-server}, and their path on the last line of standard output.
# Always: what is there already is not built again; quiet unless something fails.
set -euo pipefail
cd "$(dirname "$0")/../.."

peers="${SLACKWATER_PEERS:-$PWD/target/peers}"
root="$peers/rap"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT

quietly() {
    "$@" >"$log" 2>&1 || { echo "failed: $*" >&2; tail -n 40 "$log" >&2; exit 1; }
}

# sandbox-local confines what it runs with bubblewrap and searches with ripgrep.
missing=()
command -v bwrap >/dev/null || missing+=(bubblewrap)
command -v rg >/dev/null || missing+=(ripgrep)
if ((${#missing[@]})); then
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    quietly "${as_root[@]}" apt-get update -qq
    quietly "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# The build's own files are not kept unless they were given a place: only the two programs are needed.
build="${CARGO_TARGET_DIR:-$PWD/target/peers-build}"
[ -n "${CARGO_TARGET_DIR:-}" ] || trap 'rm -rf "$log" "$build"' EXIT
for name in rap-steering-server sandbox-local; do
    if [ ! -x "$root/bin/$name" ]; then
        CARGO_TARGET_DIR="$build" \
            quietly cargo install --quiet --locked --root "$root" --version '^0.2' "$name"
    fi
done
echo "$root/bin"
