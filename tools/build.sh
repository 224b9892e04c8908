#!/usr/bin/env bash
# Configures (where needed) and builds:  tools/build.sh FOLDER [CMAKE OPTION ...]
# Options given are applied even if the folder is configured already.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$1
shift

if ! command -v cmake >/dev/null; then
    echo "cmake is missing: run 'make deps' first, it installs what the build needs" >&2
    exit 1
fi
# A configured folder keeps its generator; a new one gets Ninja where it is installed.
generator=()
if [[ ! -e $folder/CMakeCache.txt ]] && command -v ninja >/dev/null; then
    generator=(-G Ninja)
fi
if [[ $# -gt 0 || ! (-e $folder/build.ninja || -e $folder/Makefile) ]]; then
    cmake -S . -B "$folder" "${generator[@]}" "$@"
fi
cmake --build "$folder" --parallel "${JOBS:-2}"
