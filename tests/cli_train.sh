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
holds 'd[5]["train_images"] == 512 and d[5]["bubble_share"] is None'
holds 'abs(d[5]["overall_images_per_s"] * d[5]["seconds"] - 5 * 64) < 0.1'
cp stdout first
says stderr "61706 parameters, 512 images in batches of 64"

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
holds '0 < d[5]["bubble_share"] < 1 and d[5]["bubble_share"] >= d[5]["wait_share"] - 0.5'
grep -q asynchronous stderr && fail "1f1b is synchronous"
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
grep -q bubble stdout && fail "a bubble without a pipeline"

# what the summary and the start say of a pipeline, of sets and rates, and of older weights
run 0 train lenet5 --data $data --limit 120 --batch 50 --epochs 2 --workers 2 --plan pipedream
says stderr "120 images in batches of 50, 51 to test with"
says stderr "plan pipedream is asynchronous: gradients are of older weights"
grep -qE '^done: 6 steps in [^,]*, [0-9]+ images/s over all$' stdout || fail "no rate of the whole run"
grep -qE '^      median step [^,]*, [0-9]+ images/s$' stdout || fail "no rate of the median step"
grep -qE '^      pipeline bubble [0-9.]+ % of the step$' stdout || fail "the bubble has no name"

# the record is removed while the run writes there: the run goes on, and says so
rm -f stdout
"$CLEAVE" train mlp --data $data --steps 1000000 --no-eval --run removed --json >stdout 2>stderr &
for ((i = 0; i < 300; i++)); do
    [[ -s stdout ]] && break
    sleep 0.1
done
mv removed elsewhere # at once; files could come while a folder is removed
kill -TERM $! 2>/dev/null || true # it may have failed by then: a checkpoint has no place
wait $! || true
says stderr "the record of this run is lost: removed was removed or renamed while it ran"

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
sleep 0.003
kill -TERM $pid || true # the same request: timeout(1) signals its child, and then the child's group
status=0
wait $pid || status=$?
[[ $status -eq 6 ]] || fail "SIGTERM, twice in a row: exit $status, expected 6"
says stderr "stopped by SIGTERM"
grep -q error: stderr && fail "a stop is no error"
[[ -f run.json ]] || fail "no checkpoint was saved"
last=$(grep -c '"event":"step"' stdout)
run 0 train lenet5 --data $data --steps $((last + 2)) --json --no-eval --checkpoint run --resume
holds "[e['step'] for e in d if e['event'] == 'step'] == [$last + 1, $last + 2]"
says stderr "run: going on after step $last"
[[ $(grep -c " after step $last" stderr) -eq 1 ]] || fail "it says twice that it goes on"
# a forgotten --resume replaces nothing; the ways to go on are named
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
# groups of weights are part of how it learns
groups=(train lenet5 --data $data --no-eval --run none --quiet --checkpoint groups)
run 0 "${groups[@]}" --steps 1 --no-decay '*.bias' --lr-factor 'fc*=0.1'
run 0 "${groups[@]}" --steps 2 --resume
says stderr "the choice of groups of weights was '0 frozen, 5 without decay, 6 of another rate"
says stderr "continuing with 'none'"
run 0 "${groups[@]}" --steps 3 --resume
grep -q "groups of weights" stderr && fail "groups that are the same are no change"
# a checkpoint of another run is not taken
run 2 train lenet5 --data $data --batch 32 --steps 9 --checkpoint run --resume
says stderr "cleave: error: "

# nobody reads the results any more: the same, for the training is worth keeping
status=0
"$CLEAVE" train lenet5 --data $data --epochs 100000 --json --no-eval --run none --checkpoint unread \
    2>stderr | head -n 1 >stdout || status=${PIPESTATUS[0]}
[[ $status -eq 6 ]] || fail "a closed pipe: exit $status, expected 6"
says stderr "stopped by SIGPIPE (nobody reads standard output) at step"
[[ -f unread.json ]] || fail "a closed pipe: nothing was saved"

# one more that comes later than two seconds ends it at once: here in the midst of a step that takes
# many seconds
for signal in TERM INT; do
    rm -f stdout stderr
    "$CLEAVE" train resnet18 --data synthetic:imagenet --batch 8 --backend reference --steps 1 --no-eval \
        --run none >stdout 2>stderr &
    pid=$!
    for ((i = 0; i < 300; i++)); do
        grep -qs parameters stderr && break
        sleep 0.1
    done
    kill -$signal $pid
    sleep 0.5
    kill -$signal $pid 2>/dev/null || fail "the first SIG$signal ended it"
    sleep 1.8
    kill -$signal $pid 2>/dev/null || fail "a second SIG$signal within two seconds ended it"
    status=0
    wait $pid || status=$?
    [[ $status -eq $((128 + $(kill -l $signal))) ]] || fail "a later SIG$signal: exit $status"
    says stderr "cleave: a second signal: it ends at once"
done

# an instruction that takes longer than the deadline
run 5 train resnet18 --data synthetic:imagenet --batch 8 --backend reference --steps 1 --no-eval \
    --run none --timeout 0.1
grep -q "^cleave: error: step 1, instruction [0-9]* (.*): it computes for 0.1 s" stderr ||
    fail "the instruction that hangs is not named"

# OpenMP's own limit: oneDNN would wait for ever for threads that do not come
status=0
OMP_THREAD_LIMIT=1 timeout -s KILL 60 "$CLEAVE" train lenet5 --data $data --batch 64 --steps 5 \
    --no-eval --run none --threads 2 >stdout 2>stderr || status=$?
[[ $status -eq 0 ]] || fail "OMP_THREAD_LIMIT=1: exit $status"
says stderr "OMP_THREAD_LIMIT=1: a worker computes with 1 thread, not with 2"

# many workers take little more than their slabs; a sanitizer takes memory of its own, and needs more
# addresses than the limits below
if (ulimit -v 4000000 && "$CLEAVE" --version >/dev/null 2>&1); then
    python3 - "$CLEAVE" <<'PYTHON' || fail "64 workers take more memory than they say"
import json, resource, subprocess, sys
out = subprocess.run([sys.argv[1], "train", "lenet5", "--data", "synthetic:1x28x28/10/2048", "--batch",
                      "1024", "--workers", "64", "--threads", "1", "--steps", "2", "--no-eval",
                      "--run", "none", "--json"], stdout=subprocess.PIPE,
                     stderr=subprocess.DEVNULL, check=True).stdout
said = 64 * json.loads(out.splitlines()[-1])["memory_bytes"]
taken = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(f"64 workers: {said / 1e6:.0f} MB of slabs, {taken / 1e6:.0f} MB in all")
sys.exit(taken > 1.2 * said + 150e6)
PYTHON
    # a limit on the address space: a message, never a crash inside a library
    for limit in 60000 80000 94000 98000 110000 116000 130000 150000; do
        status=0
        (ulimit -v $limit -c 0 && exec "$CLEAVE" train mlp --data synthetic:1x8x8/10/64 --batch 16 \
            --run none --steps 3 --no-eval) >stdout 2>stderr </dev/null || status=$?
        [[ $status -le 1 ]] || fail "ulimit -v $limit: exit $status"
        [[ $status -eq 0 ]] || grep -q '^cleave: error: ' stderr || fail "ulimit -v $limit: no reason"
    done
fi

# where other programs want the cores, two threads do not spin for each other: spinning took twenty
# times as long as one thread
if [[ $(nproc) -gt 1 ]]; then
    busy=()
    trap 'kill "${busy[@]}" 2>/dev/null || true' EXIT
    for ((i = 0; i < 2 * $(nproc); i++)); do
        sh -c 'while :; do :; done' &
        busy+=($!)
    done
    seconds_of() {
        run 0 train lenet5 --data $data --steps 60 --no-eval --run none --json --quiet "$@"
        python3 -c 'import json; print(json.loads(open("stdout").readlines()[-1])["seconds"])'
    }
    for _ in 1 2 3; do # one timing on a loaded host may be anything
        one=$(seconds_of --threads 1)
        two=$(seconds_of --threads 2)
        echo "beside $((2 * $(nproc))) busy programs: $one s with one thread, $two s with two"
        crowded=0
        python3 -c "import sys; sys.exit($two > 5 * $one + 0.5)" && break
        crowded=1
    done
    kill "${busy[@]}"
    wait "${busy[@]}" 2>/dev/null || true
    trap - EXIT
    [[ $crowded -eq 0 ]] || fail "two threads spin for each other, three times of three"
fi
