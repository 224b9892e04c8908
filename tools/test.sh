#!/usr/bin/env bash
# Everything that must pass before a change goes in, with the time each phase takes:
#   gcc build, warnings are errors; all tests and checks (module edges, format)
#   clang build, warnings are errors; clang-tidy
#   the tests again under the address and undefined-behaviour sanitizers
#   a build without oneDNN, MPI and hwloc, and what it can do
# All phases run even if an earlier one failed; the end says which, and which tests were skipped.
set -uo pipefail
cd "$(dirname "$0")/.."

jobs=${JOBS:-2}
failed=()
summary=()
skipped=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

phase() {
    local name=$1 start=$SECONDS result=ok
    shift
    printf '\n== %s\n' "$name"
    if ! "$@"; then
        result=FAILED
        failed+=("$name")
    fi
    summary+=("$(printf '%-28s %5d s  %s' "$name" $((SECONDS - start)) "$result")")
    [[ $result == ok ]]
}

run_tests() {
    local status=0
    ctest --test-dir "$1" --output-on-failure --no-tests=error -j "$jobs" "${@:2}" | tee "$log" ||
        status=$?
    mapfile -t -O ${#skipped[@]} skipped < <(sed -nE "s|^\t *[0-9]+ - (.*) \(Skipped\).*|$1: \1|p" "$log")
    return $status
}

run_plain() {
    CLEAVE=build-plain/cleave CLEAVE_SOURCE=$PWD tests/in_temp_folder.sh tests/plain_build.sh
}

# The default compiler is gcc on Debian. Naming it here would make CMake start a folder over that
# 'make' has configured.
phase 'gcc build' tools/build.sh build -DCLEAVE_TESTS=ON -DCLEAVE_WERROR=ON &&
    phase 'tests' run_tests build
phase 'clang build' tools/build.sh build-clang -DCMAKE_C_COMPILER=clang -DCLEAVE_TESTS=ON \
    -DCLEAVE_WERROR=ON &&
    phase 'clang-tidy' tools/tidy.sh build-clang
phase 'sanitizer build' tools/build.sh build-asan -DCLEAVE_TESTS=ON \
    -DCLEAVE_SANITIZE=address,undefined &&
    phase 'tests under sanitizers' run_tests build-asan -LE check
phase 'plain build' tools/build.sh build-plain -DCLEAVE_TESTS=OFF -DCLEAVE_WERROR=ON \
    -DCLEAVE_WITH_ONEDNN=OFF -DCLEAVE_WITH_MPI=OFF -DCLEAVE_WITH_HWLOC=OFF &&
    phase 'plain program' run_plain

printf '\n'
printf '%s\n' "${summary[@]}"
if [[ ${#skipped[@]} -gt 0 ]]; then
    printf '\nskipped (Testing/Temporary/LastTest.log of the folder says why):\n'
    printf '    %s\n' "${skipped[@]}"
fi
if [[ ${#failed[@]} -gt 0 ]]; then
    printf '\nFAILED: %s\n' "${failed[@]}"
    exit 1
fi
printf '\nall passed in %d s\n' "$SECONDS"
