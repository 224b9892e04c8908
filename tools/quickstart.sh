#!/usr/bin/env bash
# What there is to see after the first build: the machine, which way to train two networks on it, one
# of them trained that way on real data, and a report of it all.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ! -x build/cleave ]]; then
    echo "quickstart: build/cleave is not there: run 'make' first" >&2
    exit 1
fi

show() {
    printf '\n$ %s\n' "$*"
    "$@"
}

# Costs that were measured while the machine was busy would be compared with those of now.
export CLEAVE_PROFILE=build/quickstart.db
run=runs/quickstart
rm -rf "$run" "$CLEAVE_PROFILE"*

show ./build/cleave machine
show ./build/cleave show lenet5 --data fashion-mnist
show ./build/cleave plan resnet18 --data fashion-mnist --batch 64 --limit 30
show ./build/cleave plan lenet5 --data fashion-mnist
show ./build/cleave train lenet5 --data fashion-mnist --plan auto --epochs 2 --run "$run"
# What more hosts like this one would bring; the report finds it in the record.
limits=(bench limits lenet5 --data fashion-mnist --batch 128 --machine local --workers 1,2,4,8,16,32,64 --json)
printf '\n$ ./build/cleave %s >%s\n' "${limits[*]}" "$run/limits.json"
./build/cleave "${limits[@]}" >"$run/limits.json"
if show ./build/cleave report "$run" -o report.html; then
    printf '\nOpen file://%s/report.html in a browser: candidates, the network and its cuts, memory,\n' "$PWD"
    printf 'and the timeline of all workers, predicted above measured.\n'
fi

cat <<'END'

Next:
  ./build/cleave --help                                       every command, with examples
  ./build/cleave plan vgg16 --data imagenet --batch 512 --machine 4x4:p100
                                                              a machine that is not here
  ./build/cleave bench layers resnet18 --data synthetic:imagenet
                                                              where the time of a step goes
  make test                                                   all tests
  README.md, ARCHITECTURE.md                                  how to use it, how it is made
END
