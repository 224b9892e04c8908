# Pages of cleave report opened in headless Chromium, checked by report_browser.py. One page has
# all parts, one compares two runs, one is of 1024 workers. SHOTS=DIR keeps pictures.
source "$CLEAVE_SOURCE/tests/expect.sh"
export CLEAVE_PROFILE=$TEST_FOLDER/profile.db HOME=$TEST_FOLDER
# Debian's python3 has Debian's python3-selenium, whatever other Python stands before it.
python=/usr/bin/python3
command -v chromium >/dev/null && command -v chromedriver >/dev/null && $python -c 'import selenium' ||
    skip "chromium, chromium-driver or python3-selenium is not installed"

data=synthetic:1x28x28/10/1200
run 0 train lenet5 --data $data --batch 64 --epochs 3 --workers 2 --plan owt --run a
run 0 train lenet5 --data $data --batch 64 --epochs 3 --workers 2 --plan data --run b
run 0 plan lenet5 --data $data --batch 64 --workers 2 --machine 1x2:p100 --json
mv stdout search.json
mkdir -p p/same q/same
cp -r a p/same/run
cp -r b q/same/run
run 0 report p/same/run q/same/run -o labels.html
run 0 bench limits vgg16 --data imagenet --machine 16x1:p100,inter=1GB/s --workers 1,2,4,8,16 \
    --batch 256 --json
mv stdout limits.json
run 0 report a search.json limits.json -o all.html
grep -v '"event":"step"' a/events.jsonl >quiet.jsonl # what --json --quiet prints
run 0 report quiet.jsonl -o quiet.html
run 0 report a b -o two.html
# as if it had been resumed under another plan, and killed in its last step
mkdir killed
cp a/*.json killed
sed -i 's/"first_step": 0/"first_step": 40/' killed/config.json
python3 - <<'PYTHON'
import json
with open("killed/events.jsonl", "w") as out:
    for e in map(json.loads, open("a/events.jsonl")):
        if e["event"] == "step":
            e["step_s"], e["compute_s"] = (0.5, 0.25) if e["step"] > 40 else (8, 4)
            print(json.dumps(e), file=out)
PYTHON
run 0 report killed -o killed.html

# a search, and runs of two networks under a plan of the same name
run 0 train mlp --data $data --batch 64 --steps 5 --no-eval --workers 2 --plan data --run other
sed 's/"machine": *"1x2:p100"/"machine":"local"/' search.json >here.json
run 0 report other b here.json -o marked.html

# 1024 workers, 311 layers; nothing there depends on this host
large=(inceptionv3 --data imagenet --workers 1024 --batch 16384)
run 0 predict "${large[@]}" --machine 128x8:v100 --trace large.trace --json
mv stdout large.json
run 0 plan make data "${large[@]}" -o plan.json
run 0 report plan.json large.json large.trace --data imagenet --batch 16384 -o large.html
rm large.trace

# one long message, and many short ones while it is under way
python3 - >long.trace <<'PYTHON'
import json
def put(name, tid, ts, dur):
    kind = "communicate" if tid else "compute"
    return json.dumps({"ph": "X", "name": name, "pid": 0, "tid": tid, "cat": kind, "ts": ts, "dur": dur, "args": {"step": 1}})
events = [put("forward a", 0, 0, 1000), put("reduce a", 1, 0, 1000)] + [put("send b", 2, 10 * i, 5) for i in range(1, 41)]
print('{"displayTimeUnit":"ms","otherData":{"kind":"predicted","plan":"x","workers":1,"runs":[]},')
print('"traceEvents":[\n' + ",\n".join(events) + "\n]}")
PYTHON
run 0 report long.trace -o long.html

# 32 workers and a plan whose cuts change: repeated blocks, links of two speeds
wide=(resnet50 --data imagenet --batch 1024)
run 0 plan make owt "${wide[@]}" --workers 32 -o owt.json
run 0 predict "${wide[@]}" --machine 4x8:v100,intra=15GB/s,inter=4.5GB/s --plan owt.json --trace wide.trace --json
mv stdout wide.json
run 0 report owt.json wide.json wide.trace --data imagenet --batch 1024 -o wide.html

# the same with blocks whose layers are not all cut alike
python3 - <<'PYTHON'
import json
plan = json.load(open("owt.json"))
plan["layers"]["layer3.2.conv2"] = plan["layers"]["layer4.2.conv3"] = {"cut": {"k": 4}}
json.dump(plan, open("mixed.json", "w"))
PYTHON
run 0 report mixed.json --data imagenet --batch 1024 --machine nowhere.json -o mixed.html

# a search that kept the plans and timelines of its best
run 0 plan lenet5 --data $data --batch 64 --workers 2 --machine 1x2:p100 --details 4 --json
mv stdout details.json
run 0 report details.json -o details.html

# a pipeline: messages between its stages
run 0 predict lenet5 --data $data --batch 64 --workers 4 --machine 1x4:p100 --plan gpipe --trace pipe.trace --json
mv stdout pipe.json
run 0 report pipe.json pipe.trace -o pipe.html

# Made from the files at hand: a plan that does not fit and would be the fastest; a search that named another
# time than the prediction; a study that says how many workers are worth it; a second plan of the page.
python3 - <<'PYTHON'
import json, shutil
def load(path):
    return json.load(open(path))
def save(value, path):
    json.dump(value, open(path, "w"))
pipe = load("pipe.json")
save({**pipe, "plan": "owt", "step_s": pipe["step_s"] / 2, "fits": False}, "nofit.json")
search = load("search.json")
order = sorted((c for c in search["candidates"] if c["clocked"] and c["fits"]), key=lambda c: c["step_s"])
search["candidates"].append({**order[0], "name": "a very long name indeed", "step_s": order[0]["step_s"] / 2, "fits": False})
save(search, "nofit-search.json")
search = load("search.json")
search["candidates"][-1]["step_s"] = 100 * max(c["step_s"] for c in search["candidates"])
search["candidates"][1]["stale"] = True
save(search, "outlier.json")
limits = load("limits.json")
limits["fixed"]["points"][0]["fits"] = False
save(limits, "nofit-limits.json")
shutil.copytree("a", "told")
own = {**load("search.json"), "machine": "local", "best": "owt"}
for c in own["candidates"]:
    c["step_s"] = {"owt": 0.0123, "data": 0.0124}.get(c["name"], 0.02 + (c["step_s"] or 0))
    c["error_s"], c["stale"] = 0.001, False
    c["tried_s"] = {"owt": 0.012, "data": 0.0125, "spatial": 0.02}.get(c["name"])
    c["family"] = "x" if c["name"] in ("owt", "data") else c["family"]
save(own, "told/search.json")
prediction = load("told/prediction.json")
save({**prediction, "step_s": 0.0119}, "told/prediction.json")
events = [json.loads(line) for line in open("told/events.jsonl")]
events[-1].update(predicted_step_s=0.0123, predicted_error_s=0.001)
# A worker that computes all of the time: computing limits this run.
for e in events:
    if e["event"] == "step":
        e.update(compute_s=e["step_s"], wait_s=0, communicate_s=0)
def save_events(events, path):
    open(path, "w").write("".join(json.dumps(e) + "\n" for e in events))
save_events(events, "told/events.jsonl")
limits = load("limits.json")
limits.update(model="lenet5")
limits["fixed"].update(batch=64, worth_workers=2)
save(limits, "told/limits.json")
# the same, waiting for messages; and on a host that was busy with something else
for name, compute, wait in (("slow", 0.5, 0.45), ("busy", 0.2, 0.1)):
    shutil.copytree("told", name)
    for e in events:
        if e["event"] == "step":
            e.update(compute_s=compute * e["step_s"], wait_s=wait * e["step_s"], communicate_s=0.45 * e["step_s"])
    save_events(events, name + "/events.jsonl")
# files of a run that somebody edited
for name, file, change in (("types", "network.json", lambda d: d.update(nodes=7)), ("inputs", "network.json", lambda d: d["nodes"][2].update(inputs="conv1")),
                           ("circle", "network.json", lambda d: d["nodes"][1].update(inputs=[5])), ("cut", "plan.json", lambda d: d["layers"].update(conv1={"cut": {"n": {}}})),
                           ("stages", "plan.json", lambda d: d.update(stages=[None])), ("memory", "prediction.json", lambda d: d["workers"][0].update(memory=3)),
                           ("candidates", "search.json", lambda d: d.update(candidates=[None])), ("nameless", "network.json", lambda d: d["nodes"][2].pop("name")), ("links", "machine.json", lambda d: d.update(nodes={}))):
    shutil.copytree("told", "broken-" + name)
    value = load(f"broken-{name}/{file}")
    change(value)
    save(value, f"broken-{name}/{file}")
PYTHON
run 0 report pipe.json nofit.json -o nofit.html
run 0 report nofit-search.json -o nofit-search.html
run 0 report told b -o told.html
for broken in broken-*; do run 0 report $broken -o $broken.html; done
for name in nofit-limits outlier slow busy; do
    if [[ -d $name ]]; then run 0 report $name -o $name.html; else run 0 report $name.json -o $name.html; fi
done
# what C writes has the right types; a page that was changed, or a script that fails, may not stay empty
python3 - <<'PYTHON'
import json, re
text = open("told.html", encoding="utf-8").read()
data = re.search(r'(<script type="application/json" id="data">)(.*?)(</script>)', text, re.S)
def put(name, inside, behind=""):
    open(name, "w", encoding="utf-8").write(text[:data.start(2)] + inside + data.group(3) + behind + text[data.end():])
for name, key, value in (("epochs", "epochs", 3), ("columns", "steps", {"loss": 1})):
    page = json.loads(data.group(2))
    page["subjects"][0][key] = value if key == "epochs" else {**page["subjects"][0][key], **value}
    put(f"broken-{name}.html", json.dumps(page).replace("<", "\\u003c"))
put("unreadable.html", "{")
put("throws.html", data.group(2), "<script>throw new Error('boom')</script>")
PYTHON

$python "$CLEAVE_SOURCE/tests/report_browser.py" "$PWD" ${SHOTS:+"$SHOTS"} || fail "in the browser"
