#!/usr/bin/env bash
# Runs a script inside a new, empty folder (also in $TEST_FOLDER), which is removed afterwards:
#   CLEAVE=./build/cleave tests/in_temp_folder.sh tests/cli_train.sh
# Costs that a test measures, beside other tests or sanitized, go there, too: the user's own profile
# would keep them for good.
set -euo pipefail

script=$(realpath "$1")
CLEAVE=$(realpath "$CLEAVE")
TEST_FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/cleave-test.XXXXXX")
CLEAVE_PROFILE=$TEST_FOLDER/profile.db
export CLEAVE TEST_FOLDER CLEAVE_PROFILE
# A test may leave read-only folders behind.
trap 'cd / && chmod -R u+rwX "$TEST_FOLDER" && rm -rf "$TEST_FOLDER"' EXIT
cd "$TEST_FOLDER"
bash -euo pipefail "$script"
