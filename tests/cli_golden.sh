# What people see: commands run into a pipe and on a terminal (script of util-linux), compared with
# the files in tests/golden, to the last blank. Machines are strings, which nothing is measured of,
# and training is plain C on made-up images: so the numbers are part of it. What time decides is
# masked. GOLDEN=write writes the files anew (make golden): look at the difference.
source "$CLEAVE_SOURCE/tests/expect.sh"
command -v script >/dev/null || skip "script (bsdutils) is not installed"
folder=$CLEAVE_SOURCE/tests/golden
unset NO_COLOR
export TERM=xterm LC_ALL=C.UTF-8

# ---- masks ----

# Times are TIME, counts that depend on them N.
mask_times() {
    sed -E -e 's/[0-9.]+ (us|ms|s)\b/TIME/g' -e 's/[0-9.]+ images\/s/N images\/s/' \
        -e 's/(waiting for data|for other workers) -?[0-9.]+ %/\1 N %/g' -e '/share [0-9]+ core/d'
}
mask_search() {
    sed -E 's/found in [0-9.]+ (us|ms|s)/found in TIME/'
}
mask_size() {
    sed -E 's/[0-9.]+ [KMG]?B;/SIZE;/'
}
mask_nothing() {
    cat
}

# What a terminal got, as text: escapes as \e, without carriage returns, and without the progress
# lines, which come and go with time: each begins with \r\e[K.
terminal_text() {
    python3 -c '
import re, sys
text = sys.stdin.buffer.read().decode().replace("\r\n", "\n")
text = re.sub("\r\x1b\\[K[^\r\n\x1b]*(?=\r\x1b\\[K)", "", text).replace("\r\x1b[K", "")
sys.stdout.write(text.replace("\x1b", "\\e"))'
}

# ---- comparing ----

same() {
    if [[ ${GOLDEN:-} == write ]]; then
        mkdir -p "$folder"
        cp "$2" "$folder/$1"
    fi
    diff -u "$folder/$1" "$2" >differs ||
        { cat differs >&2; fail "$1 is not what tests/golden holds ('make golden' writes it anew)"; }
}

# golden NAME STATUS MASK WORDS...: what cleave prints into a pipe (both streams, results first) and on a
# terminal. Results fit 80 columns, and nothing but a terminal gets an escape.
golden() {
    local name=$1 expected=$2 mask=$3 status=0
    shift 3
    run "$expected" "$@"
    if grep -q $'[\e\r]' stdout stderr; then
        fail "$name: an escape in a pipe"
    fi
    [[ $(wc -L <stdout) -le 80 ]] || fail "$name: results wider than 80 columns"
    { "$mask" <stdout; echo "---- stderr"; "$mask" <stderr; } >got
    same "$name.pipe" got
    script -qec "$(printf '%q ' "$CLEAVE" "$@")" /dev/null </dev/null >raw || status=$?
    [[ $status -eq $expected ]] || fail "$name: exit $status on a terminal"
    terminal_text <raw | "$mask" >got
    same "$name.terminal" got
}

golden show 0 mask_nothing show lenet5 --data fashion-mnist
golden show-loops 0 mask_nothing show mlp --data fashion-mnist --loops
golden plan 0 mask_search plan alexnet --data imagenet --machine 1x4:p100 --limit 600
golden plan-nodes 0 mask_search plan lenet5 --machine 2x2:p100 --limit 600 --set fc1=n:2
golden plan-workers 0 mask_search plan lenet5 --machine 1x4:p100 --limit 600 --workers 1..4
golden plan-no-fit 3 mask_search plan vgg16 --data imagenet --batch 256 --machine 1x1:p100,memory=1GiB --named --limit 600
golden predict 0 mask_nothing predict alexnet --data imagenet --workers 4 --plan owt --machine 2x2:p100
golden predict-no-fit 3 mask_nothing predict vgg16 --data imagenet --batch 1024 --machine 1x4:p100
golden machine 0 mask_nothing machine --machine 2x2:p100
golden check 0 mask_nothing plan check data lenet5 --workers 2 --backend reference
golden limits 0 mask_nothing bench limits alexnet --data imagenet --machine 8x1:p100 --workers 1,2,4,8
golden usage 2 mask_nothing train resnt18
train=(train lenet5 --data synthetic:1x28x28/10/64 --backend reference --threads 1 --batch 16 --epochs 2)
golden train 0 mask_times "${train[@]}" --run none
golden train-workers 0 mask_times "${train[@]}" --run none --workers 2 --plan owt
run 0 "${train[@]}" --run runs/one --quiet
golden report 0 mask_size report runs/one

# ---- colour and progress ----

# on_terminal STATUS WORDS...: what a terminal gets, in the file raw.
on_terminal() {
    local expected=$1 status=0
    shift
    script -qec "$(printf '%q ' "$@")" /dev/null </dev/null >raw || status=$?
    [[ $status -eq $expected ]] || fail "$* on a terminal: exit $status, expected $expected"
}
on_terminal 0 "$CLEAVE" plan lenet5 --machine 1x2:p100
grep -q $'\e\[32m\* ' raw || fail "the best plan is not coloured on a terminal"
for refusal in NO_COLOR=1 TERM=dumb; do
    on_terminal 0 env $refusal "$CLEAVE" plan lenet5 --machine 1x2:p100
    ! grep -q $'\e' raw || fail "$refusal: coloured"
    grep -q '^\* ' raw || fail "$refusal: the best plan is not marked"
    on_terminal 2 env $refusal "$CLEAVE" train resnt18
    ! grep -q $'\e' raw || fail "$refusal: an error is coloured"
    grep -q 'error: unknown model' raw || fail "$refusal: no error"
done
on_terminal 0 "$CLEAVE" "${train[@]}" --run none
grep -qE $'\r\e\\[Kepoch 1/2  step [0-9]+/8  loss [0-9.]+  [0-9]+ images/s  [0-9]+ s left' raw ||
    fail "no progress of training on a terminal"
# A longer measurement shows a line with the time left, and wipes it away at the end.
# (Each size is measured for a fifth of a second.)
on_terminal 0 "$CLEAVE" bench gemm --in 2048 --out 2048 --batch 128,128,128,128,128,128,128,128,128,128
grep -qE $'\r\e\\[Kbatch 128: [0-9]+ %, [0-9]+ s left' raw || fail "no progress of a measurement"
grep -qE $'\r\e\\[Kb x 2048' raw || fail "the progress line was not wiped away"
on_terminal 0 env COLUMNS=40 bash -c "stty cols 40; $(printf '%q ' "$CLEAVE" "${train[@]}") --run none"
tr '\r' '\n' <raw | grep $'^\e\[Kepoch.*step' | sed $'s/\e\[K//' >lines
[[ -s lines && $(wc -L <lines) -lt 40 ]] || fail "the progress line is wider than the terminal"
