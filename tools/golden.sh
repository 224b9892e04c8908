#!/usr/bin/env bash
# Writes tests/golden and docs/mistakes.md anew: what the program prints now. Look at `git diff`
# before you keep it.
set -euo pipefail
cd "$(dirname "$0")/.."

export CLEAVE=${CLEAVE:-build/cleave} GOLDEN=write
CLEAVE_SOURCE=$PWD
export CLEAVE_SOURCE
for name in cli_golden cli_mistakes; do
    bash tests/in_temp_folder.sh "tests/$name.sh"
done
git status --short tests/golden docs/mistakes.md
