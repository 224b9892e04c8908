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
