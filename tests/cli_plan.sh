# Which way to train: the table of candidates, JSON, hand edits, studies, files that train; plans that
# do not fit, and nonsense; this host; a lost node.
source "$CLEAVE_SOURCE/tests/expect.sh"

export CLEAVE_PROFILE=$PWD/profile.db
unset CLEAVE_MEMORY_LIMIT

narrow() {
    awk '{ gsub(/…/, "."); if (length($0) > 100) bad = 1 } END { exit bad }' stdout ||
        fail "lines too long"
}

# ---- a machine that is not here ----

alexnet=(plan alexnet --data imagenet --batch 128 --machine 1x4:p100,intra=15GB/s)
run 0 "${alexnet[@]}"
says stdout "alexnet on imagenet, batch 128, in float, 4 workers of 1x4:p100,intra=15GB/s"
says stdout "unmeasured"
grep -qE '^  plan +step +\+- +epoch +speed +memory +moved +fits$' stdout || fail "no table"
[[ $(grep -c '^\* ' stdout) -eq 1 ]] || fail "not one plan is marked"
grep -qE '^Use .*times as fast as data parallelism' stdout || fail "no recommendation"
for word in computing waiting links memory; do
    grep -qE "^  $word +[^ ]" stdout || fail "no line $word among the limits"
done
says stdout "classifier.6"
narrow
[[ ! -s stderr ]] || fail "something on stderr"
[[ ! -e profile.db ]] || fail "a described machine made a profile"

run 0 "${alexnet[@]}" --json -o best.json
holds 'set(d) >= {"candidates", "best", "search_s", "model", "machine", "workers", "layers", "limits", "complete", "measured"}'
holds 'all(set(c) >= {"name", "step_s", "images_per_s", "epoch_s", "memory_bytes", "bytes_moved", "fits"} for c in d["candidates"])'
holds 'd["best"] in [c["name"] for c in d["candidates"] if c["fits"]] and d["complete"] and not d["measured"]'
holds '[c for c in d["candidates"] if c["name"] == "data"][0]["clocked"]'
holds '{c["family"] for c in d["candidates"]} >= {"serial", "data", "owt", "hybrid", "model", "spatial", "server", "layers", "pipeline"}'
holds 'len({c["name"] for c in d["candidates"]}) == len(d["candidates"])'
holds 'all(" ".join(c["name"].split()[:2]) in c["title"] for c in d["candidates"] if c["family"] == "hybrid")'
holds 'all(abs(c["images_per_s"] * c["step_s"] / 128 - 1) < 1e-6 for c in d["candidates"])'
holds 'sum(l["layers"] for l in d["layers"]) > 15 and all(l["cut"] for l in d["layers"])'
holds '[c for c in d["candidates"] if c["name"] == d["best"]][0]["step_s"] <= 1.05 * [c for c in d["candidates"] if c["name"] == "data"][0]["step_s"]'
cp stdout plan-answer
# what the run would be told counts: AdamW keeps two states where momentum is one
for told in "--momentum 0" "--momentum 0.9" "--optimizer adamw"; do
    # shellcheck disable=SC2086
    run 0 "${alexnet[@]}" --named --json $told
    python3 -c 'import json; print({c["name"]: c["memory_bytes"] for c in json.load(open("stdout"))["candidates"]}["serial"])'
done >memory-told
python3 - <<'PYTHON' || fail "the optimizer's state: $(tr '\n' ' ' <memory-told)"
none, momentum, adamw = map(int, open("memory-told"))
assert adamw - momentum == momentum - none >= 4 * 61100840
PYTHON

# the written plan is the predicted one
run 0 predict alexnet --data imagenet --batch 128 --machine 1x4:p100,intra=15GB/s --plan best.json --json
holds '(lambda b: abs(d["step_s"] / b["step_s"] - 1) < 1e-6 and d["memory_bytes"] == b["memory_bytes"] and d["bytes_moved"] == b["bytes_moved"])([c for a in [json.load(open("plan-answer"))] for c in a["candidates"] if c["name"] == a["best"]][0])'
run 0 plan check best.json alexnet --data imagenet --batch 128

# named strategies only, and hand edits
run 0 "${alexnet[@]}" --named --json
holds '"per layer" not in {c["family"] for c in d["candidates"]} and d["best"] == "owt"'
run 0 "${alexnet[@]}" --named --set classifier.1=n:4,classifier.4=n:4 --json
holds 'd["edit"] == "edit classifier.1=n:4,classifier.4=n:4"'
holds '[c for c in d["candidates"] if c["name"] == d["edit"]][0]["step_s"] > [c for c in d["candidates"] if c["name"] == d["best"]][0]["step_s"]'
run 0 "${alexnet[@]}" --set features.0=n:2+p:2
says stdout "edit features.0=n:2+p:2: "
refused 2 "did you mean 'features.0'?" "${alexnet[@]}" --set featres.0=n:4
refused 2 "must be LAYER=LOOP:PARTS" "${alexnet[@]}" --set features.0
refused 2 "unknown loop of --set features.0 'z'" "${alexnet[@]}" --set features.0=z:4
refused 2 "stage 0 has" "${alexnet[@]}" --set features.0=n:64
says stderr "--set on '"
refused 2 "must be A..B" "${alexnet[@]}" --workers 4..2
# a study has no one plan: what asks for one is refused, not forgotten
refused 2 "-o is for one plan, --workers A..B" "${alexnet[@]}" --workers 1..4 -o study.json
refused 2 "--set is for one plan, --batches" "${alexnet[@]}" --batches 64,128 --set features.0=n:4
refused 2 "give one of both" "${alexnet[@]}" --workers 1..4 --batches 64,128
refused 2 "--batches 'x' must be a whole number" "${alexnet[@]}" --batches 64,x

# the inputs of a cluster by parts
run 0 plan lenet5 --data mnist --nodes 2 --devices-per-node 2 --device p100 --intra 10GB/s --inter 1GB/s --micro-batches 4 --json
holds 'd["machine"] == "2x2:p100,intra=10GB/s,inter=1GB/s" and d["workers"] == 4'
holds '{c["name"].split(" m")[1].split()[0] for c in d["candidates"] if " m" in c["name"] and c["family"] == "pipeline"} == {"4"}'
run 0 plan lenet5 --data mnist --nodes 2 --json
holds 'd["machine"] == "2x4:titanrtx"'
refused 2 "give one of both" plan lenet5 --data mnist --nodes 2 --machine 1x4:p100

# no profile, no GPU, many workers: soon
run 0 plan alexnet --data imagenet --machine 8x8:h200 --json
holds 'd["measured"] is False and d["workers"] == 64 and d["best"]'

# ---- stopped on the way ----

# On a terminal it says what it does; Ctrl-C there ends it with the best so far, as an answer.
cat >interrupt.py <<'PYTHON'
import os, pty, select, signal, subprocess, sys, time
terminal, theirs = pty.openpty()
with open("stdout", "w") as out:
    p = subprocess.Popen([os.environ["CLEAVE"], *sys.argv[1:]], stdout=out, stderr=theirs)
os.close(theirs)
said, end = b"", time.time() + 60
while b"searching the best cuts;" not in said and time.time() < end and p.poll() is None:
    if select.select([terminal], [], [], 0.2)[0]:
        said += os.read(terminal, 4096)
began = time.time()
p.send_signal(signal.SIGINT)
try:
    status = p.wait(60)
except subprocess.TimeoutExpired:
    p.kill()
    status = "none within a minute"
print(f"exit {status} after {time.time() - began:.1f} s, said {said!r}", file=sys.stderr)
sys.exit(0 if status == 0 and b"searching" in said else 1)
PYTHON
python3 interrupt.py plan inceptionv3 --data imagenet --batch 16384 --machine 128x4:p100 \
    --limit 600 --json -o stopped.json 2>stderr || fail "Ctrl-C"
holds 'not d["complete"] and d["search_s"] < 60 and d["workers"] == 512'
holds 'd["best"] in [c["name"] for c in d["candidates"] if c["clocked"] and c["fits"]]'
[[ -s stopped.json ]] || fail "no plan was written"

# ---- studies ----

run 0 plan alexnet --data imagenet --batch 512 --machine 4x4:p100 --workers 1..16 --named
grep -qE '^workers +best plan +step +epoch +speed +worker-h +worth it$' stdout || fail "no table"
[[ $(grep -cE '^ +(1|2|4|8|16)  ' stdout) -eq 5 ]] || fail "not five rows"
says stdout "Worth paying for: "
# more workers are never slower, and a row is the answer for so many
slow=(plan lenet5 --machine 4x2:p100,inter=1GB/s)
run 0 "${slow[@]}" --workers 1..8 --json
holds 'all(a["step_s"] >= b["step_s"] for a, b in zip(d["points"], d["points"][1:]))'
mv stdout study
run 0 "${slow[@]}" --json
holds '(lambda p: d["best"] == p["best"] and abs(p["step_s"] / [c["step_s"] for c in d["candidates"] if c["name"] == d["best"]][0] - 1) < 1e-6)([p for p in json.loads(open("study").read())["points"] if p["workers"] == 8][0])'
run 0 plan alexnet --data imagenet --batch 512 --machine 4x4:p100 --workers 3..12 --named --json
holds '[p["workers"] for p in d["points"]] == [3, 6, 12] and d["worth_workers"] in (3, 6, 12)'
run 0 plan vgg16 --data imagenet --machine 1x4:p100 --batches 32,128 --named --json
holds '[p["batch"] for p in d["points"]] == [32, 128] and all(p["best"] for p in d["points"])'
run 0 plan vgg16 --data imagenet --machine 1x4:p100 --batches 32,128 --named
says stdout "of data's"
narrow
run 0 plan alexnet --data imagenet --batch 512 --machine 4x4:p100,inter=1GB/s --named --budget 0.25 --json
holds '(lambda b: b["workers"] * b["epoch_s"] / 3600 <= 0.25)([c for c in d["candidates"] if c["name"] == d["best"]][0])'
run 3 plan alexnet --data imagenet --batch 512 --machine 4x4:p100 --named --budget 0.0001
says stderr "no plan keeps within the budget of 0.0001 worker-hours an epoch"
run 3 plan alexnet --data imagenet --batch 512 --machine 4x4:p100 --named --budget 0.0001 --workers 1..2
says stderr "keeps within the budget of 0.0001 worker-hours an epoch"

# ---- plans that do not fit, and nonsense ----

run 0 plan vgg16 --data imagenet --batch 128 --machine 1x4:p100,memory=2600MiB --json
holds 'd["best"] != "data" and not [c for c in d["candidates"] if c["name"] == "data"][0]["fits"]'
holds 'all(c["memory_bytes"] <= 2600 << 20 for c in d["candidates"] if c["fits"])'
run 3 plan vgg16 --data imagenet --batch 128 --machine 1x4:p100,memory=100MiB
says stderr "cleave: error: no plan fits into memory"
[[ $(wc -l <stderr) -eq 1 ]] || fail "more than one line"
run 3 plan vgg16 --data imagenet --batch 128 --machine 1x4:p100,memory=100MiB --json -o none.json
holds 'd["best"] is None and d["limits"] is None and d["layers"] == []'
[[ ! -e none.json ]] || fail "a plan in spite of it"
# the plan that predict advises is found, with the test that has room beside it
run 0 plan resnet152 --data highres --machine 1x1:gtx1080 --batch 512 --named --json
holds '"m64" in d["best"] and d["eval_batch"] == 128'
refused 2 "--workers '0' must be a whole number from 1" plan lenet5 --data mnist --machine 1x4:p100 --workers 0
refused 2 "--workers '8..2'" plan lenet5 --data mnist --machine 1x4:p100 --workers 8..2
refused 2 "--workers 5: 1x4:p100 has 4 devices" plan lenet5 --data mnist --machine 1x4:p100 --workers 5
refused 2 "numbers from 1" plan lenet5 --data mnist --machine 0x4:p100
refused 2 "bandwidth" plan lenet5 --data mnist --machine 2x4:p100,inter=-4GB/s
refused 2 "bandwidth" plan lenet5 --data mnist --nodes 2 --inter -4GB/s
refused 2 "did you mean 'alexnet'?" plan alexnt --data imagenet
refused 2 "did you mean 'check'?" plan chek
refused 2 "MODEL is missing" plan --data mnist
refused 1 "no/such.json" "${alexnet[@]}" --named -o no/such.json
# before the search: the edit of what it would find is not looked at
refused 1 "no/such.json: cannot write" "${alexnet[@]}" -o no/such.json --set features.0=n:64

# ---- a lost node ----

run 0 machine --machine 3x1:p100,inter=1GB/s -o cluster.json
run 0 plan lenet5 --data synthetic:1x28x28/10/512 --batch 48 --machine cluster.json -o before.json --json
run 0 plan lenet5 --data synthetic:1x28x28/10/512 --batch 48 --machine cluster.json --without node1 -o after.json --json
holds 'd["workers"] == 2 and d["search_s"] < 1 and d["machine"].endswith("without node1")'
run 0 plan lenet5 --data mnist --machine cluster.json --without 0,2 --json
holds 'd["workers"] == 1 and d["best"] == "serial"'
run 0 machine --json # two of this host, whose costs are measured here
python3 -c 'import json; k = json.load(open("stdout"))["kinds"][0]; json.dump({"cleave_machine": 1, "kinds": [k], "intra": "10GB/s", "nodes": [{"count": 2, "devices": [k["name"]]}]}, open("twice.json", "w"))'
run 0 plan lenet5 --data synthetic:1x28x28/10/512 --batch 48 --machine twice.json --without 1 --json
holds 'd["workers"] == 1 and d["best"] == "serial"'
refused 2 "no such node" plan lenet5 --data mnist --machine cluster.json --without node7
refused 2 "no node is left" plan lenet5 --data mnist --machine cluster.json --without 0,1,2
refused 2 "no nodes to lose" plan lenet5 --data mnist --without 0
small=(lenet5 --data synthetic:1x28x28/10/512 --batch 48 --no-eval --run none --schedule constant)
run 0 plan make data lenet5 --data synthetic:1x28x28/10/512 --batch 48 --workers 3 -o before.json # three for sure
run 0 train "${small[@]}" --plan before.json --steps 5 --checkpoint saved --quiet --json
run 0 train "${small[@]}" --plan after.json --steps 9 --checkpoint saved --resume --json
holds 'd[-1]["steps"] == 9 and d[0]["step"] == 6'
cp stdout resumed
run 0 train "${small[@]}" --steps 9 --json # one worker, all the way
holds '(lambda own, resumed: len(own) == len(resumed) == 4 and all(abs(a["loss"] / b["loss"] - 1) < 1e-3 for a, b in zip(own, resumed)))([s for s in d if s["event"] == "step"][5:], [s for s in map(json.loads, open("resumed")) if s["event"] == "step"])'

# ---- this host ----

run 0 plan lenet5 --data synthetic:1x28x28/10/512 --batch 48 --workers 2 --limit 20 --try 0 --json
holds 'all(c["tried_s"] is None for c in d["candidates"])'
run 0 plan lenet5 --data mnist --batch 48 --workers 2 --limit 20 --no-data --json # no images to train on
holds 'd["measured"] and all(c["tried_s"] is None for c in d["candidates"])'
run 0 plan lenet5 --data synthetic:1x28x28/10/512 --batch 48 --workers 2 --limit 20 --try 1 -o here.json --json
holds 'd["measured"] and d["machine"] == "local" and d["best"] and d["workers"] == 2'
holds 'sum(c["tried_s"] is not None for c in d["candidates"]) > 1'
holds '[c for c in d["candidates"] if c["name"] == d["best"]][0]["tried_s"] > 0'
[[ -e profile.db ]] || fail "the measurements were not kept"
run 0 train "${small[@]}" --plan here.json --steps 3 --quiet --json
run 0 train "${small[@]}" --plan auto --workers 2 --steps 12 --json
holds 'd[-1]["event"] == "done" and d[-1]["predicted_step_s"] > 0 and d[-1]["steps"] == 12'
says stderr "cleave: plan auto: "
run 0 train "${small[@]}" --plan auto --workers 2 --steps 12
grep -qE '^predicted step .* \+- .*, measured .*: [+-][0-9.]+ %$' stdout || fail "no comparison"
run 0 train "${small[@]}" --plan data --workers 2 --steps 3 --quiet --json
holds 'd["predicted_step_s"] is None'
