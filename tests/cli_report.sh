# What a training leaves behind, and the page that cleave report makes of it and of other results:
# every file of the record, the page's data, mistakes. cli_browser.sh opens pages.
source "$CLEAVE_SOURCE/tests/expect.sh"
export CLEAVE_PROFILE=$TEST_FOLDER/profile.db
data=synthetic:1x28x28/10/400

# the data element of a page, into the file stdout, for `holds`
page() {
    python3 - "$1" >page.json <<'PYTHON' || fail "$1: no data in the page"
import json, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
print(json.dumps(json.loads(found.group(1))))
PYTHON
    mv page.json stdout
}

# ---- the record ----

run 0 train lenet5 --data $data --batch 64 --epochs 2 --workers 2 --plan owt --run deep/run --json
events=$(cat stdout)
[[ ! -e deep/run/search.json ]] || fail "a search where none was made"
for file in config.json versions.json network.json plan.json machine.json prediction.json \
    events.jsonl trace.json predicted-trace.json checkpoint.json; do
    [[ -s deep/run/$file ]] || fail "the record has no $file"
done
compgen -G 'deep/run/checkpoint-*.safetensors' >/dev/null || fail "the record has no weights"
[[ $(cat deep/run/events.jsonl) == "$events" ]] || fail "events.jsonl is not what --json prints"
python3 - <<'PYTHON' || fail "config.json"
import json
d = json.load(open("deep/run/config.json"))
assert d["model"] == "lenet5" and d["batch"] == 64 and d["workers"] == 2 and d["plan"] == "owt"
assert d["dropout"] is None and d["checkpoint_every"] == 0
assert d["optimizer"]["name"] == "sgd" and d["optimizer"]["momentum"] == 0.9 and d["seed"] == 1
n = json.load(open("deep/run/network.json"))
assert n["name"] == "lenet5" and n["nodes"][1]["loops"]["output"]["k"] == 6
v = json.load(open("deep/run/versions.json"))
assert v["cleave"] and v["began"].endswith("Z")
done = [json.loads(l) for l in open("deep/run/events.jsonl")][-1]
p = json.load(open("deep/run/prediction.json"))
assert done["predicted_step_s"] == p["step_s"] and p["limit_bytes"] > 0
PYTHON
# its parts can be handed back in
run 0 plan check deep/run/plan.json lenet5 --data $data --batch 64
run 0 machine --machine deep/run/machine.json
# another run does not write over it; the same one goes on
refused 2 "holds the record of another run" train lenet5 --data $data --run deep/run
run 0 train lenet5 --data $data --batch 64 --epochs 3 --workers 2 --plan owt --run deep/run --resume
[[ $(grep -c '"event":"epoch"' deep/run/events.jsonl) -eq 3 ]] || fail "a resumed run begins anew"

# not two at once
mkdir busy
exec 9>busy/record.lock
flock 9
refused 2 "another run is writing there: another process: name" train mlp --data $data --steps 1 --no-eval --run busy
refused 2 "another run is writing there" train mlp --data $data --steps 1 --no-eval --run busy --resume
exec 9<&-
run 0 train mlp --data $data --steps 1 --no-eval --run busy # the file alone locks nothing
[[ ! -e busy/record.lock ]] || fail "the lock stayed"

# without --run: numbered, and light
run 0 train mlp --data $data --steps 2 --no-eval
says stderr "recorded in runs/mlp-001"
run 0 train mlp --data $data --steps 2 --no-eval --quiet
[[ -s runs/mlp-002/trace.json && -s runs/mlp-002/plan.json ]] || fail "runs/mlp-002"
[[ -s runs/mlp-002/prediction.json && ! -e runs/mlp-002/checkpoint.json ]] || fail "not light"
run 0 train mlp --data $data --steps 2 --no-eval --run none
[[ ! -e runs/mlp-003 && ! -e none ]] || fail "--run none left a record"
# nor may another run write into a numbered one
"$CLEAVE" train mlp --data $data --epochs 5000 --no-eval --quiet >long.txt 2>&1 &
long=$!
for _ in {1..200}; do [[ -s runs/mlp-003/events.jsonl ]] && break || sleep 0.05; done
refused 2 "another run is writing there: process $long on " train mlp --data $data --steps 1 --no-eval --run runs/mlp-003 --resume
kill -TERM $long
wait $long || [[ $? -eq 6 ]] || fail "a stopped run"
rm -r runs/mlp-003
# a mistake leaves nothing
run 2 train lenet55 --data $data --run wrong
[[ ! -e wrong && ! -e runs/lenet55-001 ]] || fail "a mistake left a directory"
# where nothing can be written, not even by root, the training goes on
mkdir closed
touch closed/runs
(cd closed && CLEAVE_PROFILE=$TEST_FOLDER/profile.db "$CLEAVE" train mlp --data $data \
    --steps 1 --no-eval >../stdout 2>../stderr) || fail "a record that cannot be written ends the run"
says stderr "the record of this run is incomplete: runs/mlp-001: cannot make the directory"
# the trace where it was asked for, and in the record
run 0 train mlp --data $data --steps 2 --no-eval --trace my.json --run traced
cmp my.json traced/trace.json || fail "--trace and --run"
cp my.json first.json
run 0 train mlp --data $data --steps 3 --no-eval --trace my.json --run traced-again
cmp my.json traced-again/trace.json || fail "--trace and --run, again"
cmp first.json traced/trace.json || fail "a run wrote into the record of another"
# a trace that is written by default does not end the run where it cannot be written
mkdir -p spoilt/trace.json
run 0 train mlp --data $data --steps 2 --no-eval --run spoilt
says stderr "spoilt/trace.json: cannot write: Is a directory; this run has no trace"
grep -q '"event":"done"' spoilt/events.jsonl || fail "a record without a trace has no end"

# what --plan auto chose from is kept, wherever temporary files go
TMPDIR=$PWD/nowhere run 0 train mlp --data $data --batch 64 --steps 2 --no-eval --plan auto --workers 1 --run chosen
python3 - <<'PYTHON' || fail "search.json"
import json
d = json.load(open("chosen/search.json"))
assert d["best"] in [c["name"] for c in d["candidates"]] and d["model"] == "mlp" and d["batch"] == 64
done = [json.loads(l) for l in open("chosen/events.jsonl")][-1]
best = [c for c in d["candidates"] if c["name"] == d["best"]][0]
assert abs(done["predicted_step_s"] - best["step_s"]) < 1e-6 * best["step_s"]
PYTHON
python3 - <<'PYTHON' || fail "the timelines of the candidates"
import json
d = json.load(open("chosen/search.json"))
best = [c for c in d["candidates"] if c["name"] == d["best"]][0]
assert best["plan"]["layers"] and best["timeline"]["kind"] == "predicted"
assert abs(best["timeline"]["span_s"] - best["step_s"]) < 0.5 * best["step_s"]
PYTHON
# not for a run that goes on under another plan
run 0 train mlp --data $data --batch 64 --steps 4 --no-eval --plan data --workers 2 --run chosen --resume
[[ ! -e chosen/search.json && -s chosen/trace.json ]] || fail "a search for another plan is left"

# ---- TensorBoard ----

board=(train lenet5 --data $data --batch 64 --workers 2 --plan data --tensorboard board/a --json)
run 0 "${board[@]}" --epochs 2 --run boarded
cp boarded/events.jsonl whole.jsonl
python3 "$CLEAVE_SOURCE/tests/tensorboard_read.py" board/a >shown.json || fail "the event file cannot be read"
cat >compare.py <<'PYTHON'
import json, sys
shown = json.load(open("shown.json"))
events = [json.loads(line) for line in open("boarded/events.jsonl")]
steps = [e for e in events if e["event"] == "step"]
epochs = [e for e in events if e["event"] == "epoch"]
def same(tag, want):
    got = shown[tag]
    assert [x[0] for x in got] == [x[0] for x in want], (tag, got, want)
    assert all(abs(a[1] - b[1]) <= 1e-6 * abs(b[1]) for a, b in zip(got, want)), (tag, got, want)
assert len(steps) == int(sys.argv[1]) and [e["step"] for e in steps] == list(range(1, len(steps) + 1))
same("train/loss", [[e["step"], e["loss"]] for e in steps])
same("epoch/train_loss", [[e["step"], e["train_loss"]] for e in epochs])
same("epoch/test_loss", [[e["step"], e["test_loss"]] for e in epochs])
same("epoch/test_accuracy", [[e["step"], e["test_accuracy"]] for e in epochs])
assert len(shown["train/images_per_s"]) == len(steps) and shown["train/images_per_s"][0][1] > 0
rates = [x[1] for x in shown["train/learning_rate"]]
assert abs(rates[0] - 0.05) < 1e-3 and all(a > b for a, b in zip(rates[:14], rates[1:14]))
PYTHON
python3 compare.py 14 || fail "the events are not those of the run"
refused 2 "holds the events of another run" "${board[@]}" --epochs 2 --run none
# a full disk leaves no empty file, which the next run would take for another's
status=0
(trap '' XFSZ && ulimit -f 0 && exec "$CLEAVE" train mlp --data $data --steps 1 --no-eval --run none \
    --tensorboard board/full >/dev/null 2>&1) || status=$?
[[ $status -eq 1 && -z $(ls board/full) ]] || fail "a full disk: exit $status, left $(ls board/full)"
run 0 train mlp --data $data --steps 1 --no-eval --run none --tensorboard board/full
# as if it had been killed after step 14, writing both files: steps 15 to 17 are void, and half a line
sed -n '/"event":"step"/p' whole.jsonl | tail -n 3 | sed 's/"step":1/"step":2/' >>boarded/events.jsonl
printf '{"event":"step","st' >>boarded/events.jsonl
for file in board/a/*; do head -c 30 "$file" >half && cat half >>"$file"; done
run 0 "${board[@]}" --epochs 3 --run boarded --resume
python3 "$CLEAVE_SOURCE/tests/tensorboard_read.py" board/a >shown.json || fail "the resumed events cannot be read"
python3 compare.py 21 || fail "a resumed run"
run 0 report boarded -o boarded.html

# ---- the page ----

run 0 report deep/run -o one.html --json
holds 'd["report"] == "one.html" and 300000 < d["bytes"] < 2000000'
grep -q -i -E '(src|href)="(https?:)?//' one.html && fail "the page asks for something from outside"
page one.html
holds 'len(d["subjects"]) == 1 and d["subjects"][0]["name"] == "deep/run"'
holds 'sorted(t["kind"] for t in d["subjects"][0]["timelines"]) == ["measured", "predicted"]'
holds 'all(len(t["counts"]) == 4 and sum(t["counts"]) > 40 for t in d["subjects"][0]["timelines"])'
holds 'len(d["subjects"][0]["epochs"]) == 3 and d["subjects"][0]["config"]["batch"] == 64'
holds 'len(d["subjects"][0]["steps"]["loss"]) == 21 and d["subjects"][0]["steps"]["step"][-1] == 21'

# packed times are those of the trace
python3 - <<'PYTHON' || fail "the packed timeline is not the trace"
import base64, json
t = [x for x in json.load(open("stdout"))["subjects"][0]["timelines"] if x["kind"] == "predicted"][0]
data, at = base64.b64decode(t["data"]), 0
def number():
    global at
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value
lanes = []
for n in t["counts"]:
    reached, lane = 0, []
    for _ in range(n):
        step = number()
        begin = reached + (-(step + 1) // 2 if step & 1 else step // 2)
        reached = begin + number()
        tag = number()
        lane.append((begin * t["quantum_s"], (reached - begin) * t["quantum_s"], t["names"][tag // 8]))
    lanes.append(lane)
assert at == len(data)
want = [e for e in json.load(open("deep/run/predicted-trace.json"))["traceEvents"] if e["ph"] == "X"]
assert len(want) == sum(t["counts"])
for e in want:
    lane = lanes[2 * e["pid"] + (e["tid"] > 0)]
    near = [s for s in lane if s[2] == e["name"] and abs(s[0] - e["ts"] * 1e-6) < 3 * t["quantum_s"]
            and abs(s[1] - e["dur"] * 1e-6) < 3 * t["quantum_s"]]
    assert near, e
PYTHON

# files: they join the subject before them; a second of a kind begins another
run 0 predict lenet5 --data $data --batch 64 --workers 2 --plan data --no-measure --trace p.trace --json
mv stdout p.json
run 0 plan make data lenet5 --data $data --batch 64 --workers 2 -o plan.json
run 0 bench limits lenet5 --data synthetic:mnist --machine 4x1:p100 --workers 1,2,4 --batch 64 --json
mv stdout limits.json
echo '{"candidates":[{"name":"data","step_s":0.1,"error_s":0.01,"images_per_s":1,"epoch_s":1,
  "memory_bytes":1000,"bytes_moved":5,"fits":true}],"best":"data","search_s":0.1,"model":"lenet5"}' >search.json
run 0 report plan.json p.json p.trace limits.json search.json --data $data --batch 64 -o files.html
page files.html
holds 'len(d["subjects"]) == 1 and set(d["subjects"][0]) == {"name", "timelines", "plan", "network",
       "prediction", "limits", "search"}'
holds 'd["subjects"][0]["plan"]["layers"]["fc1"]["cut"] == {"n": 2}'
run 0 report deep/run traced p.json plan.json -o three.html
page three.html
holds '[s["name"] for s in d["subjects"]] == ["deep/run", "traced", "p.json"]'
holds '"plan" in d["subjects"][2] and d["subjects"][2]["prediction"]["plan"] == "data"'
# a plan alone is predicted
run 0 report plan.json --data $data --batch 64 --machine 1x2:p100 -o alone.html
page alone.html
holds 'd["subjects"][0]["prediction"]["machine"] == "1x2:p100" and d["subjects"][0]["prediction"]["batch"] == 64'
holds '[t["kind"] for t in d["subjects"][0]["timelines"]] == ["predicted"] and "plan_path" not in d["subjects"][0]'
# beside it what other strategies would move, as a prediction of them says
run 0 predict lenet5 --data $data --batch 64 --workers 2 --plan owt --no-measure --json
owt=$(python3 -c 'import json; print(json.load(open("stdout"))["bytes_moved"])')
page alone.html
holds "[s['bytes_moved'] for s in d['subjects'][0]['strategies'] if s['name'] == 'owt'] == [$owt]"
holds '{"data", "model", "spatial", "gpipe", "ps"} <= {s["name"] for s in d["subjects"][0]["strategies"]}'
# or shown without costs
run 0 report plan.json --data $data --batch 64 --machine nowhere.json -o alone.html
says stderr "its costs are not in the report"
page alone.html
holds '"prediction" not in d["subjects"][0]'
# studies of workers, and limits that were put into the record
run 0 plan lenet5 --data synthetic:mnist --batch 64 --machine 1x4:p100 --workers 1..4 --json
mv stdout study.json
cp limits.json deep/run/limits.json
run 0 report deep/run study.json -o study.html
page study.html
holds 'len(d["subjects"]) == 1 and len(d["subjects"][0]["study"]["points"]) == 3'
holds 'len(d["subjects"][0]["limits"]["fixed"]["points"]) == 3'
cp study.json deep/run/limits.json
refused 1 "limits.json: is not what 'cleave bench limits --json' prints" report deep/run -o study.html
rm deep/run/limits.json
# a search that kept its plans is a report by itself
details=(plan lenet5 --data $data --batch 64 --machine 1x4:p100)
refused 2 "--details is about what --json prints" "${details[@]}" --details 3
refused 2 "--details is for one plan" "${details[@]}" --details 3 --json --batches 64,128
run 0 "${details[@]}" --json
holds 'all("plan" not in c and "timeline" not in c for c in d["candidates"])'
run 0 "${details[@]}" --details 3 --json
holds 'sum("plan" in c for c in d["candidates"]) == 3 == sum("timeline" in c for c in d["candidates"])'
holds '[c["plan"]["workers"] == c["workers"] for c in d["candidates"] if c["name"] == d["best"]] == [True]'
mv stdout details.json
run 0 report details.json -o details.html
page details.html
holds 'd["subjects"][0]["plan"]["layers"] and d["subjects"][0]["network"]["batch"] == 64'
holds '[t["workers"] for t in d["subjects"][0]["timelines"]] == [d["subjects"][0]["plan"]["workers"]]'
# both times in one trace
run 0 predict lenet5 --data $data --batch 64 --workers 2 --plan owt --no-measure --trace both.trace \
    --merge deep/run/trace.json
run 0 report both.trace -o both.html
page both.html
holds 'sorted(t["kind"] for t in d["subjects"][0]["timelines"]) == ["measured", "predicted"]'
# text that would end a script element stays text
sed 's/"name": "data"/"name": "<\/script><b>"/' plan.json >odd.json
run 0 report odd.json --data $data --batch 64 -o odd.html
grep -qF '</script><b>' odd.html && fail "text of a plan got out of its element"
page odd.html
holds 'd["subjects"][0]["plan"]["name"] == "</script><b>"'
# a run that was killed: half a line at the end of the events
head -c 300 deep/run/events.jsonl >half.jsonl
run 0 report half.jsonl -o half.html
# or zero bytes, where the machine went down before its last lines were on the disk
{ head -n 3 deep/run/events.jsonl; printf '\0\0\0'; } >zeros.jsonl
run 0 report zeros.jsonl -o zeros.html
# a run that went on after its end and was killed: what that end said no longer holds
{ cat deep/run/events.jsonl && head -n 1 deep/run/events.jsonl | sed 's/"step":1,/"step":22,/'; } >on.jsonl
run 0 report on.jsonl -o on.html
page on.html
holds '"done" not in d["subjects"][0] and d["subjects"][0]["steps"]["step"][-1] == 22'
run 0 report deep/run/events.jsonl -o on.html
page on.html
holds 'd["subjects"][0]["done"]["steps"] == 21'
# a step without its number has no place, and moves no other
{ echo '{"event":"step","loss":9}' && head -n 3 deep/run/events.jsonl; } >nameless.jsonl
run 0 report nameless.jsonl -o nameless.html
page nameless.html
holds '{len(column) for column in d["subjects"][0]["steps"].values()} == {3}'

# or half of another file, as a full disk does: the report goes without it
for file in network.json predicted-trace.json; do
    rm -rf partly
    cp -r deep/run partly
    head -c -20 deep/run/$file >partly/$file
    run 0 report partly -o partly.html
    says stderr "partly/$file:"
    says stderr "the report goes without this file"
    page partly.html
    holds '("network" in d["subjects"][0]) + len(d["subjects"][0]["timelines"]) == 2'
    holds 'len(d["subjects"][0]["epochs"]) == 3 and "prediction" in d["subjects"][0]'
done

# or a member of another type: it is named, here and in the page
rm -rf partly
cp -r deep/run partly
python3 - <<'PYTHON'
import json
network = json.load(open("partly/network.json"))
network["nodes"][1]["inputs"] = "x"
json.dump(network, open("partly/network.json", "w"))
plan = json.load(open("partly/plan.json"))
plan["stages"] = [None]
json.dump(plan, open("partly/plan.json", "w"))
PYTHON
run 0 report partly -o partly.html
says stderr "partly/network.json: nodes/1/inputs must be a list"
says stderr "partly/plan.json: stages/0 is missing, it must be an object"

# ---- mistakes ----

# a file that was named itself fails
echo '{"step_s": "x", "workers": [], "costs": {}}' >wrong.json
refused 1 "wrong.json: step_s must be a number" report wrong.json
refused 2 "PATH is missing" report
refused 1 "nothing.json: cannot read" report nothing.json
mkdir empty
refused 2 "is no run's directory" report empty
echo '{"a": 1}' >other.json
refused 2 "is nothing that a report can show" report other.json
refused 2 "deep/run/checkpoint.json: is a checkpoint, which no report shows; 'cleave report deep/run'" \
    report deep/run/checkpoint.json
refused 2 "holds weights (safetensors), which no report shows; 'cleave report deep/run'" \
    report deep/run/checkpoint-*.safetensors
cp deep/run/checkpoint.json lonely.json
refused 2 "is a checkpoint, which no report shows; give it the directory of a run" report lonely.json
printf 'PK\3\4\0\0' >weights.pt
refused 2 "weights.pt: is no text, and nothing that a report can show" report weights.pt
printf '{"a": 1,\n  b}' >broken.json
refused 1 "broken.json:2:" report broken.json
printf '{"displayTimeUnit":"ms"}\n' >bad.trace
refused 1 "is no trace" report bad.trace
{ head -n 3 p.trace; echo '{"ph":"X",'; } >bad.trace
refused 1 "bad.trace:4:" report bad.trace
sed 's/"pid":1,/"pid":4294967297,/' p.trace >bad.trace
refused 1 "a slice of worker 4294967297, of 2" report bad.trace
sed 's/"model": "[^"]*", //' plan.json >nameless.json
refused 2 "does not say which network" report nameless.json
refused 1 "cannot write" report deep/run -o missing/one.html
# no file that a report reads is replaced by it
cp plan.json own.json
refused 2 "own.json: this command reads that file" report own.json -o own.json
cmp -s plan.json own.json || fail "the report replaced its input"
refused 2 "plan.json: this command reads that file" report deep/run -o deep/run/plan.json
refused 2 "is a checkpoint, which no report shows" report deep/run/checkpoint.json
refused 2 "holds weights (safetensors), which no report shows" report deep/run/checkpoint-*.safetensors
# a disk that is full leaves the page of before
echo before >kept.html
(
    ulimit -f 8
    trap '' XFSZ
    refused 1 "kept.html: cannot write: File too large" report deep/run -o kept.html
) || exit 1
[[ $(cat kept.html) == before ]] || fail "half a page"
compgen -G 'kept.html.*' >/dev/null && fail "a temporary file stayed"
run 0 report plan.json -o /dev/stdout
head -c 15 stdout | grep -q DOCTYPE || fail "no page on a stream"
# a file without an end of a line is not read into memory
mkdir zeros
cp deep/run/config.json zeros
truncate -s 1G zeros/events.jsonl
(
    # a sanitizer needs more addresses
    if (ulimit -v 2000000 && "$CLEAVE" --version >/dev/null 2>&1); then
        ulimit -v 2000000
    fi
    refused 1 "events.jsonl:1: a line of more than 16 MiB" report zeros -o zeros.html
) || exit 1
# more steps than are kept while they are read
mkdir many
cp deep/run/config.json many
python3 -c 'for i in range(1, 300001): print("{\"event\":\"step\",\"step\":%d,\"loss\":%d,\"step_s\":1}" % (i, i))' \
    >many/events.jsonl
run 0 report many -o many.html
page many.html
holds 'len(d["subjects"][0]["steps"]["loss"]) == 2000 and d["subjects"][0]["steps"]["step"][-1] == 300000'
holds 'all(abs(a - 150 * (i + 0.5)) < 3 for i, a in enumerate(d["subjects"][0]["steps"]["loss"]))'
cp -r deep/run $'odd\xff'
refused 2 "this name is no UTF-8" report $'odd\xff'
run 0 train mlp --data $data --steps 1 --no-eval --run $'name\xff'
says stderr "config.json: cannot write: a path in it is not UTF-8"
