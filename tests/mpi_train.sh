# Workers as threads and as MPI processes train to the same bits, and each goes on where the other
# stopped.
source "$CLEAVE_SOURCE/tests/mpi_job.sh"

# Two epochs of 5 steps, the last one cut short: the checkpoint holds the sum of the losses of an
# unfinished epoch, in full.
common=(lenet5 --data synthetic:1x28x28/10/120 --batch 24 --threads 1 --json)
whole=("${common[@]}" --epochs 2 --steps 8)

# The losses that were printed go to FOLDER as well.
keep_losses() {
    grep -o '"event":"step","step":[0-9]*,"loss":[^,]*\|"test_loss":[^,]*' stdout >"$1/losses"
    [[ $(grep -c step "$1/losses") -eq $2 ]] || fail "$1: not the losses of $2 steps"
}

for n in 2 3 4; do
    for plan in data hybrid 1f1b ps; do
        for kind in threads ranks; do
            folder=$kind-$plan-$n
            mkdir "$folder"
            on_$kind $n "${whole[@]}" --plan $plan --checkpoint "$folder/run"
            keep_losses "$folder" 8
        done
        same "threads-$plan-$n" "ranks-$plan-$n"
        echo "$plan on $n: threads and ranks agree"
    done
done

# again, and with messages instead of shared memory
for kind in threads ranks; do
    mkdir again
    on_$kind 3 "${whole[@]}" --plan hybrid --checkpoint again/run
    keep_losses again 8
    same again $kind-hybrid-3
    rm -r again
done
mkdir messages
CLEAVE_SHARED_MEMORY=no on_ranks 3 "${whole[@]}" --plan data --checkpoint messages/run
keep_losses messages 8
same messages ranks-data-3
echo "a second run and one over messages agree"

# Processors that lay tensors out in different ways cannot train together.
if grep -q avx2 /proc/cpuinfo &&
    "$CLEAVE" train "${common[@]}" --steps 1 --backend cpu >stdout 2>stderr; then
    rc=0
    timeout 100 "$mpirun" "${mpi_options[@]}" -n 1 "$CLEAVE" train "${whole[@]}" : \
        -n 1 env DNNL_MAX_CPU_ISA=SSE41 "$CLEAVE" train "${whole[@]}" >stdout 2>stderr </dev/null ||
        rc=$?
    [[ $rc -eq 1 ]] || fail "two kinds of processors: exit $rc, expected 1"
    [[ $(grep -c 'must lay tensors out alike' stderr) -eq 1 ]] || fail "two kinds: not said once"
fi

# change FOLDER KIND WORKERS PLAN  KIND WORKERS PLAN: four steps the first way, then four the other
change() {
    local folder=$1
    mkdir "$folder"
    on_"$2" "$3" "${common[@]}" --epochs 2 --steps 4 --plan "$4" --checkpoint "$folder/run"
    on_"$5" "$6" "${whole[@]}" --plan "$7" --checkpoint "$folder/run" --resume
    keep_losses "$folder" 4
    grep -q '"step":5,' "$folder/losses" || fail "$folder: did not go on with step 5"
}
change a-threads threads 3 1f1b threads 2 data
change a-mixed ranks 3 1f1b threads 2 data
same a-threads a-mixed
change b-threads threads 2 data threads 4 hybrid
change b-mixed threads 2 data ranks 4 hybrid
same b-threads b-mixed
echo "each goes on where the other stopped"

# a failure of the root alone stops all of them, at once and with its exit code
on_ranks 2 "${common[@]}" --steps 1 --no-eval --tensorboard board
rc=0
timeout 50 "$mpirun" "${mpi_options[@]}" -n 2 "$CLEAVE" train "${common[@]}" --steps 1 --no-eval \
    --tensorboard board >stdout 2>stderr </dev/null || rc=$?
[[ $rc -eq 2 ]] || fail "a root that fails alone: exit $rc"
grep -q "holds the events of another run" stderr || fail "a root that fails alone says nothing"

# a plan that cannot be read is one error of the job, though each rank reads it
printf '{"cleave_plan": 2,\n"workers": 2,' >broken.json
"$CLEAVE" plan make data lenet5 --data synthetic:1x28x28/10/120 --batch 24 --workers 2 -o sound.json
for plans in "broken.json broken.json" "missing.json missing.json" "sound.json missing.json"; do
    rc=0
    timeout 50 "$mpirun" "${mpi_options[@]}" -n 1 "$CLEAVE" train "${common[@]}" --plan "${plans% *}" : \
        -n 1 "$CLEAVE" train "${common[@]}" --plan "${plans#* }" >stdout 2>stderr </dev/null || rc=$?
    [[ $rc -eq 1 ]] || fail "$plans: exit $rc"
    [[ $(grep -c 'error: ' stderr) -eq 1 ]] || fail "$plans: not said once"
    grep -q "error: ${plans#* }" stderr || fail "$plans: not the reason"
done

# the advice instead of --plan auto can be followed as it stands, however long the path
long=cifar10:$(printf './%.0s' {1..60})images
rc=0
timeout 50 "$mpirun" "${mpi_options[@]}" -n 2 "$CLEAVE" train lenet5 --data "$long" --plan auto \
    >stdout 2>stderr </dev/null || rc=$?
[[ $rc -eq 2 ]] || fail "--plan auto of processes: exit $rc"
grep -qF -- "--data $long --batch 128" stderr || fail "--plan auto of processes: a cut command"

# Bits are not enough: what they all agree on is the serial result.
on_threads 1 "${whole[@]}"
python3 - a-mixed/losses b-mixed/losses ranks-ps-4/losses <<'PYTHON' || fail "not the serial losses"
import json, re, sys
serial = {e["step"]: e["loss"] for e in map(json.loads, open("stdout")) if e["event"] == "step"}
for path in sys.argv[1:]:
    found = re.findall(r'"step":(\d+),"loss":([^\s,]+)', open(path).read())
    assert len(found) >= 4 and all(abs(serial[int(s)] - float(l)) < 1e-4 for s, l in found), path
PYTHON
