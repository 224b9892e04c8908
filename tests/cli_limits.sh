# How far a plan scales: the shape of the JSON, relations that hold on any machine, mistakes, and the
# published figures that must hold.
source "$CLEAVE_SOURCE/tests/expect.sh"

limits() {
    run 0 bench limits "$@" --json
}

# Parts add up; free communication is never slower; computing shrinks with the workers.
sound() {
    holds 'all(abs(p["compute_s"] + p["exposed_s"] + p["wait_s"] - p["step_s"]) < 1e-6 * p["step_s"]
               and p["free_step_s"] <= p["step_s"] * (1 + 1e-9)
               and abs(p["speedup"] / p["workers"] - p["efficiency"]) < 1e-6
               and p["speedup"] <= p["free_speedup"] * (1 + 1e-6)
               and abs(sum(p["types"].values()) / p["compute_s"] - 1) < 1e-6
               for c in (d["fixed"], d["growing"]) for p in c["points"])'
    holds 'all(b["compute_s"] < a["compute_s"]
               for a, b in zip(d["fixed"]["points"], d["fixed"]["points"][1:]))'
    holds 'all(p["batch"] == d["fixed"]["batch"] for p in d["fixed"]["points"])'
    holds 'all(p["batch"] == d["growing"]["batch"] * p["workers"] for p in d["growing"]["points"])'
    holds 'd["fixed"]["points"][0]["speedup"] == 1 and d["fixed"]["points"][0]["bytes_moved"] == 0'
}

# a slow network: communication overtakes, and more workers are not worth it
limits alexnet --machine 16x1:p100,inter=1Gbit/s --workers 1,2,4,8,16 --batch 256
sound
holds '[p["workers"] for p in d["fixed"]["points"]] == [1, 2, 4, 8, 16]'
holds '1 < d["fixed"]["communication_overtakes"] <= d["fixed"]["exposed_overtakes"] < 2'
holds 'd["fixed"]["worth_workers"] == 1 and d["growing"]["worth_workers"] == 1'
holds 'd["fixed"]["ended"] is None and d["growing"]["points"][4]["bytes_moved"] > 0'
# updates do not shrink: they are serial to the last bit, and Amdahl says what that allows
holds '[abs(t["serial_s"] / t["one_s"] - 1) < 1e-6 for t in d["types"] if t["type"] == "update"] == [True]'
holds '0 < d["amdahl"]["serial_share"] < 1'
holds 'abs(d["amdahl"]["limit"] * d["amdahl"]["serial_share"] - 1) < 1e-6'
holds 'all(p["amdahl_speedup"] < d["amdahl"]["limit"] for p in d["fixed"]["points"])'
holds 'abs(d["fixed"]["points"][4]["amdahl_speedup"] / (d["fixed"]["points"][0]["compute_s"]
           / d["fixed"]["points"][4]["compute_s"]) - 1) < 1e-3'

# a fast one: it never does, and the growing batch scales to the end
limits vgg16 --machine 1x16:h100 --workers 4,16,2 --batch 512 --batch-per-worker 64
sound
holds '[p["workers"] for p in d["growing"]["points"]] == [1, 2, 4, 16]'
holds 'd["growing"]["communication_overtakes"] is None and d["growing"]["worth_workers"] == 16'
holds 'd["growing"]["points"][3]["efficiency"] > 0.9'

# many workers; more than images; a pipeline; a plan that does not fit
limits lenet5 --data synthetic:mnist --workers 1,64,1024 --batch 100
holds 'len(d["fixed"]["points"]) == 2 and "1024 workers" in d["fixed"]["ended"]'
holds 'len(d["growing"]["points"]) == 3'
limits vgg16 --machine 1x8:gtx1080 --plan gpipe --workers 2,4 --batch 64
sound
holds 'all(p["wait_s"] > 0 for p in d["fixed"]["points"][1:])'
limits vgg16 --machine 1x8:gtx1080 --workers 8 --batch 512
holds '[p["fits"] for p in d["fixed"]["points"]] == [False, True]'

# a calibrated device is as fast as it is said to be
limits alexnet --machine 1x2:p100 --workers 2 --batch-per-worker 32 --calibrate 745
holds 'abs(d["growing"]["points"][0]["images_per_s"] - 745) < 0.01'
run 0 bench limits --help
says stdout "images in a step at that speed [--batch-per-worker]"
! grep -q "A plan is a file" stdout || fail "a file, which --plan refuses"

run 0 bench limits googlenet --machine keuper --workers 1,4,128 --batch 64
says stdout "It ends there"
says stdout "Worth paying for"
says stdout "does not shrink"
python3 -c 'import sys; sys.exit(any(len(l.rstrip("\n")) > 80 for l in open("stdout", encoding="utf-8")
            if "ends there" not in l))' || fail "bench limits: wider than 80 columns"

# this host, many times over, with what a step takes here
CLEAVE_PROFILE=limits.db limits lenet5 --data synthetic:mnist --machine local --no-measure \
    --inter 1Gbit/s --workers 1,4 --batch 64
holds 'd["machine"].startswith("4x1:cpu,inter=1Gbit/s") and len(d["fixed"]["points"]) == 2'

refused 2 "did you mean 'data'" bench limits lenet5 --plan dta
refused 2 "name a strategy" bench limits lenet5 --plan mine.json
refused 2 "the strategy data has no use for --asynchronous" bench limits lenet5 --asynchronous
refused 2 "the strategy ps has no use for --sync" bench limits lenet5 --plan ps --sync tree
refused 2 "--workers" bench limits lenet5 --workers 1,,2
refused 2 "has 4 devices" bench limits lenet5 --machine 1x4:p100 --workers 8
refused 2 "inter=fast" bench limits lenet5 --data synthetic:mnist --machine local --no-measure --inter fast

python3 "$CLEAVE_SOURCE/bench/published/run.py" --cleave "$CLEAVE" --check >stdout 2>stderr ||
    fail "published figures that must hold do not"
python3 "$CLEAVE_SOURCE/bench/published/search.py" --cleave "$CLEAVE" --check >stdout 2>stderr ||
    fail "plans that are found are behind published ones"
