#!/usr/bin/env bash
# Holds every relative link of README.md, the other pages of the root, and docs/ to a file that exists,
# and every anchor to a heading of that page.
#
#   tests/check_links.sh              this project, after a test of the check itself
#   tests/check_links.sh TREE         TREE/*.md and TREE/docs
#
# Prints FILE:LINE and the target of every broken link; exit 1 if there is one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# links PAGE: LINE TARGET of every link and image of the page, but for those in fenced blocks.
links() {
    awk '/^```/ { fenced = !fenced } !fenced {
        rest = $0
        while (match(rest, /\]\([^) ]+|^\[[^]]+\]: *[^ ]+|(src|href)="[^"]+/)) {
            target = substr(rest, RSTART, RLENGTH)
            sub(/^\]\(|^\[[^]]+\]: *|^(src|href)="/, "", target)
            print FNR, target
            rest = substr(rest, RSTART + RLENGTH)
        }
    }' "$1"
}

# anchors PAGE: the anchors of its headings, as GitHub makes them: lower case, without punctuation,
# hyphens for spaces, and a number behind those that were there before.
anchors() {
    sed -nE '/^```/,/^```/d; s/\]\([^)]*\)//g; s/^#{1,6} +(.*)$/\1/p' "$1" |
        tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9_ -]//g; s/ /-/g' |
        awk '{ print seen[$0] ? $0 "-" seen[$0] : $0; seen[$0]++ }'
}

check_tree() {
    local page line target file anchor broken=
    cd "$1"
    while IFS= read -r page; do
        while read -r line target; do
            [[ $target != *://* && $target != mailto:* ]] || continue
            file=${target%%#*} anchor=
            [[ $target != *'#'* ]] || anchor=${target#*#}
            if [[ -z $file ]]; then
                file=$page
            else
                file=$(dirname "$page")/$file
            fi
            # (grep without -q reads all, so that no writer ends by a closed pipe.)
            if [[ ! -e $file ]] ||
                { [[ -n $anchor ]] && ! anchors "$file" | grep -xF -e "$anchor" >/dev/null; }; then
                echo "$page:$line: broken link: $target"
                broken=yes
            fi
        done < <(links "$page")
    done < <(find . -maxdepth 1 -name '*.md' -printf '%P\n'; find docs -name '*.md' 2>/dev/null)
    [[ -z $broken ]]
}

# ---- the check must be able to fail --------------------------------------------------------------

expect() { # LINE of README.md, 'clean' or the target that is broken
    local output status=0
    printf '# One\n%s\n' "$1" >"$scratch/README.md"
    output=$(check_tree "$scratch" 2>&1) || status=$?
    if [[ $2 == clean ]]; then
        [[ $status -eq 0 && -z $output ]] && return
    elif [[ $status -eq 1 && $output == "README.md:2: broken link: $2" ]]; then
        return
    fi
    printf 'check_links: self-test "%s": expected %s, got exit %d and:\n%s\n' "$1" "$2" "$status" \
        "$output" >&2
    exit 1
}

self_test() {
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/cleave-links.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    mkdir "$scratch/docs"
    printf '# Page\n## What it does: `a b`, 2 x\n[up](../README.md#one)\n## Twice\n## Twice\n' \
        >"$scratch/docs/page.md"
    expect '[page](docs/page.md), ![picture](docs/page.md "title")' clean
    expect '[web](https://example.org/none), [mail](mailto:a@example.org)' clean
    expect '[a](#one) [b](docs/page.md#what-it-does-a-b-2-x) [c](docs/page.md#twice-1)' clean
    expect '[name]: docs' clean
    expect '[page](docs/pages.md)' docs/pages.md
    expect '[page](docs/page.md) and [none](none.md)' none.md
    expect '[page](docs/page.md#three)' 'docs/page.md#three'
    expect '[page](#two)' '#two'
    expect '[name]: none' none
    expect '<img src="docs/none.png">' docs/none.png
}

if [[ $# -eq 1 ]]; then
    (check_tree "$1")
else
    self_test
    (check_tree "$here/..")
fi
