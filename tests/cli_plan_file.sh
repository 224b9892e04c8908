# A plan's file says what it was made for: commands need nothing but it, the command line wins, and other
# layers are refused. Defaults of data, titles of candidates, names in any case, and how predict shows
# many workers. Machines are strings: nothing is measured.
source "$CLEAVE_SOURCE/tests/expect.sh"

# ---- the file alone ----

asked=(alexnet --data imagenet --batch 256 --machine "2x2:p100,inter=4GB/s" --calibrate 900 --calibrate-batch 64)
run 0 plan "${asked[@]}" --optimizer adamw --named --json -o best.json
holds 'any(c["name"] == d["best"] and c["title"] for c in d["candidates"])'
python3 - <<'PYTHON' || fail "made_for"
import json
best, answer = json.load(open("best.json")), json.load(open("stdout"))
made = best["made_for"]
assert best["cleave_plan"] == 2 and "model" not in best
assert len(made.pop("digest")) == 16
assert made == {"model": "alexnet", "data": "imagenet", "input": [3, 224, 224], "classes": 1000, "batch": 256,
                "precision": "float", "optimizer": "adamw", "machine": "2x2:p100,inter=4GB/s",
                "calibrate": {"samples_per_s": 900, "batch": 64}}, made
found = next(c for c in answer["candidates"] if c["name"] == answer["best"])
json.dump({"step_s": found["step_s"], "memory_bytes": found["memory_bytes"]}, open("expected", "w"))
PYTHON
same='(lambda e: abs(d["step_s"] / e["step_s"] - 1) < 1e-6 and d["memory_bytes"] == e["memory_bytes"])(json.load(open("expected")))'
for words in "best.json" "--plan best.json" "alexnet --plan best.json" "--plan=best.json AlexNet"; do
    # shellcheck disable=SC2086
    run 0 predict $words --json
    holds "$same"
    [[ ! -s stderr ]] || fail "predict $words: something on stderr"
done
run 0 predict best.json
says stdout "calibrated: one device alone reaches 900 images/s"
run 0 plan check best.json
says stdout "alexnet, "
run 0 plan dump best.json
says stdout "program alexnet batch 256 "
run 0 plan make owt alexnet --batch 32 --workers 2 -o made.json
says stderr "no --data: alexnet takes the shape of imagenet, 3x224x224 and 1000 classes"
run 0 plan check made.json
[[ ! -s stderr ]] || fail "check: something on stderr"

# ---- what the command line says wins ----

run 0 predict best.json --batch 128 --json
says stderr "best.json was made for batch 256; the command line wins: 128"
[[ $(wc -l <stderr) -eq 1 ]] || fail "more than one line"
holds 'd["batch"] == 128'
run 0 predict best.json --machine 1x4:v100 --optimizer sgd --json
says stderr "made for optimizer adamw, machine 2x2:p100,inter=4GB/s, calibrate 900; the command line wins: sgd, 1x4:v100, uncalibrated"
holds 'd["machine"] == "1x4:v100"'
refused 2 "the plan is for alexnet, not for vgg11" predict vgg11 --plan best.json
refused 2 "are two plans" predict best.json --plan made.json
run 0 plan make data vgg11 --data imagenet --batch 8 -o large.json
run 2 plan check large.json --data synthetic:cifar10 # its small form has other layers
says stderr "unknown layer"
sed 's/"digest": "[0-9a-f]*"/"digest": "0123456789abcdef"/' best.json >changed.json
refused 2 "changed.json:6: the layers of this alexnet are not those that the plan was made for" predict changed.json
refused 2 "changed.json:6: " plan check changed.json

# a machine's file counts with its bytes
run 0 machine --machine 1x2:p100 -o two.json
run 0 plan lenet5 --data mnist --machine two.json --named -o filed.json
run 0 predict filed.json
[[ ! -s stderr ]] || fail "predict: something on stderr"
sed -i 's/"dev1"/"dev1"/; $a\ ' two.json
run 0 predict filed.json
says stderr "made for two.json as it was then; the command line wins: as it is now"

# ---- files of version 1, and training ----

tiny=(--data synthetic:1x28x28/10/64 --batch 16)
run 0 plan make data lenet5 "${tiny[@]}" --workers 2 -o two-workers.json
python3 -c 'import json; p = json.load(open("two-workers.json")); m = p.pop("made_for"); p.update(cleave_plan=1, model=m["model"]); json.dump(p, open("old.json", "w"))'
run 0 predict old.json --machine 1x2:p100 --json # the model it says, the rest by default
holds 'd["model"] == "lenet5" and d["batch"] == 128'
run 0 predict lenet5 "${tiny[@]}" --plan old.json --machine 1x2:p100
python3 -c 'import json; p = json.load(open("old.json")); del p["model"]; json.dump(p, open("nameless.json", "w"))'
refused 2 "nameless.json: does not say which network it is for: 'cleave predict MODEL --plan nameless.json'" predict nameless.json
run 0 train two-workers.json --steps 1 --backend reference --json --quiet --run kept
holds 'd["plan"] == "data" and d["workers"] == 2'
run 0 train two-workers.json --steps 1 --backend reference --run none
says stdout "done: 1 step in"
python3 -c 'import json; m = json.load(open("kept/plan.json"))["made_for"]; assert m["batch"] == 16 and m["machine"] == "local", m' || fail "the record's plan"

# a plan that stands as MODEL is an input, too
cp two-workers.json kept.json
refused 2 "--trace two-workers.json: this command reads that file" train two-workers.json --steps 1 --backend reference --run none --trace two-workers.json
cmp two-workers.json kept.json || fail "the trace has replaced the plan"

# precisions that the kernels lack: refused with advice, where the backend does not describe them
refused 2 "for double use --backend reference" plan check data lenet5 --backend cpu --precision double
refused 2 "tf32 is for the predictions of other devices" plan dump data lenet5 --backend cpu --precision tf32
run 0 plan check data lenet5 --backend reference --precision tf32

# ---- defaults ----

run 0 plan resnet18 --machine 1x2:h100 --named
says stderr "no --data: resnet18 takes the shape of imagenet, 3x224x224 and 1000 classes"
says stdout "resnet18 on imagenet"
run 0 predict vgg11 --machine 1x1:h100 --json
holds 'd["data"] == "imagenet"'
run 0 show ResNet18
says stdout "resnet18 for imagenet"
run 0 show MLP
says stdout "mlp for fashion-mnist"
[[ ! -s stderr ]] || fail "a small network needs no word"
refused 2 "resnet50 needs --data to train on: imagefolder:DIR" train resnet50

# ---- names in any case ----

run 0 predict LENET5 --data MNIST --plan OWT --workers 2 --machine 1X2:P100 --json
holds 'd["model"] == "lenet5" and d["plan"] == "owt"'
run 0 plan check Data LeNet5 --data Synthetic:MNIST --workers 2
for words in version --version; do
    run 0 $words
    grep -qE '^cleave [0-9]+\.[0-9]+\.[0-9]+$' stdout || fail "$words"
done

# ---- titles, and how sure they are ----

run 0 plan vgg16 --data imagenet --batch 256 --machine 4x4:p100 --limit 60
if grep -qE 'per layer [0-9]+%|1f1b [0-9]+-| m[0-9]+( r)?  ' stdout; then
    fail "short names among the rows"
fi
[[ $(grep -cE '^[* ] best cut per layer' stdout) -le 1 ]] || fail "near-duplicates"
says stdout "best cut per layer: found by the search"
run 0 plan alexnet --data imagenet --batch 1024 --machine 2x2:p100,inter=2GB/s --named
tr -s '\n ' ' ' <stdout | grep -qE 'Use .* times as fast as data parallelism .*but not surely faster \(the error bars overlap\)' || fail "not said to be unsure"
run 0 plan alexnet --data imagenet --batch 128 --machine 1x4:p100,intra=1GB/s --named
if grep -q 'surely' stdout || ! grep -q 'times as fast as data parallelism: found' stdout; then
    fail "a large difference is sure"
fi

# ---- many workers, nodes, limits ----

run 0 predict resnet18 --data imagenet --batch 512 --machine 8x8:h100 --workers 64 --plan data
grep -qE '^0 to 63 ' stdout || fail "equal workers share no row"
grep -qE '^dev0\.out \.\. dev63\.in ' stdout || fail "equal links share no row"
[[ $(wc -l <stdout) -lt 30 ]] || fail "too many lines"
run 0 predict lenet5 --data mnist --workers 4 --plan data --sync hierarchical --machine 2x2:p100
run 0 predict lenet5 --data mnist --workers 4 --plan data --sync hierarchical --workers-per-node 2 --machine 2x2:p100 --json
holds 'd["step_s"] > 0'
refused 2 "are of several sizes" predict lenet5 --workers 3 --plan data --sync hierarchical --machine 1x2:p100,1x1:p100
run 0 bench limits alexnet --machine 2x3:p100 --json
holds '[p["workers"] for p in d["fixed"]["points"]] == [1, 2, 4, 6]'
run 0 bench limits alexnet --machine 2x3:p100
says stdout "up to the 6 devices that it has"
refused 2 "8 workers, but 2x3:p100 has 6 devices" bench limits alexnet --machine 2x3:p100 --workers 8
