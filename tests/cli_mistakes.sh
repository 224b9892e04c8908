# The most likely mistakes of people who use Cleave for the first time, typed as they would: each answer
# says what to do. docs/mistakes.md shows these commands and answers: GOLDEN=write writes that page
# anew (make golden).
source "$CLEAVE_SOURCE/tests/expect.sh"
page=$CLEAVE_SOURCE/docs/mistakes.md

# ---- what there is ----

mkdir empty photos
"$CLEAVE" plan make data lenet5 --workers 2 -o two-workers.json
"$CLEAVE" train lenet5 --data synthetic:mnist --batch 8 --limit 8 --steps 1 --no-eval --quiet --checkpoint saved \
    --run runs/first --backend reference >/dev/null

# ---- how one is tried ----

# A cell of the table in the page.
cell() {
    sed -E 's/\|/\\|/g' | tr '\n' ' ' | sed 's/ *$//'
}

section() {
    printf '\n## %s\n\n| you type | it answers | exit code |\n|---|---|---|\n' "$1" >>rows
}

# mistake STATUS TEXT WORDS...: the answer holds the text and is one line on stderr, beside advice
# among the results.
mistake() {
    local expected=$1 text=$2 answer
    shift 2
    run "$expected" "$@"
    if [[ $expected -ne 0 ]]; then
        grep -q '^cleave: error: ' stderr || fail "cleave $*: no 'cleave: error:'"
        [[ $(wc -l <stderr) -eq 1 ]] || fail "cleave $*: more than one line"
    fi
    { sed -n '/^fits with/,$p' stdout | tr '\n' ' ' | sed 's/ fits with/\nfits with/g; s/   */ /g; s/ *$/\n/'; grep -E 'error:|warning:|no checkpoint' stderr; } >answer
    says answer "$text"
    # The number of cores depends on the machine.
    answer=$(sed -E 's/share [0-9]+ cores?/share 2 cores/; s/cores for [0-9]+/cores for 2/; s/^.*$/`&`/' answer |
        cell | sed 's/` `/`<br>`/g')
    printf '| `%scleave%s` | %s | %d |\n' "${CLEAVE_MEMORY_LIMIT:+CLEAVE_MEMORY_LIMIT=$CLEAVE_MEMORY_LIMIT }" \
        "${*:+ $(cell <<<"$*")}" "$answer" "$expected" >>rows
}

# ---- the mistakes ----

section "Commands"
run 0 # no mistake: it says what there is
says stdout "Usage: cleave COMMAND"
says stdout "cleave train lenet5 --data fashion-mnist"
mistake 2 "did you mean 'train'?" trian lenet5
mistake 2 "a command must come first: 'cleave train resnet18'" resnet18
mistake 2 "'cleave bench layers resnet18'" bench resnet18
mistake 2 "MODEL is missing: mlp, lenet5" train
mistake 2 "did you mean '--machine 4x4:p100'?" machine 4x4:p100

section "Networks"
mistake 2 "did you mean 'resnet18'?" train resnet-18
mistake 2 "did you mean 'resnet18'?" train resnet
mistake 2 "did you mean 'vgg11'?" show vgg
mistake 2 "MODEL goes without one: 'cleave train MODEL [options]'" train --model lenet5
mistake 2 "the images are 1x28x28: take others, or another network" train alexnet --data fashion-mnist

section "Options"
mistake 2 "did you mean '--data'?" train resnet18 --dataset cifar10
mistake 2 "did you mean '--batch'?" train lenet5 --batch-size 64
mistake 2 "did you mean '--lr'?" train lenet5 --learning-rate 0.1
mistake 2 "did you mean '--backend'?" train lenet5 --gpu
mistake 2 "this build has none for GPUs" train lenet5 --backend gpu
mistake 2 "--batch '0' must be a whole number from 1 to" train lenet5 --batch 0
mistake 2 "with a point for a comma" train lenet5 --lr 0,1
mistake 2 "--workers needs a value: --workers N" train lenet5 --workers

section "Data"
mistake 2 "resnet50 needs --data to train on" train resnet50
mistake 2 "cifar10:DIR with its six .bin files (made-up images: synthetic:cifar10)" train resnet18 --data cifar10
mistake 2 "did you mean 'cifar10'?" train resnet18 --data cifar-10
mistake 2 "use imagefolder:DIR for your own images or synthetic:imagenet" train resnet18 --data imagenet
mistake 2 "say what is there: imagefolder:photos" train resnet18 --data photos
mistake 2 "imagefolder:/data/imagenet" train resnet18 --data /data/imagenet
mistake 1 "holds no class folders (expected CLASS/x.jpg or train/CLASS/x.jpg)" train resnet18 --data imagefolder:empty
mistake 1 "imagefolder:DIR takes one with a folder of JPEG or PNG images for each class" train resnet18 --data imagefolder:nowhere
mistake 1 "the folder with the six files of CIFAR-10's binary version" train resnet18 --data cifar10:photos
mistake 1 "take the folder with the four IDX files" train lenet5 --data mnist:empty

section "Machines"
mistake 2 "is that 1x4:p100, one node with 4 of them, or 4x1:p100" plan vgg16 --data imagenet --machine 4xp100
mistake 2 "1x1:p100 is one of them" plan vgg16 --data imagenet --machine p100
mistake 2 "did you mean 'p100'?" plan vgg16 --data imagenet --machine 4x4:p1000
mistake 2 "did you mean 'a100-40' or 'a100-80'?" predict vgg16 --data imagenet --machine 1x8:a100
mistake 2 "with its unit: B/s or bit/s" plan vgg16 --data imagenet --machine 4x4:p100,inter=400
mistake 2 "give --workers 4, or a larger --machine" predict lenet5 --workers 8 --machine 1x4:p100
( # on one core of this machine: it may have a hundred
    taskset -cp "$(taskset -cp $$ | sed -E 's/.*: ([0-9]+).*/\1/')" "$BASHPID" >/dev/null
    mistake 0 "they take turns (there are cores for" train lenet5 --data synthetic:mnist --workers 100 --steps 1 --no-eval --run none
)

section "Plans"
mistake 2 "did you mean 'auto'?" train lenet5 --plan atuo
mistake 2 "'cleave plan lenet5' compares all plans" predict lenet5 --plan auto
mistake 2 "--sync is for plans by name" train lenet5 --plan auto --workers 2 --sync tree
mistake 2 "did you mean 'data'?" train lenet5 --workers 2 --plan data-parallel
mistake 2 "the plan is for lenet5, not for vgg11 ('cleave plan vgg11 -o FILE' makes one)" train vgg11 --data synthetic:cifar10 --plan two-workers.json
mistake 2 "leave --workers out, or make another plan ('cleave plan lenet5 --workers 4 -o FILE')" predict lenet5 --plan two-workers.json --workers 4 --machine 1x4:p100
mistake 2 "--sync is for plans by name" train lenet5 --plan two-workers.json --sync tree
mistake 2 "say how many workers a node has, --workers-per-node N" train lenet5 --workers 4 --sync hierarchical
mistake 2 "has no use for --asynchronous without --sync server (these have: ps)" train lenet5 --workers 2 --plan data --asynchronous
mistake 2 "is a file, and a network is asked for here" show two-workers.json
mistake 2 "are two plans: give one of both" train two-workers.json --plan data
mistake 2 "a batch of 2 can be split into 1 to 2" predict lenet5 --batch 2 --workers 2 --plan gpipe --micro-batches 4 --machine 1x2:p100
mistake 2 "at most 12 have work" train lenet5 --workers 20 --plan layers
mistake 3 "fits with" predict vgg16 --data imagenet --batch 1024 --machine 1x4:p100
CLEAVE_MEMORY_LIMIT=1000000 mistake 3 "'cleave predict' says what would fit" train lenet5 --data synthetic:mnist --backend reference --steps 1 --run none

section "Runs and reports"
mistake 2 "--resume needs --checkpoint PATH" train lenet5 --resume
mistake 2 "model is 'lenet5' there, 'mlp' was asked for (give the same, or another --checkpoint)" train mlp --data synthetic:mnist --checkpoint saved --resume --run none
mistake 0 "there is no checkpoint yet: it starts at the beginning" train lenet5 --data synthetic:mnist --steps 1 --no-eval --checkpoint svaed --resume --run none
mistake 2 "name another directory, or go on with --resume" train lenet5 --data synthetic:mnist --steps 1 --run runs/first
mistake 2 "'cleave train --run DIR' makes one" report empty
mistake 2 "'cleave report runs/first' shows the last" report runs
mistake 1 "'cleave train' keeps its runs in the folder runs" report nowhere
mistake 2 "is a checkpoint, which no report shows" report saved.json

# ---- the page ----

{
    cat <<'HEAD'
# Mistakes, and what Cleave answers

First-time mistakes and their answers. Each answer says what to do next; all go to stderr.
`photos` and `empty` are empty folders here, `two-workers.json` is a plan of lenet5 for two workers,
`saved` a checkpoint and `runs/first` a run of lenet5. `cleave` alone, without a command, lists what
there is and how to begin.

This page is written by `tests/cli_mistakes.sh`, which also checks it (`make golden` writes it anew).
HEAD
    cat rows
} >mistakes.md
if [[ ${GOLDEN:-} == write ]]; then
    cp mistakes.md "$page"
fi
diff "$page" mistakes.md >differs ||
    { cat differs >&2; fail "docs/mistakes.md has other answers ('make golden' writes it anew)"; }
