# Machines from everywhere, as tables and as JSON; files that come back; mistakes; measuring.
source "$CLEAVE_SOURCE/tests/expect.sh"

fits() {
    [[ ! -s stderr ]] || fail "$*: something on stderr"
    python3 -c 'import sys; sys.exit(any(len(l.rstrip("\n")) > 80 for l in open("stdout", encoding="utf-8")))' ||
        fail "$*: wider than 80 columns"
}

run 0 machine --help
says stdout "Usage: cleave machine"
says stdout "mpirun -n 4 cleave machine --measure"
run 0 machine
says stdout "this host"
fits machine
run 0 machine --json
holds 'd["cleave_machine"] == 1 and d["name"] == "local" and d["curves"] == []'
holds 'd["nodes"][0]["memory_bytes"] > 0 and len(d["nodes"][0]["devices"]) >= 1'

string=4x4:p100,intra=15GB/s,inter=4.5GB/s
run 0 machine --machine $string
fits "$string"
says stdout "16 devices on 4 nodes"
says stdout "node0 .. node3"
says stdout "15.0 GB/s"
says stdout "4.50 GB/s"
run 0 machine --machine $string --json -o p100.json
holds 'len(d["nodes"]) == 4 and d["links"][0]["bytes_per_s"] == 15e9'
cp stdout first
run 0 machine --machine p100.json --json -o again.json
cmp -s stdout first || fail "a machine changes when it is written and read"
cmp -s p100.json again.json || fail "a file changes when it is read and written"

run 0 machine --list
fits --list
for name in optcnn thesis keuper mixed; do
    says stdout "$name "
    run 0 machine --machine $name
    fits $name
    run 0 machine --list
done
for device in p100 k40 k80 titanrtx gtx1080ti v100 a100-40 a100-80 h100 h200 cpu; do
    says stdout " $device"
done
run 0 machine --machine 2x4:v100,1x8:k80,inter=10GB/s --json
holds '[len(n["devices"]) for n in d["nodes"]] == [4, 4, 8]'

refused 2 "unknown device 'p10': did you mean 'p100'?" machine --machine 4x4:p10
refused 2 "unknown machine 'optcn': did you mean 'optcnn'?" machine --machine optcn
refused 2 "unknown option 'itra': did you mean 'intra'?" machine --machine 4x4:p100,itra=1GB/s
refused 1 "nowhere.json: cannot open" machine --machine nowhere.json
refused 2 "--measure is for this machine" machine --machine 4x4:p100 --measure
refused 2 "--threads is for this machine" machine --machine 4x4:p100 --threads 2
refused 2 "give both" machine --workers 2
refused 1 "nowhere/m.json: cannot write" machine -o nowhere/m.json
refused 1 "nowhere/m.json: cannot write" machine --measure --workers 2 -o nowhere/m.json
echo '{"cleave_machine": 1, "nodes": [{"devices": ["p100"], "mem": 3}]}' >bad.json
refused 1 "bad.json:1: nodes/0/mem: unknown key 'mem'" machine --machine bad.json
printf '{\n "cleave_machine": 1,\n}' >bad.json
refused 1 "bad.json:3:" machine --machine bad.json

# Measured with two workers, on however many cores: figures that make sense, and a file of them.
run 0 machine --measure --workers 2 -o here.json --json
holds 'len(d["curves"]) == 4 and all(c["transport"] == "threads" for c in d["curves"])'
holds 'all(len(c["points"]) == 5 for c in d["curves"])'
holds 'all(0 < p[1] < 10 and 0 <= p[2] <= p[1] for c in d["curves"] for p in c["points"])'
holds 'all(c["points"][4][1] > c["points"][0][1] for c in d["curves"])'
holds '0 < d["wake_s"] < 1 and 0 < d["step_s"] < 1'
holds '1e8 < d["kinds"][0]["reached_flops_per_s"] <= d["kinds"][0]["peak_flops_per_s"]'
run 0 machine --machine here.json
fits here.json
says stdout "Measured"
