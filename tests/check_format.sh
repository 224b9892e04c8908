#!/usr/bin/env bash
# Every C source is as clang-format (.clang-format) would write it; 'make format' makes it so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v clang-format >/dev/null; then
    echo "check_format: clang-format is missing ('make test' installs it)" >&2
    exit 1
fi

mapfile -t sources < <(tools/sources.sh)
if [[ ${#sources[@]} -lt 100 ]]; then # of no file at all clang-format would find nothing
    echo "check_format: tools/sources.sh lists ${#sources[@]} sources" >&2
    exit 1
fi
if ! clang-format --dry-run -Werror "${sources[@]}" 2>&1 | { ! grep -A 2 'error:'; }; then
    echo "not in the house format: run 'make format'" >&2
    exit 1
fi
