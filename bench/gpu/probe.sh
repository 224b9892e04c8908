#!/usr/bin/env bash
# What cuDNN's engines offer to the training step of a convolutional network, and what copies between
# shares of one GPU cost:  bench/gpu/probe.sh [FOLDER]   (an NVIDIA GPU, nvcc, cuDNN 9)
# Writes FOLDER/engines.txt (a line for each engine configuration), FOLDER/best.txt and
# FOLDER/copies.txt.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-probe}
mkdir -p "$out"
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
nvcc -O2 -o "$built/cudnn_probe" "$here/cudnn_probe.c" -lcudnn -lcuda || exit 1
nvcc -O2 -arch=native -o "$built/share_copies" "$here/share_copies.cu" -lcuda || exit 1
"$built/share_copies" >"$out/copies.txt" 2>&1

# Goes on behind a configuration that hangs.
probe() {
    local from=0 line
    while true; do
        timeout 60 "$built/cudnn_probe" "$@" from="$from" >"$built/log" 2>&1
        local rc=$?
        sed -E "s|^(ERROR\|REFUSED)|$1 ${*:2}: \1|" "$built/log" >>"$out/engines.txt"
        [[ $rc == 9 ]] || break
        from=$(($(tail -n 1 "$built/log" | awk '{print $5}') + 1))
    done
    [[ $rc == 124 ]] && echo "$*: stopped after 60 s" >>"$out/engines.txt"
    return 0
}

forward="conv conv-bias-relu conv-bias-add-relu conv-stats scale-bias-relu-conv-stats"
backward="dgrad dgrad-add dgrad-drelu dgrad-drelu-bnweights wgrad wgrad-fp32 scale-bias-relu-wgrad"
norm="bn bn-relu bn-add-relu bn-backward drelu-bn-backward drelu-mask-bn-backward
    drelu-mask-fork-bn-backward scale-bias-add-relu"
: >"$out/engines.txt"
for graph in $forward $backward $norm; do
    for shape in "256 64 56 56 64 3 1" "256 256 14 14 256 3 1" "256 1024 14 14 256 1 1"; do
        probe "$graph" $shape
    done
done
# A first layer with its three channels, and rounded up to four and eight; strides; fp32.
for graph in conv wgrad; do
    for channels in 3 4 8; do
        probe $graph 256 $channels 224 224 64 7 2
    done
done
for graph in conv dgrad wgrad; do
    probe $graph 256 128 56 56 128 3 2
    probe $graph 256 256 14 14 256 3 1 type=fp32
done
for sm in 16 32; do
    for graph in conv conv-bias-relu conv-stats dgrad wgrad bn bn-add-relu bn-backward; do
        probe "$graph" 32 256 14 14 256 3 1 sm=$sm
        probe "$graph" 32 256 14 14 256 3 1 sm=$sm target=no
    done
done
cat "$out/copies.txt"
# The best configuration of each graph, shape and share: its captured time in microseconds.
awk '$1 !~ /#/ && $11 ~ /^[0-9.]+$/ { k = $1 " " $2 " " $3 " sm=" $4
         if (!(k in best) || $11 < best[k]) { best[k] = $11; line[k] = $6 " " $7 " " $8 " " $9 " " $11 }
         if (!(k in first)) first[k] = $11 }
     END { for (k in best) print k, "engine", line[k], "first", first[k] }' "$out/engines.txt" |
    sort | tee "$out/best.txt"
grep -E 'HANG|ERROR|REFUSED|stopped|none of' "$out/engines.txt" | sort | uniq
