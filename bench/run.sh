#!/usr/bin/env bash
# Every benchmark, one after the other, on an otherwise idle machine. Arguments go to the comparison
# with PyTorch (bench/peers/run.py --help).
#   CLEAVE  the built program; default build/cleave
set -euo pipefail
cd "$(dirname "$0")/.."
cleave=${CLEAVE:-build/cleave}
folder=$(dirname "$cleave")

echo "== training steps, in turns with PyTorch"
/usr/bin/python3 bench/peers/run.py --cleave "$cleave" "$@"
echo
echo "== layers of AlexNet as the batch shrinks"
"$cleave" bench layers alexnet --batch 4,8,16,32
echo
echo "== a product of b x 4096 and 4096 x 9192 as b shrinks"
"$cleave" bench gemm
echo
echo "== image files one by one, and packed"
"$folder"/bench/data_pack
