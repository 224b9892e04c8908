#!/usr/bin/env bash
# Lists what a run of ctest skipped, one "TEST: REASON" or "TEST, CASE: REASON" a line:
#   tools/list-skips.sh build/Testing/Temporary/LastTest.log
# A test that skips something prints "SKIP: REASON"; one that is skipped without it is listed, too.
set -euo pipefail

awk '
    /^[0-9]+\/[0-9]+ Test: / { test = $3; case_name = ""; said = 0 }
    /^\[ RUN      \] / { case_name = substr($0, 14); said = 0 }
    /^SKIP: / {
        print test (case_name == "" ? "" : ", " case_name) ": " substr($0, 7)
        said = 1
    }
    /^\[  SKIPPED \] / && substr($0, 14) == case_name && !said {
        print test ", " case_name ": no reason given"
        said = 1
    }
    /^\[==========\] .*run\.$/ { case_name = "" }
    /^Test Skipped/ && !said { print test ": no reason given" }
' "$1"
