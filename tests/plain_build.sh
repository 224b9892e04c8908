# A build without oneDNN, MPI and hwloc, which tools/test.sh makes: workers are threads that run plain C
# where the system puts them, and requests for the missing parts are refused with a reason.
source "$CLEAVE_SOURCE/tests/expect.sh"

small=(train lenet5 --data synthetic:1x28x28/10/64 --batch 16 --steps 3 --no-eval)
run 0 "${small[@]}" --workers 2 --plan data --json
holds '[e["event"] for e in d] == ["step"] * 3 + ["done"] and d[3]["workers"] == 2'
says stderr "backend reference"
cp stdout two
run 0 "${small[@]}" --json
holds 'all(abs(a["loss"] - b["loss"]) < 1e-4 for a, b in zip(d[:3], map(json.loads, open("two"))))'
run 0 plan lenet5 --data mnist --machine 1x4:p100 --json
holds 'd["best"] and d["workers"] == 4'
run 0 machine --json
holds 'd["nodes"][0]["memory_bytes"] > 0 and len(d["nodes"][0]["devices"]) >= 1'

refused 2 "unknown backend 'cpu'" "${small[@]}" --backend cpu
refused 2 "this build has no hwloc" machine --machine "synthetic:core:2 pu:1"
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 run 2 "${small[@]}"
says stderr "this build has no MPI"
