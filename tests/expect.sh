# For the scripts that test the program: runs it and checks what it prints. Source it:
#   source "$CLEAVE_SOURCE/tests/expect.sh"

# Ends the test with a message and what the program last printed.
fail() {
    echo "FAILED: $*" >&2
    [[ -f stdout ]] && sed 's/^/  stdout: /' stdout | cut -c 1-400 | head -n 20 >&2
    [[ -f stderr ]] && sed 's/^/  stderr: /' stderr | cut -c 1-400 | head -n 20 >&2
    exit 1
}

# Ends the test as skipped, with the reason: skip REASON
skip() {
    echo "SKIP: $*"
    exit 77
}

# run STATUS ARGUMENTS...: runs cleave; its output is then in the files stdout and stderr.
run() {
    local expected=$1 status=0
    shift
    "$CLEAVE" "$@" >stdout 2>stderr </dev/null || status=$?
    # Tests share the cores with each other, and a measurement may warn of it.
    if grep -q '^cleave: warning: other programs had cores in ' stderr; then
        sed -i '/^cleave: warning: other programs had cores in /d' stderr
    fi
    [[ $status -eq $expected ]] || fail "cleave $*: exit $status, expected $expected"
}

# says FILE TEXT: the text is in the file stdout or stderr.
says() {
    grep -qF -e "$2" "$1" || fail "expected on $1: $2"
}

# refused STATUS TEXT ARGUMENTS...: cleave fails with one line on stderr that holds the text, and
# prints nothing on stdout.
refused() {
    local expected=$1 text=$2
    shift 2
    run "$expected" "$@"
    says stderr "$text"
    grep -q '^cleave: error: ' stderr || fail "cleave $*: no 'cleave: error:'"
    [[ $(wc -l <stderr) -eq 1 ]] || fail "cleave $*: more than one line"
    [[ ! -s stdout ]] || fail "cleave $*: an error, but something on stdout"
}

# holds PYTHON: the expression is true of `d`, the JSON on stdout (a list for JSON lines). An empty
# stdout fails.
holds() {
    python3 - "$1" <<'PYTHON' || fail "not true: $1"
import json, sys
lines = [json.loads(line) for line in open("stdout")]
assert lines, "nothing on stdout"
d = lines[0] if len(lines) == 1 else lines
sys.exit(0 if eval(sys.argv[1]) else 1)
PYTHON
}
