#!/usr/bin/env bash
# Fetches the JavaScript libraries that the report draws with into build-web, from Debian's packages:
#   chart.js (charts), d3 (scales, axes, zooming), dagre (graph layout)
# The packages are unpacked, not installed: as packages for Node two of them depend on some 260
# others, and all that is needed are three files. apt checks their signatures. Does nothing where the
# files are there. Without apt, or without a network, the build goes on without them.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build-web
#       name:package:file
wanted=(chart:libjs-chart.js:usr/share/javascript/chart.js/chart.min.js
        d3:node-d3:usr/share/nodejs/d3/dist/d3.min.js
        dagre:node-dagre-layout:usr/share/nodejs/dagre/dist/dagre.min.js)

missing=()
for entry in "${wanted[@]}"; do
    IFS=: read -r name package file <<<"$entry"
    [[ -s $folder/$name.min.js || -s /$file ]] || missing+=("$entry")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

skip() {
    echo "fetch-web: $*; 'cleave report' will not be able to write reports" >&2
    exit 0
}
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skip "this is not a Debian system"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for entry in "${missing[@]}"; do
    IFS=: read -r name package file <<<"$entry"
    echo "fetching: $package"
    # A machine without a network must not wait long for every build.
    (cd "$work" && apt-get -q -o Acquire::Retries=0 -o Acquire::http::Timeout=10 \
        -o Acquire::https::Timeout=10 download "$package") >"$work/log" 2>&1 ||
        skip "cannot fetch $package: $(tail -n 1 "$work/log")"
    dpkg-deb -x "$work"/"$package"_*.deb "$work/$name"
    [[ -s $work/$name/$file ]] || skip "$package has no $file"
    mkdir -p "$folder"
    cp "$work/$name/usr/share/doc/$package/copyright" "$folder/$name.copyright"
    cp "$work/$name/$file" "$folder/$name.min.js"
done
