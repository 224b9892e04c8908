# Ranks on two and three machines, as far as one machine can show: each rank in a network namespace
# of its own, joined by a bridge whose links carry 1 Gbit/s each way. They train to the same bits as
# threads, the bytes on the links are those that cleave says it moves, and a lost worker ends all.
#
#     hub: mpirun, bridge 10.77.0.254          no namespace reaches the machine's own network
#       |-- 1 Gbit/s -- host 1: rank 0, 10.77.0.1
#       |-- 1 Gbit/s -- host 2: rank 1, 10.77.0.2
#       ..
#
# Frames are 9000 bytes long, as in a cluster's network: with 1500 the headers alone (66 bytes of
# Ethernet, IP and TCP in each, and acknowledgements) are 5 % of the bytes. Each counted frame is a
# real one: the kernel's frames of 64 KiB, which it splits only on real hardware, are turned off.
source "$CLEAVE_SOURCE/tests/mpi_job.sh"

[[ $(id -u) -eq 0 ]] || skip "only root can make network namespaces"
for tool in ip tc unshare hostname; do
    command -v $tool >/dev/null || skip "$tool is not installed (Debian packages iproute2, util-linux, hostname)"
done
"$mpirun" --version 2>&1 | grep -q 'Open MPI' || skip "ranks are started the way of Open MPI"

most_hosts=3
name=cleave-$$
hub=$name-hub
hosts=()

in_hosts() {
    local ns
    for ns in "${hosts[@]}"; do
        ip netns pids "$ns"
    done
}
clean_up() {
    local ns
    for ns in $hub "${hosts[@]}"; do
        ip netns pids "$ns" 2>/dev/null | xargs -r kill -KILL || true
        ip netns del "$ns" 2>/dev/null || true
    done
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# limit NAMESPACE DEVICE: frames of 9000 bytes, 1 Gbit/s out of it
limit() {
    ip -n "$1" link set "$2" mtu 9000 gso_max_segs 1 up &&
        ip netns exec "$1" tc qdisc add dev "$2" root tbf rate 1gbit burst 256kb latency 50ms
}

make_network() {
    ip netns add $hub && ip -n $hub link set lo up &&
        ip -n $hub link add bridge type bridge && ip -n $hub link set bridge mtu 9000 up &&
        ip -n $hub addr add 10.77.0.254/24 dev bridge || return 1
    local i ns
    for ((i = 1; i <= most_hosts; i++)); do
        ns=$name-$i
        ip netns add "$ns" && hosts+=("$ns") && ip -n "$ns" link set lo up &&
            ip -n $hub link add port$i type veth peer name eth0 netns "$ns" &&
            ip -n "$ns" addr add 10.77.0.$i/24 dev eth0 && limit "$ns" eth0 &&
            limit $hub port$i && ip -n $hub link set port$i master bridge || return 1
    done
}
make_network 2>why || skip "network namespaces cannot be made here: $(head -n 1 why)"

# What mpirun calls instead of ssh: HOST COMMAND... A host has a name of its own, too: Open MPI's
# daemons on hosts of the same name use the same files, and now and then one fails to start.
cat >agent <<'AGENT'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host && $*"
AGENT
chmod +x agent
export OMPI_MCA_orte_tmpdir_base=$PWD

net=10.77.0.0/24
network_options=(--bind-to none --mca plm_rsh_agent "$PWD/agent" --mca plm_rsh_no_tree_spawn 1
                 --mca btl tcp,self --mca btl_tcp_if_include $net --mca oob_tcp_if_include $net)

# on_hosts RANKS ARGUMENTS...: one rank on each host; the exit code is in $rc
on_hosts() {
    local n=$1 list
    shift
    list=$(IFS=, && echo "${hosts[*]:0:n}")
    rc=0
    timeout 110 ip netns exec $hub "$mpirun" "${network_options[@]}" -H "$list" -n "$n" \
        "$CLEAVE" train "$@" >stdout 2>stderr </dev/null || rc=$?
}
must_succeed() {
    [[ $rc -eq 0 ]] || fail "$*: exit $rc"
}

sent_bytes() {
    local ns total=0
    for ns in "${hosts[@]}"; do
        total=$((total + $(ip netns exec "$ns" cat /sys/class/net/eth0/statistics/tx_bytes)))
    done
    echo $total
}

# ---- the same bits as threads ----

losses() {
    grep -o '"event":"step","step":[0-9]*,"loss":[^,]*' stdout
}
for n in 2 3; do
    for plan in data 1f1b; do
        what=(lenet5 --data synthetic:1x28x28/10/480 --batch 24 --threads 1 --no-eval --json
              --steps 10 --plan $plan)
        rm -rf here there && mkdir here there
        on_threads $n "${what[@]}" --checkpoint here/run
        losses >here/losses
        on_hosts $n "${what[@]}" --checkpoint there/run
        must_succeed "${what[@]}"
        losses >there/losses
        same here there
    done
    echo "$n hosts: the same bits as $n threads"
done

# ---- in order ----

timeout 60 ip netns exec $hub "$mpirun" "${network_options[@]}" -H "${hosts[0]},${hosts[1]}" -n 2 \
    "${CLEAVE%/*}/tests/mpi_comm" order >stdout 2>stderr </dev/null || fail "mpi_comm order: $(tail -n 3 stderr)"
echo "a long message comes before a short one that was sent after it"

# ---- bytes ----

# measure HOSTS STEPS MODEL DATA BATCH: what 2 x STEPS steps send more than STEPS do, per step, is
# within 2 % of bytes_moved. Starting and ending is in both, and cancels out.
measure() {
    local n=$1 steps=$2 model=$3 data=$4 batch=$5 sent=() before count
    for count in "$steps" $((2 * steps)); do
        before=$(sent_bytes)
        on_hosts "$n" "$model" --data "$data" --batch "$batch" --threads 1 --no-eval --json --quiet \
            --plan data --steps "$count"
        must_succeed "$model on $n hosts"
        sent+=($(($(sent_bytes) - before)))
    done
    python3 - "$((sent[1] - sent[0]))" "$steps" "$n hosts, $model" <<'PYTHON' || fail "not within 2 %"
import json, sys
done = [e for e in map(json.loads, open("stdout")) if e["event"] == "done"][0]
measured, said = int(sys.argv[1]) / int(sys.argv[2]), done["bytes_moved"]
print("%s: %.0f bytes sent in a step, %d said: %+.2f %%; median step %.1f ms" % (
    sys.argv[3], measured, said, 100 * (measured / said - 1), 1e3 * done["median_step_s"]))
sys.exit(0 if said > 0 and abs(measured / said - 1) <= 0.02 else 1)
PYTHON
}
for n in 2 3; do
    measure $n 200 lenet5 synthetic:1x28x28/10/9600 24 # of 40, starting them is up to 1 %
    measure $n 3 resnet18 synthetic:3x32x32/10/240 6
done

# ---- lost ----

what=(lenet5 --data synthetic:1x28x28/10/4800 --batch 24 --threads 1 --no-eval --epochs 10000)
find_guard() {
    ip netns pids "${hosts[1]}" | xargs -r ps -o pid=,args= -p |
        awk '/cleave: guard of worker 1/ {print $1}'
}
kill_worker() {
    local tries
    for ((tries = 0; tries < 1000; tries++)); do
        [[ -z $(find_guard) ]] || break
        sleep 0.05
    done
    sleep 1.5
    date +%s%N >killed
    kill -KILL "$(pgrep -P "$(find_guard)")"
}
kill_worker &
on_hosts 3 "${what[@]}" --quiet
took_ms=$((($(date +%s%N) - $(<killed)) / 1000000))
[[ $rc -eq 4 ]] || fail "a killed worker: exit $rc, expected 4"
grep -q "worker 1 was lost: killed by SIGKILL" stderr || fail "the lost worker is not named"
((took_ms < 10000)) || fail "a killed worker: the job ended after $took_ms ms"
while [[ -n $(in_hosts) ]]; do
    ((($(date +%s%N) - $(<killed)) / 1000000 < 10000)) || fail "processes are left: $(in_hosts)"
    sleep 0.1
done
echo "a killed worker: exit code 4 after $took_ms ms, nothing is left"
