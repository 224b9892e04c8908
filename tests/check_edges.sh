#!/usr/bin/env bash
# Holds the edges between the rooms of src/ to tests/edges.txt (its head says what it holds).
#
#   tests/check_edges.sh              this project, after a test of the check itself
#   tests/check_edges.sh TREE EDGES   TREE/src and TREE/include against the file EDGES
#
# Prints FILE:LINE and the reason for every violation; exit 1 if there is one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

check_tree() {
    local tree=$1 edges
    edges=$(realpath "$2")
    (
        cd "$tree"
        for folder in src include; do
            if [[ -d $folder ]]; then
                find "$folder" -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' \)
            fi
        done | LC_ALL=C sort | awk -v edges="$edges" -f "$here/check_edges.awk"
    )
}

# ---- the check must be able to fail --------------------------------------------------------------
scratch=
make_tree() { # FILE "LINE" ...: a tree where each FILE holds LINE
    rm -rf "$scratch/tree"
    mkdir -p "$scratch/tree"
    while [[ $# -gt 0 ]]; do
        mkdir -p "$scratch/tree/$(dirname "$1")"
        printf '/* one */\n%s\n' "$2" >"$scratch/tree/$1"
        shift 2
    done
}

expect() { # WHAT 'clean' or a part of the expected message
    local output status=0
    output=$(check_tree "$scratch/tree" "$scratch/edges" 2>&1) || status=$?
    if [[ $2 == clean ]]; then
        [[ $status -eq 0 ]] && return
    elif [[ $status -eq 1 && $output == *"$2"* ]]; then
        return
    fi
    printf 'check_edges: self-test "%s": expected %s, got exit %d and:\n%s\n' "$1" "$2" "$status" \
        "$output" >&2
    exit 1
}

self_test() {
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/cleave-edges.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    printf '%s\n' 'base:' 'model: base' 'engine: base' 'engine/fast: base engine' \
        'engine/list.c: engine engine/fast' 'plan: base engine/engine.h' 'cli: *' \
        'vendor engine/fast: vendor/ omp.h' 'system: stdio.h sys/' >"$scratch/edges"
    local sound=(src/base/b.h '#include <stdio.h>' src/model/nets/m.c '#include "base/b.h"'
                 src/engine/engine.h '#include <sys/stat.h>' src/engine/e.h ''
                 src/engine/fast/f.c '#  include <vendor/x.h>'
                 src/engine/fast/f.h '#include "engine/e.h"'
                 src/engine/list.c '#include "engine/fast/f.h"'
                 src/plan/p.h '#include "engine/engine.h"' src/cli/main.c '#include "plan/p.h"')
    make_tree "${sound[@]}"
    expect 'sound tree' clean
    make_tree "${sound[@]}" src/base/bad.c '#include "model/m.h"' src/model/m.h ''
    expect 'forbidden edge' 'src/base/bad.c:2: base may not include model'
    make_tree "${sound[@]}" src/plan/bad.c '#include "engine/e.h"'
    expect 'one header only' 'src/plan/bad.c:2: plan may not include engine/e.h'
    make_tree "${sound[@]}" src/engine/bad.c '#include <vendor/x.h>'
    expect 'vendor header elsewhere' 'src/engine/bad.c:2: engine may not include <vendor/x.h>'
    make_tree "${sound[@]}" src/cli/bad.c '#include "omp.h"'
    expect 'vendor header in quotes' 'src/cli/bad.c:2: cli may not include "omp.h"'
    make_tree "${sound[@]}" src/engine/bad.c '#include "engine/fast/f.h"'
    expect 'more than the one file' 'src/engine/bad.c:2: engine may not include engine/fast'
    make_tree "${sound[@]}" src/cli/bad.c '#include "../base/b.h"'
    expect 'path with dots' 'src/cli/bad.c:2:'
    make_tree "${sound[@]}" src/attic/a.c ''
    expect 'room not listed' 'src/attic/a.c: room attic is not listed'
    make_tree "${sound[@]}" src/engine/slow/s.c ''
    expect 'sub-room not listed' 'src/engine/slow/s.c: room engine/slow is not listed'
    make_tree "${sound[@]}" src/stray.c ''
    expect 'file outside the rooms' 'src/stray.c: not in a room'
    make_tree "${sound[@]}" src/base/bad.h '#include "cli/c.h"' \
        src/cli/c.h '#include "base/b.h"'
    sed -i 's/^base:$/base: cli/' "$scratch/edges"
    expect 'circle in fact' 'the includes form a circle'
    make_tree src/base/b.h ''
    expect 'circle in the file' 'the allowed edges form a circle'
    make_tree README ''
    expect 'empty tree' 'no sources'
}

# A file that stands in for one with hwloc has the functions that the other one has.
functions_of() {
    sed -nE '/^(static|typedef)/!s/^[a-z][a-z0-9_ ]*[ *]([a-z0-9_]+)\(.*/\1/p' "$1" | LC_ALL=C sort
}
check_stand_in() { # FILE STAND-IN
    [[ -n $(functions_of "$1") ]] || { echo "$1: has no functions" >&2 && exit 1; }
    diff <(functions_of "$1") <(functions_of "$2") || {
        echo "$2: has others than $1 (<): without hwloc nothing links" >&2
        exit 1
    }
}

if [[ $# -eq 2 ]]; then
    check_tree "$1" "$2"
else
    self_test
    check_tree "$here/.." "$here/edges.txt"
    check_stand_in "$here/../src/runtime/pin.c" "$here/../src/runtime/pin_none.c"
    check_stand_in "$here/../src/machine/discover.c" "$here/../src/machine/discover_none.c"
fi
