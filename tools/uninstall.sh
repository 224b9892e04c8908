#!/usr/bin/env bash
# Removes what 'make install' put under a prefix, and no other file:  tools/uninstall.sh PREFIX
# ($DESTDIR is respected). The list is made anew, by installing into a scratch folder, so it does not
# matter which build installed it.
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=$(realpath -m "$1")
if [[ ! -f build/cmake_install.cmake ]]; then
    echo "uninstall: build/ is not there: run 'make' first, it lists the installed files" >&2
    exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
DESTDIR=$scratch cmake --install build --prefix "$prefix" >"$scratch/log" ||
    { cat "$scratch/log" >&2; exit 1; }
rm "$scratch/log"

cd "$scratch"
find . ! -type d -printf '%P\0' |
    while IFS= read -r -d '' file; do rm -fv "${DESTDIR:-}/$file"; done
# Folders that are Cleave's own, from the deepest on, if nothing else is in them.
find . -depth -type d -path '*cleave*' -printf '%P\0' |
    while IFS= read -r -d '' folder; do
        rmdir --ignore-fail-on-non-empty "${DESTDIR:-}/$folder" 2>/dev/null || true
    done
