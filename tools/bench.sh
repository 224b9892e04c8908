#!/usr/bin/env bash
# Runs the comparison with other programs, bench/run.sh, on the build that is there.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ! -f bench/run.sh ]]; then
    echo "bench: bench/run.sh is not there: this version has no benchmarks to run" >&2
    exit 1
fi
CLEAVE=$PWD/build/cleave exec bash bench/run.sh "$@"
