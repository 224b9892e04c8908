# Ranks measure the links between them: all come to one machine, and the first one shows it.
source "$CLEAVE_SOURCE/tests/mpi_job.sh"

measure() { # RANKS ARGUMENTS...
    local n=$1 rc=0
    shift
    timeout 100 "$mpirun" "${mpi_options[@]}" -n "$n" "$CLEAVE" machine "$@" >stdout 2>stderr \
        </dev/null || rc=$?
    [[ $rc -eq 0 ]] || fail "$n ranks, machine $*: exit $rc"
}

for n in 2 3; do
    measure $n --measure --json -o here.json
    [[ $(wc -l <stdout) -eq 1 ]] || fail "$n ranks: not one JSON text"
    python3 - $n <<'PYTHON' || fail "$n ranks: unlikely figures"
import json, sys
n, d = int(sys.argv[1]), json.load(open("stdout"))
assert d == json.loads(json.dumps(d)) and len(d["nodes"]) == 1
kinds = [(c["operation"], c["members"]) for c in d["curves"]]
sums = [(o, m) for m in ([2] if n == 2 else [2, 3]) for o in ("gather", "ring", "tree")]
assert kinds == [("message", 2)] + sums, kinds
assert all(c["transport"] == "mpi" and c["nodes"] == 1 for c in d["curves"])
assert all(0 < p[1] < 30 and p[2] <= p[1] for c in d["curves"] for p in c["points"])
assert d["wake_s"] > 0 and d["step_s"] > 0
assert len(d["nodes"][0]["devices"]) == n and d["nodes"][0]["cores"] >= 1 and "host" not in d["nodes"][0]
PYTHON
    "$CLEAVE" machine --machine here.json >again 2>stderr || fail "the file of $n ranks is no machine"
done

# Without --measure every rank could show it; one does not need them.
measure 1 --json
grep -q '"curves":\[\]' stdout || fail "one rank: no machine"

# A mistake is said once.
rc=0
timeout 100 "$mpirun" "${mpi_options[@]}" -n 2 "$CLEAVE" machine --machine optcn >stdout 2>stderr \
    </dev/null || rc=$?
[[ $rc -eq 2 ]] || fail "a mistake: exit $rc, expected 2"
[[ $(grep -c "did you mean 'optcnn'" stderr) -eq 1 ]] || fail "a mistake is not said once"
