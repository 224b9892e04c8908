# The profile of measured costs: listed, moved, forgotten; nothing is made by looking.
source "$CLEAVE_SOURCE/tests/expect.sh"

unset XDG_CACHE_HOME CLEAVE_PROFILE
export HOME=$PWD/home
mkdir home

when=2025-01-31T12:00:00Z
{
    echo 'cleave profile 1'
    for i in 1 2 3 4 5; do
        printf 'cost\tcpu oneDNN, Processor\t2\t1\tconv %s\tconv\t%se6\t1000\t0.00%s\t0.01\t9\t%s\n' $i $i $i $when
    done
    printf 'cost\tcpu oneDNN, Processor\t2\t4\tconv 1\tconv\t1e6\t1000\t0.1\t0.01\t9\t%s\n' $when
    printf 'cost\tgpu\t0\t1\tconv 1\tconv\t1e6\t1000\t1e-05\t0.01\t9\t%s\n' $when
    printf 'text\tlinks of here\t{"a": 1}\\n\n'
} >costs.txt

# nothing there yet
run 0 profile list --json
holds 'd["settings"] == [] and d["profile"].endswith("/home/.cache/cleave/profile.db")'
run 0 profile export
[[ $(grep -vc '^#' stdout) -eq 1 ]] || fail "an empty profile has costs"
[[ ! -e home/.cache ]] || fail "looking made a file"
refused 1 "nowhere.db: cannot open the profile: No such file" profile list --profile nowhere.db

# import makes it, once
run 0 profile import costs.txt
says stdout "profile.db: 8 new from costs.txt"
run 0 profile import costs.txt
says stdout "profile.db: 0 new from costs.txt"
run 0 profile list
says stdout "2025-01-31T12:00:00Z"
says stdout "cpu oneDNN, Processor"
run 0 profile list --json
holds '[(s["device"], s["threads"], s["load"], s["entries"]) for s in d["settings"]] == [("cpu oneDNN, Processor", 2, 1, 5), ("cpu oneDNN, Processor", 2, 4, 1), ("gpu", 0, 1, 1)]'
holds 'd["settings"][0]["measured"] == "2025-01-31T12:00:00Z"'

# text and files go round
run 0 profile export -o out.txt
[[ ! -s stdout ]] || fail "export -o: something on stdout"
run 0 profile import out.txt --profile sub/folder/second.db
run 0 profile export --profile sub/folder/second.db
cmp -s stdout out.txt || fail "the imported costs are exported otherwise"
run 0 profile import home/.cache/cleave/profile.db --profile third.db
says stdout "third.db: 8 new from"
CLEAVE_PROFILE=third.db run 0 profile export
cmp -s stdout out.txt || fail "the merged costs are exported otherwise"
if [[ -e /dev/full ]]; then
    refused 1 "cannot write" profile export -o /dev/full
fi
refused 1 "no/such.txt: cannot write" profile export -o no/such.txt

# forgetting
refused 2 "say what to forget" profile forget
refused 2 "say what to forget" profile forget --all --load 1
refused 1 "holds no such setting" profile forget --device tpu
run 0 profile forget --device oneDNN --load 4
says stdout "forgot 1 cost of 1 setting"
run 0 profile forget --threads 2
says stdout "forgot 5 costs of 1 setting"
run 0 profile list --json
holds '[s["device"] for s in d["settings"]] == ["gpu"]'
run 0 profile forget --all
says stdout "forgot 1 cost of 1 setting"
run 0 profile export
[[ $(grep -vc '^#' stdout) -eq 1 ]] || fail "not everything is forgotten"

# files that are no profiles, damaged, or of a later version
echo 'hello' >hello.txt
refused 1 "hello.txt: is no profile of Cleave" profile list --profile hello.txt
refused 1 "hello.txt:1: is no profile" profile import hello.txt
refused 1 "costs.txt: is no profile of Cleave" profile export --profile costs.txt
cp third.db cut.db
truncate -s 6000 cut.db
refused 1 "cut.db: the profile is damaged" profile list --profile cut.db
says stderr "remove it"
cp third.db flipped.db
python3 - <<'PYTHON'
import struct
data = bytearray(open("flipped.db", "rb").read())
at = data.find(struct.pack(">d", 0.003))
assert at > 0
data[at + 3] ^= 4
open("flipped.db", "wb").write(data)
PYTHON
refused 1 "flipped.db: the profile is damaged" profile export --profile flipped.db
refused 1 "flipped.db: the profile is damaged" profile import flipped.db
cp third.db later.db
printf '\0\0\0\3' | dd of=later.db bs=1 seek=60 conv=notrunc status=none
refused 1 "later.db: was written by a later version" profile list --profile later.db
printf 'cleave profile 1\ntext\ta\tb\ncost\tcpu\n' >short.txt
refused 1 "short.txt:3: 2 fields where a 'cost' has 12" profile import short.txt
refused 1 "no.txt: cannot read" profile import no.txt

# mistakes
refused 2 "did you mean 'list'?" profile lits
refused 2 "OTHER is missing" profile import
refused 2 "did you mean '--profile'?" profile list --profle x
refused 2 "--load '0' must be a whole number" profile forget --load 0
HOME='' refused 1 "CLEAVE_PROFILE" profile list
