# Every command explains itself, with an example, on stdout.
source "$CLEAVE_SOURCE/tests/expect.sh"

helps() {
    run 0 "$@"
    [[ ! -s stderr ]] || fail "cleave $*: something on stderr"
    says stdout "Usage: cleave"
    grep -q '^Examples:$' stdout || fail "cleave $*: no example"
    grep -A1 '^Examples:$' stdout | grep -q '^  .*cleave ' || fail "cleave $*: no example"
    awk 'length($0) > 90 { bad = 1 } END { exit bad }' stdout || fail "cleave $*: lines too long"
}

helps
helps --help
helps -h
helps help
run 0 help --list
cp stdout commands
grep -qx predict commands && grep -qx 'bench search' commands || fail "commands are missing"
while read -r -a words; do
    helps "${words[@]}" --help
    helps help "${words[@]}"
done <commands
helps show -h
helps bench
helps train lenet5 --batch 0 --help # help wins over a mistake

run 0 --help
says stdout "CLEAVE_SHARED_MEMORY"
says stdout "XDG_CACHE_HOME"

run 0 train --help
says stdout "--batch N"
says stdout "images in a step [128]"
says stdout "resnet18"
says stdout "synthetic:CxHxW/CLASSES[/COUNT]"
says stdout "--workers N"
says stdout "parameter servers"

run 0 --version
grep -qE '^cleave [0-9]+\.[0-9]+\.[0-9]+$' stdout || fail "no version"
refused 2 "unknown command 'shwo': did you mean 'show'?" help shwo

# README.md names every command and every network, and says truly which commands have no --json
readme=$CLEAVE_SOURCE/README.md
while read -r -a words; do
    run 0 "${words[@]}" --help
    grep -q '^Options' stdout || continue # it has commands instead
    grep -qE "^\| \`cleave ${words[*]}[ \`]" "$readme" ||
        { [[ ${words[0]} == profile ]] && grep '^| `cleave profile list`' "$readme" | grep -qF "\`${words[1]}\`"; } ||
        fail "README.md: 'cleave ${words[*]}' is not among the commands"
    case ${words[*]} in
    'plan make' | 'plan dump' | 'profile export' | 'profile import' | 'profile forget')
        ! grep -q -e '--json' stdout || fail "README.md: cleave ${words[*]} has --json" ;;
    *) grep -q -e '--json' stdout || fail "README.md: cleave ${words[*]} has no --json" ;;
    esac
done <commands
read -ra networks <<<"$(tr '\n' ' ' <"$readme" | sed 's/.*MODEL is one of `\([^`]*\)`.*/\1/')"
printf '%s\n' "${networks[@]}" >wanted
run 0 help --complete show ""
cut -f 1 stdout | cmp - wanted || fail "README.md: the networks are others"
run 0 help --complete plan make ""
cut -f 1 stdout >strategies
[[ $(wc -l <strategies) -eq 11 ]] || fail "README.md: not eleven strategies"
while read -r name; do
    grep -qF "\`$name\`" "$CLEAVE_SOURCE/docs/plans.md" || fail "docs/plans.md: no strategy $name"
done <strategies
