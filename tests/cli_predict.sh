# What a plan would cost: text and JSON, on described machines and on this host; plans that do not fit
# and the advice that follows; timelines.
source "$CLEAVE_SOURCE/tests/expect.sh"

export CLEAVE_PROFILE=$PWD/profile.db
unset CLEAVE_MEMORY_LIMIT

# ---- a machine that is not here ----

alexnet=(predict alexnet --data imagenet --batch 128 --workers 4 --plan owt)
p100=1x4:p100,intra=15GB/s
run 0 "${alexnet[@]}" --machine $p100
says stdout "owt: alexnet, batch 128, in float, 4 workers on $p100"
says stdout "of the computing time 100 % from the machine's peak figures"
grep -qE '^worker +computes +communicates +waits +memory +sends$' stdout || fail "no table of workers"
[[ $(grep -cE '^     [0-3] .* (ms|us|s)  .*B$' stdout) -eq 4 ]] || fail "not four workers"
for class in weights optimizer gradients activations workspace all "there are"; do
    grep -qE "^$class +[0-9.]+ [KMG]?B$" stdout || fail "no memory of $class"
done
says stdout "dev3.in"
[[ ! -s stderr ]] || fail "something on stderr"
[[ ! -e profile.db ]] || fail "a described machine made a profile"

run 0 "${alexnet[@]}" --machine $p100 --json
holds 'set(d) >= {"plan", "model", "machine", "n_workers", "step_s", "error_s", "epoch_s", "images_per_s", "memory_bytes", "bytes_moved", "fits", "advice", "costs", "measured", "predict_s", "workers", "links"}'
holds 'd["plan"] == "owt" and d["model"] == "alexnet" and d["n_workers"] == 4 and d["fits"] and d["advice"] == []'
holds 'd["measured"] == 0 and d["costs"] == {"measured": 0, "fitted": 0, "roofline": 1}'
holds 'd["host_error"] == 0' # this host's, not that machine's
holds 'abs(d["images_per_s"] * d["step_s"] / 128 - 1) < 1e-6 and 0 < d["error_s"] < d["step_s"]'
holds 'len(d["workers"]) == 4 and d["bytes_moved"] == sum(w["sent_bytes"] for w in d["workers"]) > 0'
holds 'd["memory_bytes"] == max(w["memory_bytes"] for w in d["workers"])'
holds 'all(sum(w["memory"].values()) == w["memory_bytes"] for w in d["workers"])'
holds 'all(w["compute_s"] + w["wait_s"] <= d["step_s"] * (1 + 1e-6) for w in d["workers"])'
# a window of steps: all figures are of one
run 0 "${alexnet[@]}" --machine $p100 --plan pipedream --json
holds '0 <= d["bytes_moved"] - sum(w["sent_bytes"] for w in d["workers"]) < len(d["workers"])'
run 0 "${alexnet[@]}" --machine $p100 --json
cp stdout first
run 0 "${alexnet[@]}" --machine $p100 --json # a prediction depends on the request alone
holds 'all(d[k] == v for k, v in json.load(open("first")).items() if k != "predict_s")'
run 0 "${alexnet[@]}" --machine $p100 --json --calibrate 400 --plan serial --workers 1
holds 'abs(d["images_per_s"] / 400 - 1) < 1e-6'
# too fast for convolutions alone to make up for, or none there: everything is scaled
run 0 "${alexnet[@]}" --machine $p100 --json --calibrate 9000 --plan serial --workers 1
holds 'abs(d["images_per_s"] / 9000 - 1) < 1e-6'
run 0 predict mlp --batch 128 --machine $p100 --json --calibrate 200000
holds 'abs(d["images_per_s"] / 200000 - 1) < 1e-6'
for machine in optcnn thesis mixed; do # those of the documents
    run 0 "${alexnet[@]}" --machine $machine --json
    holds "d['machine'] == '$machine' and d['step_s'] > 0 and d['bytes_moved'] > 0"
done
run 0 predict vgg16 --data imagenet --batch 512 --workers 16 --plan data --machine optcnn
says stdout "node0.out"

# ---- mistakes ----

refused 2 "did you mean 'alexnet'?" predict alexnt
refused 2 "did you mean 'data'?" predict alexnet --data imagenet --workers 2 --plan dta --machine $p100
refused 2 "the plan has 8 workers, but $p100 has 4 devices" predict alexnet --data imagenet \
    --workers 8 --machine $p100
refused 2 "p100" predict alexnet --data imagenet --machine 1x4:p10
refused 2 "not even the launches of the kernels fit" predict alexnet --data imagenet \
    --machine $p100 --calibrate 1e9
refused 1 "none.json" predict alexnet --data imagenet --plan none.json --machine $p100
refused 2 "--merge needs --trace" predict lenet5 --merge m.json

# ---- plans that do not fit ----

vgg=(predict vgg16 --data imagenet --batch 512 --workers 4 --plan data --machine)
run 3 "${vgg[@]}" 1x4:p100,memory=2GiB
says stderr "cleave: error: it does not fit: worker 0 needs 10.4 GB, there are 2.15 GB"
[[ $(wc -l <stderr) -eq 1 ]] || fail "more than one line"
grep -qE '^activations +8.71 GB$' stdout || fail "no table of the memory"
grep -qE '^there are +2.15 GB$' stdout || fail "no limit in the table"
tr '\n' ' ' <stdout | grep -qE 'fits with [^:]*micro.batches.* [0-9.]+ GB' || fail "no advice of micro-batches"
says stdout "fits with --batch 16"
run 3 "${vgg[@]}" 1x4:p100,memory=1GiB # the weights alone are too large
says stdout "that was tried fits"
run 3 "${vgg[@]}" 1x4:p100,memory=1GiB --json
holds 'd["fits"] is False and d["advice"] == []'
# the test's batch alone is too large
run 3 "${vgg[@]}" 1x4:p100,memory=5GiB --batch 128 --eval-batch 2048 --json
holds 'len(d["advice"]) == 1 and d["advice"][0]["change"].startswith("--eval-batch ")'
run 0 "${vgg[@]}" 1x4:p100,memory=5GiB --batch 128 --eval-batch 2048 --no-eval

# The advised change makes the plan fit, in the memory that the advice gave: options are added to the
# command, changes of the plan are edited in its file.
follow() { # NUMBER_OF_ADVICES COMMAND...
    local least=$1 n i
    shift
    run 3 "$@" --json
    n=$(python3 -c 'import json; print(len(json.load(open("stdout"))["advice"]))')
    [[ $n -ge $least ]] || fail "$n pieces of advice, expected $least"
    mv stdout advised
    for ((i = 0; i < n; i++)); do
        python3 - $i "$@" >words <<'PYTHON'
import json, re, shlex, subprocess, sys, os
change = json.load(open("advised"))["advice"][int(sys.argv[1])]["change"]
command = sys.argv[2:]
edits = ""
if change.endswith(" in the plan's file"):
    change = change[:-len(" in the plan's file")]
    at = change.index('"')
    change, edits = re.sub(" and $", "", change[:at]), change[at:]
    change = change + " --plan edited.json"
words = command + shlex.split(change)
if edits:
    def last(name, otherwise):
        found = [words[i + 1] for i, w in enumerate(words[:-1]) if w == name and words[i + 1] != "edited.json"]
        return found[-1] if found else otherwise
    make = [os.environ["CLEAVE"], "plan", "make", last("--plan", "data"), words[1], "-o", "edited.json"]
    for name in ("--data", "--batch", "--workers", "--micro-batches"):
        if name in words:
            make += [name, last(name, "")]
    subprocess.run(make, check=True)
    plan = json.load(open("edited.json"))
    for edit in edits.split(", "):
        if edit == '"recompute" of all layers':
            plan["recompute"] = list(plan["layers"])
        else:
            plan.update(json.loads("{" + edit + "}"))
    json.dump(plan, open("edited.json", "w"))
print("\n".join(words))
PYTHON
        mapfile -t words <words
        run 0 "${words[@]}" --json
        holds "d['fits'] and d['memory_bytes'] == json.load(open('advised'))['advice'][$i]['memory_bytes']"
    done
}
follow 3 "${vgg[@]}" 1x4:p100,memory=8GiB
follow 2 "${vgg[@]}" 1x4:p100,memory=2500MiB
follow 3 predict vgg16 --data imagenet --batch 512 --machine 2x4:p100,memory=8GiB --plan serial
follow 4 predict resnet50 --data imagenet --batch 512 --machine 4x4:p100,memory=10GiB --plan gpipe --workers 4
# a plan's file: nothing but the file can be changed
run 0 plan make data alexnet --data imagenet --batch 2048 --workers 2 -o mine.json
run 3 predict alexnet --data imagenet --batch 2048 --plan mine.json --machine 1x2:p100,memory=4GiB
says stdout '"micro_batches": '
says stdout "in the plan's file"
says stdout "fits with --plan "
grep -q 'fits with --micro-batches' stdout && fail "--micro-batches does not change a file"

# ---- this host ----

small=(lenet5 --data synthetic:1x28x28/10/512 --batch 48)
run 0 predict "${small[@]}" --workers 2 --plan data --json
holds 'd["measured"] > 0 and d["costs"]["measured"] > 0.9 and d["step_s"] > 0'
holds '0.01 < d["host_error"] <= d["error_s"] / d["step_s"]' # what it may be by the time of the run
cp stdout first
run 0 predict "${small[@]}" --workers 2 --plan data --json
holds 'd["measured"] == 0 and d["step_s"] == json.load(open("first"))["step_s"]'
run 0 predict "${small[@]}" --workers 2 --plan data --no-measure --profile empty.db --json
holds 'd["measured"] == 0 and d["costs"]["measured"] == 0 and d["step_s"] > 0'

# The training of it needs just the predicted memory: a byte less is too little.
run 0 predict "${small[@]}" --workers 2 --plan data --json
both=$(python3 -c 'import json; print(sum(w["memory_bytes"] for w in json.load(open("stdout"))["workers"]))')
CLEAVE_MEMORY_LIMIT=$both run 0 train "${small[@]}" --workers 2 --plan data --steps 2 --json
CLEAVE_MEMORY_LIMIT=$((both - 1)) refused 3 "'cleave predict' says what would fit" train \
    "${small[@]}" --workers 2 --plan data --steps 2 --quiet
says stderr "2 workers of it need"
CLEAVE_MEMORY_LIMIT=$((both - 1)) run 3 predict "${small[@]}" --workers 2 --plan data --no-measure --profile empty.db
CLEAVE_MEMORY_LIMIT=$both run 0 predict "${small[@]}" --workers 2 --plan data --no-measure --profile empty.db

# What a run is told changes what it holds, and is predicted as it is run: to the byte.
told() { # PLAN OPTIONS...
    local plan=$1 bytes
    shift
    run 0 predict "$@" --workers 2 --plan "$plan" --no-measure --profile empty.db --json
    bytes=$(python3 -c 'import json; print(json.load(open("stdout"))["memory_bytes"])')
    run 0 train "$@" --workers 2 --plan "$plan" --steps 1 --lr 0 --quiet --json
    holds "(d[-1] if isinstance(d, list) else d)['memory_bytes'] == $bytes"
    [[ " $held " != *" $bytes "* ]] || fail "$plan $*: as much memory as with other options"
    held+=" $bytes"
}
for plan in data 1f1b; do
    held=
    for options in "" "--optimizer adamw" "--momentum 0" "--limit 20" \
        "--optimizer adamw --precision double --backend reference"; do
        # shellcheck disable=SC2086
        told $plan "${small[@]}" $options
    done
done
drops=(alexnet --data synthetic:3x64x64/10/64 --batch 8)
run 0 predict "${drops[@]}" --workers 2 --plan data --no-measure --profile empty.db --json
held=$(python3 -c 'import json; print(json.load(open("stdout"))["memory_bytes"])')
told data "${drops[@]}" --dropout 0
run 0 predict "${small[@]}" --limit 20 --no-measure --profile empty.db
says stderr "batch 48: there are only 20 samples, each step takes all of them"
says stdout "batch 20,"
run 0 predict "${small[@]}" --machine $p100 --precision double
says stdout ", in double, "
CLEAVE_MEMORY_LIMIT=$both run 3 predict "${small[@]}" --workers 2 --plan data --optimizer adamw --no-measure \
    --profile empty.db
# only the updates are other ones
run 0 predict "${small[@]}" --workers 2 --plan data --optimizer adamw --json
holds '0 < d["measured"] < 0.5 * json.load(open("first"))["measured"] and d["costs"]["measured"] > 0.9'
run 0 predict "${small[@]}" --workers 2 --plan data --optimizer adamw --json
holds 'd["measured"] == 0'
# the record of a run has the prediction of that run
run 0 train "${small[@]}" --workers 2 --plan data --optimizer adamw --limit 100 --steps 1 --run told --quiet --json
holds 'd["memory_bytes"] == json.load(open("told/prediction.json"))["memory_bytes"]'

# beyond any memory: refused before anything is allocated
refused 3 "the plan does not fit into this host" train vgg16 --data synthetic:imagenet --batch 1048576 \
    --backend reference --no-eval --quiet

# ---- timelines ----

# look_at_trace FILE PYTHON: the expression is true of the trace `t`, its slices `x` and the prediction `d`
look_at_trace() {
    python3 - "$1" "$2" <<'PYTHON' || fail "$1: not true: $2"
import json, sys
t = json.load(open(sys.argv[1]))
d = json.load(open("stdout"))
events = t["traceEvents"]
x = [e for e in events if e["ph"] == "X"]
names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
places = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
def instructions(pid):
    found = [e["args"]["instruction"] for e in x if e["pid"] == pid and "instruction" in e["args"]]
    return len(found) == len(set(found)) and set(found) or None
def end_s(pids):
    return max(e["ts"] + e["dur"] for e in x if e["pid"] in pids) * 1e-6
def apart(): # slices of a track do not overlap
    tracks = {}
    for e in x:
        tracks.setdefault((e["pid"], e["tid"]), []).append((round(e["ts"] * 1000), round(e["dur"] * 1000)))
    return all(a[0] + a[1] <= b[0] for s in map(sorted, tracks.values()) for a, b in zip(s, s[1:]))
sys.exit(0 if eval(sys.argv[2]) else 1)
PYTHON
}

for plan in data 1f1b; do
    for machine in $p100 local; do
        run 0 plan make $plan "${small[@]}" --workers 3 -o plan.json
        backend=() # devices that are not here are predicted with plain tensors
        [[ $machine == local ]] || backend=(--backend reference)
        run 0 plan check plan.json "${small[@]}" "${backend[@]}" --json
        python3 -c 'import json; print([w["instructions"] for w in json.load(open("stdout"))["workers"]])' >counts
        counts='json.load(open("counts"))'
        run 0 predict "${small[@]}" --plan plan.json --machine $machine --trace p.json --json
        look_at_trace p.json 'names == {i: "worker %d (predicted)" % i for i in range(3)} == {i: names[i] for i in places}'
        look_at_trace p.json "all(instructions(i) == set(range($counts[i])) for i in range(3))"
        look_at_trace p.json 'abs(end_s({0, 1, 2}) - d["step_s"]) < 2e-9 and min(e["ts"] for e in x) == 0'
        look_at_trace p.json 'apart()'
        look_at_trace p.json '{e["cat"] for e in x} >= {"compute", "communicate", "wait", "load"}'
    done
done

# beside the measured steps: steps 12 to 15 come after the short last batch of an epoch
run 0 train "${small[@]}" --workers 3 --plan plan.json --steps 15 --no-eval --trace m.json --quiet
run 0 predict "${small[@]}" --plan plan.json --trace p.json --merge m.json --json
look_at_trace p.json 'names == {2 * w + k: "worker %d (%s)" % (w, ("predicted", "measured")[k]) for w in range(3) for k in (0, 1)}'
look_at_trace p.json 'places == {i: i for i in range(6)} and apart()'
look_at_trace p.json "all(instructions(i) == set(range($counts[i // 2])) for i in range(6))"
look_at_trace p.json 'min(e["ts"] for e in x if e["pid"] % 2 == 0) == 0 == min(e["ts"] for e in x if e["pid"] % 2)'
look_at_trace p.json '{e["args"]["step"] for e in x if e["pid"] % 2} == {15}'
look_at_trace p.json '{(e["pid"] // 2, e["args"]["instruction"], e["name"]) for e in x if e["pid"] % 2 and "instruction" in e["args"]} == {(e["pid"] // 2, e["args"]["instruction"], e["name"]) for e in x if e["pid"] % 2 == 0 and "instruction" in e["args"]}'
# the last step is of the short batch: the one before it is taken
run 0 train "${small[@]}" --workers 3 --plan plan.json --steps 11 --no-eval --trace m.json --quiet
run 0 predict "${small[@]}" --plan plan.json --trace p.json --merge m.json --json
look_at_trace p.json '{e["args"]["step"] for e in x if e["pid"] % 2} == {10}'

merge=(predict "${small[@]}" --plan plan.json --trace q.json --merge)
refused 1 "none.json: cannot read" "${merge[@]}" none.json
refused 2 "p.json: is no trace that 'cleave train --trace' wrote" "${merge[@]}" p.json
echo '{"traceEvents": [}' >broken.json
refused 1 "broken.json:1:" "${merge[@]}" broken.json
refused 2 "m.json: is of 3 workers, the plan has 2" predict "${small[@]}" --workers 2 --trace q.json \
    --merge m.json
run 2 "${merge[@]}" m.json --batch 40
says stderr "m.json: holds no complete run of batch 40"
[[ ! -e q.json ]] || fail "a file in spite of an error"
refused 1 "no/such.json: cannot write" predict "${small[@]}" --trace no/such.json
# before anything else is done: the trace to merge is not looked at
refused 1 "no/such.json: cannot write" predict "${small[@]}" --trace no/such.json --merge none.json

# ---- precision ----

# One device without calibration, within a quarter of each published figure (images/s).
within_quarter() { # KIND PRECISION BATCH FIGURE..
    run 0 predict resnet50 --data imagenet --batch "$3" --machine "1x1:$1" --precision "$2" \
        --no-data --json
    holds "d['precision'] == '$2'"
    for figure in "${@:4}"; do
        holds "abs(d['images_per_s'] / $figure - 1) < 0.25"
    done
}
within_quarter v100 fp16 256 1200 1270 1376
within_quarter v100-32 fp16 256 1156 1300 1492
within_quarter a100-80 fp16 256 2470 3410
within_quarter a100-40 fp16 256 2375
within_quarter a100-80 tf32 256 938 1056
within_quarter a100-40 tf32 256 909
within_quarter k80 float 64 51.9
run 0 predict resnet50 --data imagenet --batch 64 --machine 1x2:v100 --workers 2 --no-data --json
bytes=$(python3 -c 'import json; d = json.load(open("stdout")); print(d["workers"][0]["memory"]["activations"])')
run 0 predict resnet50 --data imagenet --batch 64 --machine 1x2:v100 --workers 2 --no-data --json \
    --precision fp16
holds "0.5 < d['workers'][0]['memory']['activations'] / $bytes < 0.52"
run 0 predict lenet5 --data mnist --machine 1x1:v100 --precision fp16
grep -q "serial: lenet5, batch 128, in fp16, 1 worker on 1x1:v100" stdout || fail "the type is not said"
refused 2 "device 'k80' has no rate for fp16: it has those for float, double" \
    predict lenet5 --data mnist --machine 1x1:k80 --precision fp16
refused 2 "computes in" predict lenet5 --data mnist --no-measure --precision fp16

# ---- a signal ----

# Where nothing is measured, the first one ends it: there is nothing to leave in good order.
"$CLEAVE" predict lenet5 --data mnist --batch 25000 --micro-batches 25000 --workers 3 --plan 1f1b \
    --machine 1x3:p100 >stdout 2>stderr &
sleep 1
kill -TERM $!
status=0
wait $! || status=$?
[[ $status -eq 143 ]] || fail "a prediction that got SIGTERM ended with $status"
