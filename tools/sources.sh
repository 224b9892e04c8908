#!/usr/bin/env bash
# Lists every C source and header of the project, one per line:  tools/sources.sh [FOLDER ...]
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $# -eq 0 ]]; then
    set -- src include tests tools bench examples
fi
for folder in "$@"; do
    if [[ -d $folder ]]; then
        find "$folder" -type f \( -name '*.c' -o -name '*.h' \)
    fi
done | LC_ALL=C sort
