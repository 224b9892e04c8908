# Manual pages: one for each command, without a warning of mandoc, and with all that --help says.
source "$CLEAVE_SOURCE/tests/expect.sh"
command -v mandoc >/dev/null || skip "mandoc is not installed"

# The text of a page as people see it, in one line, without its layout.
flat() {
    tr -s '[:space:]' ' ' <"$1"
}

# page WORDS...: the page of a command; in the files page.1 and page.txt.
page() {
    run 0 help --man "$@"
    [[ ! -s stderr ]] || fail "help --man $*: something on stderr"
    cp stdout page.1
    mandoc -Tlint -Wstyle page.1 >lint || fail "mandoc: cleave $*: $(head -n 3 lint)"
    mandoc -Tascii -Owidth=1000 page.1 | col -b >page.txt
    head -n 1 page.txt | grep -qF "$(tr '[:lower:] ' '[:upper:]-' <<<"cleave${*:+ $*}")(1)" ||
        fail "cleave $*: another page's title"
}

page
says page.1 "EXIT STATUS"
says page.txt "the plan does not fit into memory"
says page.txt "NO_COLOR"

run 0 help --list
cp stdout commands
[[ $(wc -l <commands) -ge 22 ]] || fail "commands are missing"
grep -qx "plan make" commands || fail "no 'plan make'"
while read -r -a words; do
    page "${words[@]}"
    run 0 "${words[@]}" --help </dev/null
    flat page.txt >flat
    # every option, with the name of its value
    while read -r option; do
        grep -qF -e " $option " flat || fail "cleave ${words[*]}: $option is not in its page"
    done < <(grep -oE '^  -[^ ]+( [^ ]+)?' stdout | sed -E 's/^ +//; s/ $//')
    # every word of the help
    sed '1,/^$/d' stdout | tr '[:upper:]' '[:lower:]' | grep -oE '[a-z0-9]+' | sort -u >wanted
    tr '[:upper:]' '[:lower:]' <flat | grep -oE '[a-z0-9]+' | sort -u >got
    missing=$(comm -23 wanted got | tr '\n' ' ')
    [[ -z $missing ]] || fail "cleave ${words[*]}: of --help not in its page: $missing"
done <commands

# the pages of the build are these
if [[ -d $(dirname "$CLEAVE")/man ]]; then
    pages=$(find "$(dirname "$CLEAVE")/man" -name '*.1' | wc -l)
    [[ $pages -eq $(($(wc -l <commands) + 1)) ]] || fail "$pages pages of $(wc -l <commands) commands"
fi
