#!/usr/bin/env bash
# Everything that must pass before a change goes in, with the time each phase takes:
#   gcc build, warnings are errors; all tests and checks (module edges, format)
#   clang build, warnings are errors; clang-tidy
#   the tests again under the address and undefined-behaviour sanitizers
#   a build without oneDNN, MPI and hwloc, and what it can do
#
#   tools/test.sh        seeded samples of the large matrices          (make test)
#   tools/test.sh all    the gcc build runs the large matrices whole; writes docs/test-all.md
#                        (make test-all)
#
# All phases run even if an earlier one failed. The end says which failed, and lists every skip with
# its test and reason. With CI=true a skip that no line of tests/expected_skips.txt allows is a failure.
set -uo pipefail
cd "$(dirname "$0")/.."

jobs=${JOBS:-2}
whole=no
[[ ${1:-} == all ]] && whole=yes
failed=()
summary=() # name, seconds and result of each phase
counts=()  # what ctest counted in each folder
skipped=() # folder: test, case: reason
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

# run_tests FOLDER OPTIONS...: its tests, and the list of skipped ones.
run_tests() {
    local status=0
    ctest --test-dir "$1" --output-on-failure --no-tests=error -j "$jobs" "${@:2}" | tee "$log" ||
        status=$?
    counts+=("$1: $(sed -n 's/^\([0-9]*% tests passed.*\)$/\1/p' "$log")")
    mapfile -t -O ${#skipped[@]} skipped < \
        <(tools/list-skips.sh "$1/Testing/Temporary/LastTest.log" | sed "s|^|$1: |")
    return $status
}

run_plain() {
    CLEAVE=build-plain/cleave CLEAVE_SOURCE=$PWD tests/in_temp_folder.sh tests/plain_build.sh
}

# Prints the skips that no line of tests/expected_skips.txt allows.
unexpected_skips() {
    local skip pattern expected
    for skip in "${skipped[@]}"; do
        expected=no
        while read -r pattern; do
            # shellcheck disable=SC2053 # the line is a pattern
            [[ -n $pattern && $pattern != '#'* && $skip == $pattern ]] && expected=yes
        done <tests/expected_skips.txt
        [[ $expected == yes ]] || printf '    %s\n' "$skip"
    done
}

write_record() {
    local commit line
    commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
    git diff --quiet HEAD 2>/dev/null || commit+=', with changes'
    {
        printf '# The last run of all tests\n\nWritten by `make test-all`, see testing.md.\n\n'
        printf '| | |\n|---|---|\n| date | %s |\n| commit | %s |\n| processor | %s, %s cores |\n' \
            "$(date -u +%Y-%m-%d)" "$commit" \
            "$(sed -n 's/^model name[ \t]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
        for line in "${counts[@]}"; do
            printf '| tests of %s | %s |\n' "${line%%: *}" "${line#*: }"
        done
        printf '\n| phase | seconds | result |\n|---|---|---|\n'
        printf '%s\n' "${summary[@]}" | sed -E 's/^(.*[^ ]) +([0-9]+) s  (.*)$/| \1 | \2 | \3 |/'
        if [[ ${#skipped[@]} -gt 0 ]]; then
            printf '\nSkipped:\n\n'
            printf -- '- %s\n' "${skipped[@]}"
        fi
    } >docs/test-all.md
}

# The default compiler is gcc on Debian. Naming it here would make CMake start a folder over that
# 'make' has configured.
selection=()
[[ $whole == yes ]] && selection=(-C all -LE sampled)
phase 'gcc build' tools/build.sh build -DCLEAVE_TESTS=ON -DCLEAVE_WERROR=ON &&
    phase 'tests' run_tests build "${selection[@]}"
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
    printf '\nskipped:\n'
    printf '    %s\n' "${skipped[@]}"
fi
if [[ ${CI:-} == true ]]; then
    unexpected=$(unexpected_skips)
    if [[ -n $unexpected ]]; then
        printf '\nskipped, but not expected by tests/expected_skips.txt:\n%s\n' "$unexpected"
        failed+=('skips')
    fi
fi
[[ $whole == yes ]] && write_record
if [[ ${#failed[@]} -gt 0 ]]; then
    printf '\nFAILED: %s\n' "${failed[@]}"
    exit 1
fi
printf '\nall passed in %d s\n' "$SECONDS"
