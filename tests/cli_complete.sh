# Completion: what the program answers, and what bash and zsh make of it.
source "$CLEAVE_SOURCE/tests/expect.sh"
mkdir -p photos/cats other
touch my-plan.json "with blank.json" photos/readme.txt

# answers LINE WORD...: the program offers just these (@files and @folders: for names of files).
answers() {
    local words=() line=$1
    shift
    read -r -a words <<<"$line"
    [[ $line == *' ' ]] && words+=("")
    run 0 help --complete "${words[@]}"
    sed -E 's/^\t(files|folders)\t.*/@\1/; s/\t.*//' stdout | sort >got
    printf '%s\n' "$@" | sed '/^$/d' | sort >wanted
    diff wanted got >differs || fail "'$line' goes on with $(tr '\n' ' ' <got)"
}

answers "tr" train
answers "bench s" search step
answers "plan mak" make
answers "help pro" profile
answers "train resnet1" resnet18 resnet101 resnet152
answers "train lenet5 --ep" --epochs
answers "train lenet5 --sync " ring tree hierarchical server
answers "train lenet5 --sync=t" --sync=tree
answers "train lenet5 --precision d" double
answers "train lenet5 --plan gp" gpipe @files
answers "train lenet5 --plan au" auto @files
answers "predict lenet5 --plan au" @files
answers "plan make gp" gpipe
answers "plan make gpipe vgg1" vgg11 vgg16
answers "plan vgg16 --machine optc" optcnn @files
answers "plan vgg16 --machine 4x4:titan" 4x4:titanrtx 4x4:titanx
answers "train lenet5 --data cif" cifar10 cifar10:
answers "train lenet5 --data synthetic:image" synthetic:imagenet synthetic:imagenet22k
answers "train lenet5 --data imagefolder:ph" @folders
answers "bench accuracy --models lenet5,vgg" lenet5,vgg11 lenet5,vgg16
answers "report " @files
answers "train lenet5 --batch " ""
answers "frobnicate x" ""
# every option of every command is offered
run 0 help --list
cp stdout commands
while read -r -a words; do
    run 0 "${words[@]}" --help
    grep -q '^Options' stdout || continue # it has commands instead
    grep -oE '^  -[^ ]+' stdout | tr -d ' ' | sort >wanted
    run 0 help --complete "${words[@]}" -
    cut -f 1 stdout | sort >got
    diff wanted got >differs ||
        fail "${words[*]}: the options offered are others than those of --help"
done <commands

# ---- bash: the function as Tab calls it ----

PATH=$(dirname "$CLEAVE"):$PATH
# bash_completes LINE REPLY...: what Tab at the end of the line leaves to choose from.
bash_completes() {
    local line=$1
    shift
    bash --norc -c '
        source "$CLEAVE_SOURCE/tools/completion/cleave.bash"
        COMP_LINE=$1 COMP_POINT=${#1}
        _cleave cleave
        printf "%s\n" "${COMPREPLY[@]}"' bash "$line" | sort >got
    printf '%s\n' "$@" | sort >wanted
    diff wanted got >differs || fail "bash: '$line' goes on with $(tr '\n' ' ' <got)"
}
bash_completes "cleave tra" train
bash_completes "cleave train lenet5 --plan my" my-plan.json
bash_completes "cleave train lenet5 --plan wi" "with blank.json"
bash_completes "cleave train lenet5 --data imagefolder:ph" photos
bash_completes "cleave train lenet5 --data=imagefolder:photos/" photos/cats
bash_completes "cleave train lenet5 --data synthetic:cif" cifar10
bash_completes "cleave plan vgg16 --machine 2x2:p100" p100 p100-pcie
# the whole way: keys typed into a shell on a terminal
cat >keys.sh <<'KEYS'
printf 'source "$CLEAVE_SOURCE/tools/completion/cleave.bash"\n'
sleep 0.5
printf 'cleave sh\tlene\t--da\tfas\t >shown\n'
sleep 0.5
printf 'exit\n'
KEYS
bash keys.sh | script -qec 'bash --norc --noprofile -i' /dev/null >terminal
grep -q '^lenet5 for fashion-mnist' shown || fail "bash on a terminal: $(tail -n 5 terminal)"

# ---- zsh: a shell on a terminal of its own, to which Tab is sent ----

command -v zsh >/dev/null || skip "zsh is not installed"
cat >press.zsh <<'ZSH'
# The line that $1 and Tab make.
zmodload zsh/zpty
# wait_for PATTERN: what the shell says until then, in $seen.
wait_for() {
    local out i
    seen=
    for i in {1..200}; do
        zpty -r -t shell out && seen+=$out
        [[ $seen == $~1 ]] && return
        sleep 0.02
    done
    print -r -- "nothing like $1: $seen"
    exit 1
}
zpty shell 'zsh -f -i'
zpty -w shell 'PS1=; fpath=($CLEAVE_SOURCE/tools/completion $fpath); autoload -Uz compinit; compinit -D -u'
zpty -w shell 'show() { print -r -- "LINE<$BUFFER>" }; zle -N show; bindkey "^X" show; print REA""DY'
wait_for '*READY*'
zpty -w -n shell "$1"$'\t\x18'
wait_for '*LINE<*>*'
seen=${seen##*LINE<}
print -r -- "${seen%%>*}"
zpty -d shell
ZSH
# zsh_completes LINE RESULT: the line after Tab.
zsh_completes() {
    zsh -f press.zsh "$1" >got 2>&1 || fail "zsh: '$1': $(cat got)"
    [[ $(cat got) == "$2" ]] || fail "zsh: '$1' became '$(cat got)', expected '$2'"
}
zsh_completes "cleave trai" "cleave train "
zsh_completes "cleave train lenet5 --plan my" "cleave train lenet5 --plan my-plan.json "
zsh_completes "cleave train lenet5 --data imagefolder:pho" "cleave train lenet5 --data imagefolder:photos/"
zsh_completes "cleave train lenet5 --sync h" "cleave train lenet5 --sync hierarchical "
