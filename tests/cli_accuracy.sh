# Predictions agree with runs: memory and moved bytes of every plan to the byte, times within reason.
# The figures of the comparison agree with each other.
source "$CLEAVE_SOURCE/tests/expect.sh"

unset CLEAVE_PROFILE
export XDG_CACHE_HOME=$PWD/cache TMPDIR=$PWD/tmp
mkdir tmp

# 60000 images make a short last batch, which has programs of its own
run 0 bench accuracy --models lenet5 --data synthetic:mnist --workers 2,3 --steps 4 --rounds 2 \
    --plans serial,data,owt,layers,pipedream,ps \
    --profile costs.db --json
cat >lines.py <<'PYTHON'
import json, os, statistics
lines = [json.loads(line) for line in open("stdout")]
cases = [d for d in lines if d["event"] == "case"]
orders = [d for d in lines if d["event"] == "order"]
skipped = [d for d in lines if d["event"] == "skipped"]
done = lines[-1]
near = lambda a, b: abs(a - b) <= 1e-6 * max(1, abs(a))
PYTHON
true_of_lines() {
    python3 -c "from lines import *
import sys
sys.exit(0 if ($1) else 1)" || fail "not true: $1"
}
true_of_lines 'len(cases) == 11 and not skipped and len({c["plan"] for c in cases}) == 6'
true_of_lines '[c["workers"] for c in cases if c["plan"] == "serial"] == [1]'
true_of_lines 'all(c["predicted_memory_bytes"] == c["memory_bytes"] > 0 for c in cases)'
true_of_lines 'all(c["predicted_bytes_moved"] == c["bytes_moved"] for c in cases)'
true_of_lines 'all((c["bytes_moved"] > 0) == (c["workers"] > 1) for c in cases)'
# Other programs may disturb what one case takes, or what it was predicted from, by a lot, hardly
# most of them. More workers than cores take turns for a time that nothing predicts.
cat >>lines.py <<'PYTHON'
ratios = [c["predicted_step_s"] / min(c["rounds_s"]) for c in cases
          if c["workers"] <= len(os.sched_getaffinity(0))]
PYTHON
true_of_lines '0.2 < statistics.median(ratios) < 5 and all(0.02 < r < 50 for r in ratios)'

# windows are whole: pipedream has four steps for each stage
true_of_lines 'all(c["steps"] == (4 * c["workers"] if c["plan"] == "pipedream" else 4) for c in cases)'
true_of_lines 'all(len(c["rounds_s"]) == 2 and
                   near(c["measured_step_s"], statistics.median(c["rounds_s"])) and
                   near(c["predicted_step_s"], statistics.median(c["predicted_rounds_s"])) and
                   near(c["error"], statistics.median(
                       p / m - 1 for p, m in zip(c["predicted_rounds_s"], c["rounds_s"]))) and
                   near(c["noise"], (max(c["rounds_s"]) - min(c["rounds_s"])) / c["measured_step_s"])
                   for c in cases)'
true_of_lines 'all(near(c["standard_error"], statistics.stdev(
                       p / m for p, m in zip(c["predicted_rounds_s"], c["rounds_s"])) / 2 ** 0.5)
                   for c in cases)'
true_of_lines 'all(near(sum(c["costs"].values()), 1) for c in cases)'
true_of_lines '[o["workers"] for o in orders] == [2, 3] and all(o["plans"] == 6 for o in orders)'
true_of_lines 'all(-1 <= o["rank_correlation"] <= 1 and o["regret"] >= 0 for o in orders)'
for workers in 2 3; do
    true_of_lines "(lambda o, own: o['predicted_fastest'] == min(own, key=lambda c: c['predicted_step_s'])['plan']
        and o['measured_fastest'] == min(own, key=lambda c: c['measured_step_s'])['plan']
        and near(o['regret'], next(c['measured_step_s'] for c in own if c['plan'] == o['predicted_fastest'])
                 / min(c['measured_step_s'] for c in own) - 1))(
        next(o for o in orders if o['workers'] == $workers),
        [c for c in cases if c['workers'] in (1, $workers)])"
done
true_of_lines 'done["event"] == "done" and done["cases"] == 11 and done["skipped"] == 0'
true_of_lines 'done["memory_equal"] == 11 and done["bytes_equal"] == 11'
true_of_lines 'near(done["mean_error"], statistics.mean(abs(c["error"]) for c in cases)) and
               near(done["largest_error"], max(abs(c["error"]) for c in cases))'
true_of_lines 'near(done["within_error_share"], statistics.mean(
               abs(c["error"]) * c["measured_step_s"] <= c["error_s"] for c in cases))'

# only plans whose error is in doubt have more turns; in doubt means after the turns before
run 0 bench accuracy --models lenet5 --data synthetic:mnist --steps 2 --rounds 2 --most-rounds 5 \
    --plans serial,data,owt,layers --profile costs.db --json
cat >>lines.py <<'PYTHON'
def doubt(c, n):
    return statistics.stdev(p / m for p, m in zip(c["predicted_rounds_s"][:n], c["rounds_s"])) / n ** 0.5
def turns_wanted(c):
    return next((n for n in range(2, 5) if doubt(c, n) <= 0.02), 5)
PYTHON
true_of_lines 'len(cases) == 4 and all(len(c["rounds_s"]) == turns_wanted(c) for c in cases)'

# epochs of five batches, the last of them short: windows and single steps are kept apart
run 0 bench accuracy --models lenet5 --data synthetic:1x28x28/10/70 --batch 16 --plans data,pipedream \
    --workers 2 --steps 9 --rounds 1 --profile costs.db --json
true_of_lines 'len(cases) == 1 and cases[0]["plan"] == "data" and cases[0]["steps"] == 9'
true_of_lines 'skipped[0]["plan"] == "pipedream" and "no 8 whole batches" in skipped[0]["reason"]'

# plans that cannot be used are left out, with the reason
run 0 bench accuracy --models lenet5 --data synthetic:mnist --plans serial,layers,data --workers 40 \
    --steps 1 --rounds 1 --no-measure --fresh
says stdout "not run: layers, 40 workers: "
says stdout "memory:    equal in 2 of 2"
python3 -c 'import sys; sys.exit(any(len(l) > 81 for l in open("stdout", encoding="utf-8")
            if not l.startswith("not run")))' || fail "wider than 80 columns"
run 0 bench accuracy --models inceptionv3 --data synthetic:mnist --plans serial --fresh --json
true_of_lines 'not cases and skipped[0]["plan"] == "serial" and done["mean_error"] is None'
[[ -z $(ls tmp) ]] || fail "--fresh left a profile behind"
[[ ! -e cache ]] || fail "--fresh used the usual profile"

run 0 bench accuracy --models lenet5 --data synthetic:mnist --plans serial --steps 1 --profile costs.db \
    --quiet
[[ $(wc -l <stdout) -eq 5 && ! -s stderr ]] || fail "--quiet says more than the summary"

# other runs than the usual one agree with their predictions, too (or exit code 1)
other=(bench accuracy --models lenet5 --data synthetic:mnist --plans data --steps 1 --rounds 1 --fresh --json)
run 0 "${other[@]}" --momentum 0
mv stdout without
run 0 "${other[@]}" --optimizer adamw --augment
holds 'd[0]["memory_bytes"] - json.loads(open("without").readline())["memory_bytes"] >= 2 * 4 * 61706'

refused 2 "did you mean 'lenet5'?" bench accuracy --models lnet5
refused 2 "did you mean 'data'?" bench accuracy --models lenet5 --plans serial,dta
refused 2 "synthetic" bench accuracy --models lenet5 --data synthetic:mnits
refused 2 "--workers 'two' must be" bench accuracy --workers two
refused 2 "--models: there is an empty place in the list" bench accuracy --models lenet5,,vgg11
refused 2 "--most-rounds 2 is less than --rounds 3" bench accuracy --most-rounds 2
refused 2 "do not go together" bench accuracy --fresh --profile x.db
refused 2 "nothing to compare" bench accuracy --plans data --workers 1
