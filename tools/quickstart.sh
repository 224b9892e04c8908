#!/usr/bin/env bash
# What there is to see after the first build: a network, and its training on real data.
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

show ./build/cleave show lenet5 --data fashion-mnist
show ./build/cleave train lenet5 --data fashion-mnist --epochs 2

cat <<'END'

Next:
  ./build/cleave --help                                       every command, with examples
  ./build/cleave train resnet18 --data fashion-mnist          a larger network
  ./build/cleave bench layers resnet18 --data synthetic:imagenet
                                                              where the time of a step goes
  make test                                                   all tests
  README.md, ARCHITECTURE.md                                  how to use it, how it is made
END
