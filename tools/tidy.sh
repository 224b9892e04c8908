#!/usr/bin/env bash
# clang-tidy over the sources that a clang build compiled:  tools/tidy.sh BUILD_FOLDER [FILE ...]
# Settings: .clang-tidy. Prints only its finds.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$1
shift
if [[ ! -f $folder/compile_commands.json ]]; then
    echo "tidy: $folder is not a configured build folder" >&2
    exit 2
fi
if [[ $# -eq 0 ]]; then
    mapfile -t files < <(tools/sources.sh src | grep '\.c$' |
        while read -r file; do
            if grep -qF "/$file\"" "$folder/compile_commands.json"; then echo "$file"; fi
        done)
    set -- "${files[@]}"
fi

# One file; the facts of tools/analyzer.h are for every file but the one that defines them.
tidy_file() {
    local facts=(--extra-arg=-include "--extra-arg=$PWD/tools/analyzer.h") output
    if [[ $2 == */base/status.c ]]; then
        facts=()
    fi
    if ! output=$(clang-tidy --quiet -p "$1" "${facts[@]}" "$2" 2>&1); then
        grep -v 'warnings\? generated' <<<"$output"
        return 1
    fi
}
export -f tidy_file
printf '%s\0' "$@" |
    xargs -0 -P "${JOBS:-2}" -I '{}' bash -c 'tidy_file "$1" "$2"' tidy "$folder" '{}'
