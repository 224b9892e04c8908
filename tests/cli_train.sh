# Training from the command line: events, summaries, stopping and going on.
source "$CLEAVE_SOURCE/tests/expect.sh"

data=synthetic:1x28x28/10/512

run 0 train lenet5 --data $data --batch 64 --steps 5 --no-eval --json
holds '[e["event"] for e in d] == ["step"] * 5 + ["done"]'
holds '[e["step"] for e in d[:5]] == [1, 2, 3, 4, 5]'
holds 'all(set(e) >= {"step", "loss", "step_s", "compute_s", "communicate_s", "wait_s"} for e in d[:5])'
holds 'all(0 < e["compute_s"] <= e["step_s"] and e["communicate_s"] == 0 for e in d[:5])'
holds 'd[5]["steps"] == 5 and d[5]["median_step_s"] > 0 and d[5]["memory_bytes"] > 0'
holds 'd[5]["predicted_step_s"] > 0'
holds 'd[5]["predicted_error_s"] > 0.2 * d[5]["predicted_step_s"]' # nothing was measured of it
[[ -s $CLEAVE_PROFILE ]] || fail "the measurements were kept elsewhere"
holds 'abs(d[5]["images_per_s"] * d[5]["median_step_s"] - 64) < 0.1'
cp stdout first
says stderr "61706 parameters"

# deep networks without batch norm start slower, and do not diverge
run 0 train alexnet --data synthetic:3x64x64/10 --batch 16 --steps 8 --no-eval --run none --json
holds 'len(d) == 9'
run 0 train vgg11 --data synthetic:cifar10 --batch 8 --steps 12 --no-eval --run none --json
holds 'len(d) == 13'

# the same request gives the same losses, to rounding whatever the threads
losses='[e["loss"] for e in map(json.loads, open("first")) if e["event"] == "step"]'
near_losses() { # all five of them
    holds "(lambda own: len(own) == 5 and all(abs(a - b) < 1e-4 for a, b in zip(own, $losses)))(
           [e['loss'] for e in d if e['event'] == 'step'])"
}
run 0 train lenet5 --data $data --batch 64 --steps 5 --no-eval --json
holds "[e['loss'] for e in d if e['event'] == 'step'] == $losses"
run 0 train lenet5 --data $data --batch 64 --steps 5 --no-eval --json --threads 1
near_losses
run 0 train lenet5 --data $data --batch 64 --steps 5 --no-eval --json --seed 2
holds "[e['loss'] for e in d if e['event'] == 'step'] != $losses"

# many workers: the same losses, and what they cost
run 0 train lenet5 --data $data --batch 64 --steps 5 --no-eval --json --workers 2
near_losses
holds 'd[5]["workers"] == 2 and d[5]["plan"] == "data" and d[5]["bytes_moved"] > 0'
holds 'all(e["communicate_s"] > 0 and e["wait_s"] >= 0 for e in d[:5])'
run 0 train lenet5 --data $data --batch 64 --steps 5 --no-eval --json --workers 3 --plan 1f1b \
    --micro-batches 4 --trace run.trace
near_losses
python3 -c 'import json; t = json.load(open("run.trace"))["traceEvents"]
assert {e["pid"] for e in t} == {0, 1, 2} and any(e.get("cat") == "wait" for e in t)' ||
    fail "the trace is not one of three workers"
# a server keeps whole parameters, the workers their parts of the linear layers; all of it is saved
run 0 train lenet5 --data $data --batch 64 --steps 5 --no-eval --json --workers 4 --plan owt \
    --sync server --servers 1
near_losses
for name in served alone; do
    split=(--workers 4 --plan owt --sync server --servers 1)
    [[ $name == served ]] || split=()
    run 0 train lenet5 --data $data --batch 64 --steps 3 --no-eval --json --checkpoint $name \
        "${split[@]}"
    run 0 train lenet5 --data $data --batch 64 --steps 5 --no-eval --json --checkpoint $name --resume
    cp stdout $name.steps
done
holds '(lambda a, b: len(a) == 2 and all(abs(x - y) < 1e-4 for x, y in zip(a, b)))(
       *([e["loss"] for e in map(json.loads, open(n)) if e["event"] == "step"]
         for n in ("served.steps", "alone.steps")))'
# a trace that cannot be written is noticed before the training, not behind it
refused 1 "no/such.trace: cannot write" train lenet5 --data $data --steps 5 --trace no/such.trace --run none
refused 1 ".: cannot write" train lenet5 --data $data --steps 5 --trace . --run none
run 0 train lenet5 --data $data --batch 64 --steps 5 --no-eval --workers 3
says stderr "plan data: 3 workers"
says stdout "for other workers"

# a plan as a file, written, checked, used, and looked into
run 0 plan make 1f1b lenet5 --data $data --batch 64 --workers 4 --replicas 3,1 -o mine.json
run 0 plan check mine.json lenet5 --data $data --batch 64 --json
holds 'len(d["workers"]) == 4 and d["stages"] == 2 and d["bytes_moved"] > 0'
run 0 plan check mine.json lenet5 --data $data --batch 64
says stdout "4 workers, 2 stages"
run 0 plan dump mine.json lenet5 --data $data --batch 64 --worker 3
says stdout "receive"
run 0 train lenet5 --data $data --batch 64 --steps 5 --no-eval --json --plan mine.json
near_losses
holds 'd[5]["workers"] == 4'
run 2 train lenet5 --data $data --plan mine.json --workers 3
says stderr "mine.json is for 4 workers, 3 were asked for"

# an epoch, short last batch included: 120 = 50 + 50 + 20
run 0 train lenet5 --data $data --limit 120 --batch 50 --epochs 2 --json
holds '[e["event"] for e in d] == (["step"] * 3 + ["epoch"]) * 2 + ["done"]'
holds 'd[7]["epoch"] == 2 and 0 <= d[7]["test_accuracy"] <= 1 and d[7]["train_loss"] > 0'
run 0 train lenet5 --data $data --limit 120 --batch 50 --epochs 1 --no-eval --json --quiet
holds '[e["event"] for e in d] == ["epoch", "done"] and d[0]["test_accuracy"] is None'

# for people: results on stdout, the rest on stderr, no progress line in a file
run 0 train mlp --data $data --batch 128 --epochs 2 --optimizer adamw --schedule constant
[[ $(grep -c '^epoch [12]/2  train loss .*test accuracy' stdout) -eq 2 ]] || fail "no epoch lines"
grep -q '^done: 8 steps' stdout || fail "no summary"
grep -q $'\r' stderr && fail "a progress line without a terminal"
grep -q parameters stdout && fail "the start line belongs on stderr"
run 0 train mlp --data $data --batch 128 --epochs 2 --quiet
[[ ! -s stderr ]] || fail "--quiet is not quiet"
grep -q '^epoch' stdout && fail "--quiet prints epochs"

# stopped by a signal: exit 6 and a checkpoint, from which training goes on
rm -f stdout stderr # else the loop could see the lines of the run before
"$CLEAVE" train lenet5 --data $data --epochs 100000 --json --no-eval --checkpoint run \
    >stdout 2>stderr &
pid=$!
for ((i = 0; i < 300; i++)); do
    [[ -f stdout && $(wc -l <stdout) -ge 2 ]] && break
    sleep 0.1
done
kill -TERM $pid
status=0
wait $pid || status=$?
[[ $status -eq 6 ]] || fail "SIGTERM: exit $status, expected 6"
says stderr "stopped by SIGTERM"
grep -q error: stderr && fail "a stop is no error"
[[ -f run.json ]] || fail "no checkpoint was saved"
last=$(grep -c '"event":"step"' stdout)
run 0 train lenet5 --data $data --steps $((last + 2)) --json --no-eval --checkpoint run --resume
holds "[e['step'] for e in d if e['event'] == 'step'] == [$last + 1, $last + 2]"
says stderr "going on after step $last"
# a forgotten --resume replaces nothing; what replaces it is named
cp run.json before.json
refused 2 "run.json: there is a checkpoint of step $((last + 2)) already: go on from it with --resume, replace it with --overwrite" \
    train lenet5 --data $data --steps 3 --no-eval --quiet --checkpoint run --run none
cmp -s run.json before.json || fail "the checkpoint was replaced"
refused 2 "give one of them" train lenet5 --data $data --checkpoint run --resume --overwrite
refused 2 "--overwrite needs --checkpoint" train lenet5 --data $data --overwrite
run 0 train lenet5 --data $data --steps 3 --no-eval --quiet --checkpoint run --run none --overwrite
grep -q '"step": 3,' run.json || fail "it was not replaced"
[[ ! -e run.lock ]] || fail "the lock stayed"
# the folder is made
run 0 train lenet5 --data $data --steps 1 --no-eval --quiet --checkpoint new/folder/a --run none
[[ -f new/folder/a.json ]] || fail "no checkpoint in a new folder"
# two runs of one checkpoint: the second is refused, and says whom it met; a killed one blocks nobody
"$CLEAVE" train lenet5 --data $data --epochs 100000 --no-eval --quiet --checkpoint two --run none \
    >/dev/null 2>&1 &
pid=$!
for ((i = 0; i < 300; i++)); do
    [[ -s two.lock ]] && break
    sleep 0.1
done
refused 2 "two.json: another run saves there: process $pid on " \
    train lenet5 --data $data --steps 1 --no-eval --quiet --checkpoint two --run none
kill -KILL $pid
wait $pid 2>/dev/null || true
[[ -e two.lock ]] || fail "the killed run left no lock to test with"
run 0 train lenet5 --data $data --steps 1 --no-eval --quiet --checkpoint two --run none --overwrite
# a lengthened run says that its schedule is another, and can keep it
long=(train lenet5 --data $data --batch 64 --no-eval --run none --checkpoint long)
run 0 "${long[@]}" --epochs 1
grep -q "the schedule" stderr && fail "a new run has no former schedule"
cp long.json one.json
cp long-8.safetensors kept.safetensors
run 0 "${long[@]}" --epochs 2 --resume
says stderr "the schedule was 8 steps long, it goes on with 16: the learning rate of the next step is 0.025, and would have been"
says stderr "(--schedule-epochs 1 keeps the former length)"
cp one.json long.json
cp kept.safetensors long-8.safetensors
run 0 "${long[@]}" --epochs 2 --resume --schedule-epochs 1
grep -q "the schedule" stderr && fail "it has its former schedule"
# the description of the data goes with the weights
python3 - <<'PYTHON' || fail "the weights come without their subject"
import json, struct
d = json.load(open("long.json"))
f = open(d["tensors"]["file"], "rb")
(n,) = struct.unpack("<Q", f.read(8))
m = json.loads(f.read(n))["__metadata__"]
assert m["model"] == "lenet5" and m["input"] == "[1,28,28]" and m["classes"] == "10" and m["form"] == d["form"]
PYTHON
# a checkpoint of another run is not taken
run 2 train lenet5 --data $data --batch 32 --steps 9 --checkpoint run --resume
says stderr "cleave: error: "

# a second one ends it at once: here in the midst of a step that takes many seconds
for signal in TERM INT; do
    rm -f stdout stderr
    "$CLEAVE" train resnet18 --data synthetic:imagenet --batch 4 --backend reference --steps 1 --no-eval \
        --run none >stdout 2>stderr &
    pid=$!
    for ((i = 0; i < 300; i++)); do
        grep -qs parameters stderr && break
        sleep 0.1
    done
    kill -$signal $pid
    sleep 0.5
    kill -0 $pid || fail "the first SIG$signal ended it"
    kill -$signal $pid
    status=0
    wait $pid || status=$?
    [[ $status -eq $((128 + $(kill -l $signal))) ]] || fail "a second SIG$signal: exit $status"
done
