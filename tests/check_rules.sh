#!/usr/bin/env bash
# Holds the sources to those rules of ARCHITECTURE.md ("Rules that hold the house together") that a
# search can see; check_edges.sh holds the includes.
#
#   tests/check_rules.sh              this project, after a test of the check itself
#   tests/check_rules.sh TREE         TREE/src
#
# Prints FILE:LINE and the line for every violation; exit 1 if there is one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# finds WHAT PATTERN EXCEPT PATH...: complains of lines that match, but for those that match EXCEPT as
# FILE:LINE:TEXT; "-": none.
broken=
finds() {
    local what=$1 pattern=$2 except=$3 found
    shift 3
    found=$(grep -rnE --include='*.[ch]' --include='*.inc' -e "$pattern" "$@" |
        { [[ $except == - ]] && cat || grep -vE -e "$except"; } || true)
    if [[ -n $found ]]; then
        printf '%s:\n%s\n' "$what" "$found"
        broken=yes
    fi
}

check_tree() {
    local kinds
    cd "$1"
    broken=
    kinds=$(sed -n '/^enum op_kind {/,/^};/s/^ *\(OP_[A-Z0-9_]*\).*/\1/p' src/model/op.h | paste -sd '|')
    [[ $kinds == OP_INPUT\|* ]] || { echo "src/model/op.h: the kinds of ops are not found"; return 1; }

    # (An include guard asks for nothing.)
    finds 'only the registries ask what was built' \
        '^[ \t]*#[ \t]*(if|ifdef|ifndef|elif)\b.*(HAVE_|DNNL|OPENMP|MPI|HWLOC|CUDA)' \
        '^src/(backend|comm)/registry\.c:|:#ifndef CLEAVE_[A-Z0-9_]*_H$' src
    finds 'no switch over kinds of ops: a table has a row for each' "\\bcase ($kinds):" - src
    # (The process that guards a worker ends as the worker did, and a worker that hangs cannot leave.)
    finds 'a program ends by leaving main' \
        '(^|[^A-Za-z0-9_>.])(exit|_exit|_Exit|quick_exit|abort)[ \t]*\(' '^src/runtime/guard\.c:' src
    local room rooms=()
    for room in src/program src/clock src/backend src/comm src/runtime/executor* src/runtime/crew*; do
        [[ ! -e $room ]] || rooms+=("$room")
    done
    finds 'nothing behind a plan knows a strategy' 'plan_(build|strategies)\(|strcmp\(.*plan->name' \
        - "${rooms[@]}"
    # (A copy's cost depends on the blocks of its layouts; a flattened tensor is an image's.)
    rooms=()
    for room in src/*; do
        [[ $room =~ ^src/(base|model|backend|data)$ ]] || rooms+=("$room")
    done
    finds 'the batch, channels and rows are found by their use, not by a number' \
        '\b(dim|axis|loop|range)\[[0-9]\]|[.>]loop [!=]= 0' \
        '^src/(program/work|verify/contents)\.c:' "${rooms[@]}"
    [[ -z $broken ]]
}

# ---- the check must be able to fail --------------------------------------------------------------

expect() { # FILE LINE 'clean' or the beginning of the message
    local output status=0
    rm -rf "$scratch/src"
    mkdir -p "$scratch/src/model" "$scratch/src/program" "$(dirname "$scratch/$1")"
    printf 'enum op_kind {\n    OP_INPUT, /* images */\n    OP_CONV2D,\n    OP_KIND_COUNT\n};\n' \
        >"$scratch/src/model/op.h"
    printf '/* one */\n%s\n' "$2" >"$scratch/$1"
    output=$(check_tree "$scratch" 2>&1) || status=$?
    if [[ $3 == clean ]]; then
        [[ $status -eq 0 && -z $output ]] && return
    elif [[ $status -eq 1 && $output == "$3:"$'\n'"$1:2:"* ]]; then
        return
    fi
    printf 'check_rules: self-test "%s" in %s: expected %s, got exit %d and:\n%s\n' "$2" "$1" "$3" \
        "$status" "$output" >&2
    exit 1
}

self_test() {
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/cleave-rules.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    local built='only the registries ask what was built'
    expect src/base/a.c 'int x;' clean
    expect src/comm/mpi/a.h '#ifndef CLEAVE_COMM_MPI_A_H' clean
    expect src/comm/registry.c '#ifdef CLEAVE_HAVE_MPI' clean
    expect src/runtime/a.c '#ifdef CLEAVE_HAVE_MPI' "$built"
    expect src/cli/a.c '#  if defined(_OPENMP)' "$built"
    expect src/comm/mpi/a.c '    case OP_TRANSFER:' clean
    expect src/program/a.c '    case OP_CONV2D:' 'no switch over kinds of ops: a table has a row for each'
    expect src/comm/a.c 'end->table->abort(end, st, text);' clean
    expect src/comm/a.c 'mpi_abort(c);' clean
    expect src/runtime/guard.c '    _exit(code);' clean
    expect src/cli/a.c '    exit(1);' 'a program ends by leaving main'
    expect src/base/a.c 'if (!p) abort();' 'a program ends by leaving main'
    expect src/runtime/trainer.c 'plan_build("data", g, &r, &p);' clean
    local knows='nothing behind a plan knows a strategy'
    expect src/runtime/executor.c 'plan_build("data", g, &r, &p);' "$knows"
    expect src/program/a.c 'if (!strcmp(p->plan->name, "data"))' "$knows"
    expect src/program/a.c 'print(p->plan->name);' clean
    local by_number='the batch, channels and rows are found by their use, not by a number'
    expect src/plan/a.c 'n = op->output.dim[0];' "$by_number"
    expect src/search/a.c 'if (c.cut[0].loop == 0)' "$by_number"
    expect src/program/a.c 'n = op->output.dim[axes_find(&op->output_axes, USE_BATCH)];' clean
    expect src/backend/cpu/a.c 'n = op->output.dim[0];' clean
}

if [[ $# -eq 1 ]]; then
    (check_tree "$1")
else
    self_test
    (check_tree "$here/..")
fi
