# The benchmarks run, and their figures agree with each other.
source "$CLEAVE_SOURCE/tests/expect.sh"

run 0 bench gemm --in 64 --out 48 --batch 4,2,1 --repeat 2 --json
holds '[r["batch"] for r in d["rows"]] == [4, 2, 1] and [r["ideal"] for r in d["rows"]] == [1, 2, 4]'
holds 'all(abs(r["flops_per_s"] * r["median_s"] / (2 * 64 * 48 * r["batch"]) - 1) < 1e-3
           for r in d["rows"])'
run 0 bench gemm --in 64 --out 48 --batch 4,1 --repeat 2 --csv gemm.csv
[[ ! -s stdout && $(wc -l <gemm.csv) -eq 3 ]] || fail "bench gemm --csv"
run 0 bench gemm --in 64 --out 48 --batch 4,1 --repeat 2
says stdout "speed-up"
refused 1 "/nonexistent/gemm.csv" bench gemm --in 8 --out 8 --batch 1 --csv /nonexistent/gemm.csv

run 0 bench layers lenet5 --data mnist --batch 4,1 --repeat 2 --json
holds '[b["batch"] for b in d["batches"]] == [4, 1] and d["batches"][1]["ideal_speedup"] == 4'
holds 'd["peak_flops_per_s"] > 0'
holds '{"conv1", "fc3"} <= {l["name"] for l in d["batches"][0]["layers"]}'
# the work of a batch is four times that of one image; the first layer has no data gradient
holds 'all(a["forward_flops"] == 4 * b["forward_flops"]
           for a, b in zip(d["batches"][0]["layers"], d["batches"][1]["layers"]))'
holds 'd["batches"][0]["layers"][0]["backward_data_flops"] == 0'
holds 'all(abs(sum(t["share_of_step"] for t in b["types"]) - 1) < 1e-6 for b in d["batches"])'
holds 'all(abs(sum(t["seconds"] for t in b["types"] if t["type"] != "load") / sum(l["forward_s"] +
           l["backward_data_s"] + l["backward_weights_s"] + l["update_s"] for l in b["layers"]) - 1)
           < 1e-6 for b in d["batches"])'
holds '{"conv2d", "linear", "update"} <= {t["type"] for t in d["batches"][0]["types"]}'
run 0 bench layers lenet5 --data mnist --batch 2,1 --repeat 1 --csv -
[[ $(grep -c '^layer,2,' stdout) -gt 5 && $(grep -c '^type,1,conv2d,' stdout) -eq 1 ]] ||
    fail "bench layers --csv"
run 0 bench layers lenet5 --data mnist --batch 2,1 --repeat 1
says stdout "Speed-up from shrinking"
python3 -c 'import sys; sys.exit(any(len(l) > 81 for l in open("stdout", encoding="utf-8")
            if " for " not in l))' || fail "bench layers: wider than 80 columns"
# as many sizes as there may be
run 0 bench layers mlp --data mnist --batch 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 --repeat 1
says stdout "Speed-up from shrinking"

run 0 bench step lenet5 --data synthetic:1x28x28/10 --batch 4 --steps 3 --json
holds 'd["steps"] == 3 and 0 < d["least_step_s"] <= d["median_step_s"] and d["floor_s"] is None'
run 0 bench step lenet5 --data mnist --batch 4 --steps 3
says stdout "median step"

printf '3\n1\n' | "$CLEAVE" bench step lenet5 --data mnist --batch 4 --interactive >stdout 2>stderr ||
    fail "bench step --interactive"
holds 'd[0]["event"] == "ready" and d[0]["memory_bytes"] > 0 and "floor_s" in d[0] and d[0]["device"]'
holds 'len(d) == 3 and len(d[1]["steps_s"]) == 3 and len(d[2]["steps_s"]) == 1 and d[2]["loss"] > 0'
status=0
echo many | "$CLEAVE" bench step lenet5 --data mnist --batch 4 --interactive >stdout 2>stderr || status=$?
[[ $status -eq 2 ]] || fail "a word in place of a number: exit $status"

run 0 bench search --cases lenet5:2,alexnet:4 --rounds 1 --json
holds '[(c["model"], c["workers"]) for c in d["cases"]] == [("lenet5", 2), ("alexnet", 4)]'
holds 'all(0 < c["pricing_s"] <= c["search_s"] <= c["with_pipelines_s"] and c["optimal"] for c in d["cases"])'
holds 'd["cases"][0]["bar_s"] is None and d["cases"][1]["bar_s"] == 0.005 and d["cases"][1]["pipelines"] > 0'
run 0 bench search --cases lenet5:4 --rounds 1 --no-pipelines
says stdout "lenet5"
refused 2 "must be MODEL:WORKERS" bench search --cases lenet5
refused 2 "did you mean 'alexnet'?" bench search --cases alexnt:4
