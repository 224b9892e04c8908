# Workers that compute for those that are behind: the same losses, less waiting.
source "$CLEAVE_SOURCE/tests/expect.sh"

cores=$(env -u OMP_NUM_THREADS nproc)
data=synthetic:3x16x16/10/64
train="train resnet18 --data $data --batch 16 --threads 1 --steps 3 --no-eval --run none --json"

# one of two workers has most of the images, so that the other waits for it
run 0 plan make data resnet18 --data $data --batch 16 --workers 2 -o even.json
sed 's/"n": 2/"n": [12, 4]/' even.json >uneven.json

steps='[e["loss"] for e in map(json.loads, open("first")) if e["event"] == "step"]'
run 0 $train --workers 2 --plan uneven.json
holds 'd[-1]["help_share"] == 0'
cp stdout first

run 0 $train --workers 2 --plan uneven.json --balance
holds "len($steps) == 3 and all(abs(e['loss'] - b) < 1e-4 * b for e, b in zip(d, $steps))"
(($cores < 2)) || holds 'd[-1]["help_share"] > 0'
cp stdout first

# who computed what is chance; what comes out is not
for _ in 1 2 3; do
    run 0 $train --workers 2 --plan uneven.json --balance
    holds "[e['loss'] for e in d if e['event'] == 'step'] == $steps"
done

run 0 train resnet18 --data $data --batch 16 --threads 1 --steps 2 --workers 2 --balance --run none
says stdout "computing for them"

# one worker has nobody to help, and too many have no core to do it on
run 0 $train --workers 1 --balance
holds 'd[-1]["help_share"] == 0'
run 0 train lenet5 --data synthetic:mnist --limit 640 --batch 64 --threads 1 --steps 2 --no-eval \
    --run none --workers $(($cores + 1)) --balance
says stderr "none is free to compute for another"

refused 2 "one thread each, not 2" $train --workers 2 --threads 2 --balance
