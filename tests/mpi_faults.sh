# Lost workers: one is killed, at a random moment: the others end soon, the exit code is 4, the
# message names it, no process is left, and the run goes on from its checkpoint to the same bits as
# an undisturbed one. One is stopped: exit code 5 after the time-out. CLEAVE_TEST_CASES=50 kills so
# many times instead of 6; CLEAVE_TEST_SEED chooses other moments.
source "$CLEAVE_SOURCE/tests/mpi_job.sh"

n_kills=${CLEAVE_TEST_CASES:-6}
RANDOM=${CLEAVE_TEST_SEED:-1}
echo "$n_kills kills, CLEAVE_TEST_SEED=${CLEAVE_TEST_SEED:-1}"
ranks=3
steps=780
plans=(data 1f1b ps)
common=(lenet5 --data synthetic:1x28x28/10/4800 --batch 24 --threads 1 --no-eval)
whole=("${common[@]}" --quiet --epochs 5 --steps $steps --checkpoint-every 50)

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

# start ARGUMENTS...: a job in a session of its own, whose number is $job
start() {
    : >stdout # the last job's must not be taken for this one's before it has started
    setsid "$mpirun" "${mpi_options[@]}" -n $ranks "$CLEAVE" train "$@" >stdout 2>stderr \
        </dev/null &
    job=$!
}

end_job() {
    [[ -z ${job:-} ]] || pkill -KILL -s "$job" || true
}
trap end_job EXIT

# find_guard RANK, find_worker RANK: the process of the job, or nothing
find_guard() {
    pgrep -s "$job" -f "^cleave: guard of worker $1 *$" || true
}
find_worker() {
    local guard
    guard=$(find_guard "$1")
    [[ -z $guard ]] || pgrep -P "$guard" || true
}

# await COMMAND...: until it prints something, in $found; empty if the job ends before
await() {
    found=
    while kill -0 "$job" 2>/dev/null; do
        found=$("$@")
        [[ -z $found ]] || return 0
        sleep 0.02
    done
}
steps_run() {
    grep -m 1 '"step":20,' stdout || true
}

# finish: waits for the job; its exit code is in $rc
finish() {
    rc=0
    wait "$job" || rc=$?
}

# Nothing is left of the job within 10 s of a moment.
none_left() {
    while pgrep -s "$job" >left; do
        (($(now_ms) - $1 < 10000)) ||
            fail "left over after 10 s: $(ps -o pid,stat,args -p "$(paste -sd, left)")"
        sleep 0.05
    done
}

# The same state and tensors; a save after one that was cut short gives the file another name.
state_of() {
    sed '/"file":/d; /"checksum":/d' "$1/run.json"
}
tensors_of() {
    echo "$1/$(sed -n 's/.*"file": "\(.*\)".*/\1/p' "$1/run.json")"
}
same_run() {
    local tensors
    grep -q "\"step\": $steps," "$1/run.json" || fail "$1 did not come to step $steps"
    cmp <(state_of "$1") <(state_of "$2") || fail "the states of $1 and $2 differ"
    tensors=$(tensors_of "$1")
    [[ $tensors == *.safetensors && -s $tensors ]] || fail "$1/run.json names no tensors: $tensors"
    cmp "$tensors" "$(tensors_of "$2")" || fail "the tensors of $1 and $2 differ"
}

for plan in "${plans[@]}"; do
    mkdir "undisturbed-$plan"
    on_threads $ranks "${whole[@]}" --plan "$plan" --checkpoint "undisturbed-$plan/run"
done

# ---- killed ----

# next_plan: a new run, with another plan
n_runs=0
next_plan() {
    plan=${plans[n_runs++ % ${#plans[@]}]}
    rm -rf run
    mkdir run
}
next_plan
slowest_ms=0
misses=0
for ((kills = 0; kills < n_kills;)); do
    victim=$((RANDOM % ranks))
    start "${whole[@]}" --plan "$plan" --checkpoint run/run --resume
    await find_worker $victim
    worker=$found
    sleep "$(printf '%d.%03d' $((RANDOM % 2)) $((RANDOM % 1000)))"
    killed_ms=$(now_ms)
    if [[ -z $worker ]] || ! kill -KILL "$worker" 2>/dev/null; then
        finish # it was done before
        [[ $rc -eq 0 ]] || fail "exit $rc without a kill"
        same_run run "undisturbed-$plan"
        next_plan
        ((++misses < 5)) || fail "five jobs in a row ended before a worker was found and killed"
        continue
    fi
    misses=0
    finish
    took_ms=$(($(now_ms) - killed_ms))
    none_left "$killed_ms"
    if [[ $rc -eq 0 ]] && ! grep -q "lost" stderr; then
        continue # it had just come to its end: no worker was left to be killed
    fi
    [[ $rc -eq 4 ]] || fail "kill $kills of worker $victim: exit $rc, expected 4"
    grep -q "^cleave: worker $victim was lost: killed by SIGKILL" stderr ||
        fail "kill $kills: worker $victim is not named"
    ((took_ms < 10000)) || fail "kill $kills: the job ended after $took_ms ms"
    ((took_ms <= slowest_ms)) || slowest_ms=$took_ms
    kills=$((kills + 1))
done
on_ranks $ranks "${whole[@]}" --plan "$plan" --checkpoint run/run --resume
same_run run "undisturbed-$plan"
echo "$kills kills, $n_runs runs: exit code 4, ended at most $slowest_ms ms later, same results"

# ---- stopped ----

# A time-out that a loaded machine does not reach by itself.
timeout_s=6
endless=("${common[@]}" --epochs 1000 --json)
start "${endless[@]}" --timeout $timeout_s
await steps_run
stopped_ms=$(now_ms)
kill -STOP "$(find_worker 2)"
finish
took_ms=$(($(now_ms) - stopped_ms))
none_left "$(now_ms)"
[[ $rc -eq 5 ]] || fail "a stopped worker: exit $rc, expected 5"
grep -q "worker 2 (process [0-9]*) is stopped" stderr || fail "the stopped worker is not named"
grep -q "^cleave: error: worker [01], step [0-9]*.* $timeout_s s" stderr ||
    fail "the waiting worker, the step and the time are not said"
((took_ms >= timeout_s * 1000 - 100 && took_ms < timeout_s * 1000 + 20000)) ||
    fail "a stopped worker: ended after $took_ms ms"
echo "stopped: exit code 5 after $took_ms ms"

# All are stopped, so that no worker sees it, as while one saves: the guards do.
start "${endless[@]}" --timeout 1
await steps_run
kill -STOP "$(find_worker 0)" "$(find_worker 1)" "$(find_worker 2)"
finish
none_left "$(now_ms)"
[[ $rc -eq 5 ]] || fail "all workers stopped: exit $rc, expected 5"
grep -q "^cleave: error: worker [0-2] (process [0-9]*) has been stopped for [0-9]* s" stderr ||
    fail "no guard says that its worker is stopped"

# ---- guards that are killed or stopped ----

start "${endless[@]}"
await steps_run
kill -SEGV "$(find_guard 1)"
finish
none_left "$(now_ms)"
[[ $rc -eq 4 ]] || fail "a guard with SIGSEGV: exit $rc, expected 4"
grep -q "^cleave: the guard of worker 1 got SIGSEGV" stderr || fail "the guard is not named"

# nothing can answer this one: what running.md says of it
start "${endless[@]}"
await steps_run
kill -KILL "$(find_guard 1)"
finish
none_left "$(now_ms)"
[[ $rc -eq 137 ]] || fail "a killed guard: exit $rc, expected 137"

start "${common[@]}" --epochs 1000 --steps 400 --json
await steps_run
kill -STOP "$(find_guard 1)"
finish
none_left "$(now_ms)"
[[ $rc -eq 0 ]] || fail "a stopped guard: exit $rc, expected 0"
echo "guards: killed by SIGSEGV 4, by SIGKILL 137, stopped 0"

# ---- asked to stop, through one guard ----

rm -rf run
mkdir run
start "${endless[@]}" --checkpoint run/run
await steps_run
kill -TERM "$(find_guard 1)"
finish
none_left "$(now_ms)"
[[ $rc -eq 6 ]] || fail "SIGTERM: exit $rc, expected 6"
grep -q "stopped by SIGTERM at step .*; saved to run/run.json" stderr || fail "no word of the save"

# ---- the launcher is killed ----

# It cannot remove its files then; here they go with the test's folder.
export OMPI_MCA_orte_tmpdir_base=$PWD OMPI_MCA_btl_vader_backing_directory=$PWD
start "${endless[@]}"
await steps_run
kill -KILL "$job"
finish # bash says that it was killed
none_left "$(now_ms)"
echo "asked to stop: exit code 6; without a launcher nothing is left"
