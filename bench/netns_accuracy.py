#!/usr/bin/env python3
"""Predicted beside measured on clusters of network namespaces: the hosts share this machine's cores,
and are joined by a bridge whose links let through as much as is asked for.

    hub: mpirun, bridge 10.78.0.254           no namespace reaches the machine's own network
      |-- 100 Mbit/s -- host 1: rank 0
      |-- 1 Gbit/s   -- host 2: rank 1

    bench/netns_accuracy.py --cleave build/cleave --hosts 100,100 --hosts 1000,1000 --json out.json

For each cluster: measures the machine over MPI (cleave machine --measure), and for every plan, in turns:
predicts it on that file with the computing costs of this host (measured anew each time, unless --profile
has them), and trains it across the namespaces. Prints a table; the error of a plan is the median of its
rounds'. Exit status 1 if a case failed. Needs root, iproute2 and Open MPI. Trainings and measurements can
be wrapped (--with) in a command that keeps the machine quiet.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

PLANS = ["data", "data:tree", "data:hierarchical", "model", "owt", "gpipe", "1f1b", "pipedream", "ps"]
CONTROL = "reno"  # of TCP: what every kernel lets a namespace have
# A link's token bucket: the bytes that pass at once after a rest. Smaller ones lose tokens, and so bandwidth,
# whenever the kernel's timers come late because all cores are at work.
LEAST_BURST, BURST_S = 32768, 2.5e-3
LITTLE_DOUBT = 0.02  # as of 'cleave bench accuracy': a smaller standard error is none


def check(command, **how):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}: "
                           f"{done.stderr.strip()[-600:]}")
    return done.stdout


class Cluster:
    """Namespaces with a link each; `rates` are Mbit/s, one a host, or out:in."""

    def __init__(self, rates, folder):
        self.rates = rates
        self.folder = folder
        self.name = f"cleave-{os.getpid()}"
        self.hub = self.name + "-hub"
        self.hosts = []

    def __enter__(self):
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for ns in [self.hub, *self.hosts]:
            pids = subprocess.run(["ip", "netns", "pids", ns], capture_output=True, text=True, check=False)
            for pid in pids.stdout.split():
                subprocess.run(["kill", "-KILL", pid], check=False, capture_output=True)
            subprocess.run(["ip", "netns", "del", ns], check=False, capture_output=True)

    def limit(self, ns, device, mbit):
        check(["ip", "-n", ns, "link", "set", device, "mtu", "9000", "gso_max_segs", "1", "up"])
        burst = max(LEAST_BURST, int(float(mbit) * 1e6 / 8 * BURST_S))
        check(["ip", "netns", "exec", ns, "tc", "qdisc", "add", "dev", device, "root", "tbf",
               "rate", f"{mbit}mbit", "burst", str(burst), "latency", "200ms"])

    def build(self):
        check(["ip", "netns", "add", self.hub])
        ip = ["ip", "-n", self.hub]
        check([*ip, "link", "set", "lo", "up"])
        check([*ip, "link", "add", "bridge", "type", "bridge"])
        check([*ip, "link", "set", "bridge", "mtu", "9000", "up"])
        check([*ip, "addr", "add", "10.78.0.254/24", "dev", "bridge"])
        for i, rate in enumerate(self.rates, 1):
            out, into = (rate.split(":") * 2)[:2]
            ns, port = f"{self.name}-{i}", f"port{i}"
            check(["ip", "netns", "add", ns])
            self.hosts.append(ns)
            check(["ip", "-n", ns, "link", "set", "lo", "up"])
            check(["ip", "netns", "exec", ns, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=" + CONTROL])
            check([*ip, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns])
            check(["ip", "-n", ns, "addr", "add", f"10.78.0.{i}/24", "dev", "eth0"])
            self.limit(ns, "eth0", out)
            self.limit(self.hub, port, into)
            check([*ip, "link", "set", port, "master", "bridge"])
        agent = os.path.join(self.folder, "agent")
        with open(agent, "w", encoding="utf-8") as f:  # what mpirun calls instead of ssh
            f.write('#!/bin/sh\nhost=$1\nshift\n' + self.binding() +
                    'exec $bound ip netns exec "$host" unshare --uts sh -c "hostname $host && $*"\n')
        os.chmod(agent, 0o755)

    def binding(self):
        """A host has cores of its own, as many as all others, where there are enough."""
        cores = sorted(os.sched_getaffinity(0))
        each = len(cores) // len(self.hosts)
        lines = ["bound="]
        for i, host in enumerate(self.hosts if each else []):
            own = ",".join(map(str, cores[i * each:(i + 1) * each]))
            lines.append(f'[ "$host" = {host} ] && bound="taskset -c {own}"')
        return "\n".join(lines) + "\n"

    def command(self, arguments):
        net = "10.78.0.0/24"
        return ["ip", "netns", "exec", self.hub, "mpirun", "--bind-to", "none",
                "--mca", "plm_rsh_agent", os.path.join(self.folder, "agent"),
                "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "btl", "tcp,self",
                "--mca", "btl_tcp_if_include", net, "--mca", "oob_tcp_if_include", net,
                "-H", ",".join(self.hosts), "-n", str(len(self.hosts)), *arguments]


def environment(folder):
    passed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
              "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_orte_tmpdir_base": folder,
              "OMP_WAIT_POLICY": "passive"}
    return dict(os.environ, **passed)


def plan_options(plan, workers):
    name, _, sync = plan.partition(":")
    options = ["--plan", name]
    if sync:
        options += ["--sync", sync]
    if sync == "hierarchical":
        options += ["--workers-per-node", "1" if workers < 4 else "2"]
    return options


def other_seconds():
    """By process outside of the namespaces: cores' time until now, with that of children that ended."""
    times, here = {}, os.readlink("/proc/self/ns/net")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(pid) == os.getpid() or os.readlink(f"/proc/{pid}/ns/net") != here:
                continue
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
            times[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            pass
    return times


def doubt(errors):
    """The standard error of their mean."""
    return statistics.stdev(errors) / len(errors) ** 0.5 if len(errors) > 1 else math.inf


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.env = environment(folder)
        self.profile = args.profile or os.path.join(folder, "profile.db")  # see forget_costs
        self.others, self.n_failed = 0, 0

    def quietly(self, command):
        """Once more, some times, if others were at work meanwhile: self.others is their share of a core."""
        for _ in range(self.args.tries):
            before, start = other_seconds(), time.monotonic()
            out = check([*self.args.wrapper.split(), *command], env=self.env, cwd=self.folder)
            others = sum(t - before[pid] for pid, t in other_seconds().items() if pid in before)
            self.others = others / (time.monotonic() - start)
            if self.others < self.args.most_others:
                break
        return out

    def measure_machine(self, cluster, path):
        self.quietly(cluster.command([self.args.cleave, "machine", "--measure", "-o", path]))

    def case_options(self, model, plan, workers):
        return [model, "--data", self.args.data, "--batch", str(self.args.batch), "--threads", "1",
                "--no-eval", "--json", *plan_options(plan, workers)]

    def forget_costs(self):
        for end in ("", "-journal", "-wal", "-shm"):
            if not self.args.profile and os.path.exists(self.profile + end):
                os.remove(self.profile + end)

    def predict(self, machine, model, plan, workers):
        self.forget_costs()
        command = [self.args.cleave, "predict", *self.case_options(model, plan, workers),
                   "--workers", str(workers), "--machine", machine, "--profile", self.profile]
        return json.loads(self.quietly(command))

    def steps_for(self, predicted_s, workers, plan):
        steps = int(self.args.seconds / max(predicted_s, 1e-4))
        window = 4 * workers if plan == "pipedream" else 1
        steps = max(6, min(self.args.most_steps, steps))
        return (steps + window - 1) // window * window

    def train(self, cluster, model, plan, workers, steps):
        command = [self.args.cleave, "train", *self.case_options(model, plan, workers),
                   "--lr", "0.0001", "--steps", str(steps), "--quiet"]
        lines = self.quietly(cluster.command(command)).splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [e for e in events if e["event"] == "done"][0]

    def run_case(self, cluster, machine, model, plan):
        workers = len(cluster.hosts)
        predicted, measured, others, errors = [], [], [], []
        while len(errors) < self.args.rounds or (
                len(errors) < self.args.most_rounds and doubt(errors) > LITTLE_DOUBT):
            predicted.append(self.predict(machine, model, plan, workers))
            steps = self.steps_for(predicted[0]["step_s"], workers, plan)
            measured.append(self.train(cluster, model, plan, workers, steps))
            others.append(self.others)
            errors.append(predicted[-1]["step_s"] / measured[-1]["median_step_s"] - 1)
        times = [m["median_step_s"] for m in measured]
        middle = statistics.median(times)
        return {"cluster": ",".join(cluster.rates), "model": model, "plan": plan, "workers": workers,
                "steps": steps, "predicted_s": statistics.median(p["step_s"] for p in predicted),
                "predicted_all_s": [p["step_s"] for p in predicted], "measured_s": middle,
                "measured_all_s": times, "error": statistics.median(errors),
                "standard_error": doubt(errors) if len(errors) > 1 else None,
                "noise": (max(times) - min(times)) / middle, "others": max(others),
                "wait_s": predicted[0]["workers"][0]["wait_s"],
                "bytes_equal": predicted[0]["bytes_moved"] == measured[0]["bytes_moved"],
                "memory_equal": predicted[0]["memory_bytes"] == measured[0]["memory_bytes"],
                "costs": predicted[0]["costs"]}

    def run_cluster(self, rates, results):
        with Cluster(rates, self.folder) as cluster:
            machine = os.path.join(self.folder, f"machine-{'-'.join(rates)}.json".replace(":", "_"))
            if self.args.keep:
                machine = os.path.join(self.args.keep, os.path.basename(machine))
            if not os.path.exists(machine):
                self.measure_machine(cluster, machine)
            for model in self.args.models.split(","):
                for plan in self.args.plans.split(","):
                    try:
                        case = self.run_case(cluster, machine, model, plan)
                    except RuntimeError as e:
                        print(f"{','.join(rates)} {model} {plan}: {e}", file=sys.stderr, flush=True)
                        self.n_failed += 1
                        continue
                    results.append(case)
                    print_case(case)


def print_case(c):
    print(f"{c['cluster']:<18} {c['model']:<8} {c['plan']:<18} {1e3 * c['predicted_s']:10.2f} "
          f"{1e3 * c['measured_s']:10.2f} {100 * c['error']:+8.1f} % {100 * c['noise']:6.1f} % "
          f"{len(c['measured_all_s']):6d} {c['steps']:5d} {100 * c['others']:6.1f} %  "
          f"{'equal' if c['bytes_equal'] else 'DIFFER'}", flush=True)


def summarise(results):
    for cluster in dict.fromkeys(c["cluster"] for c in results):
        errors = [abs(c["error"]) for c in results if c["cluster"] == cluster]
        noise = [c["noise"] for c in results if c["cluster"] == cluster]
        print(f"{cluster}: {len(errors)} cases, mean error {100 * statistics.mean(errors):.1f} %, "
              f"largest {100 * max(errors):.1f} %, mean noise {100 * statistics.mean(noise):.1f} %")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cleave", default="build/cleave")
    p.add_argument("--hosts", action="append", metavar="MBIT,MBIT,...",
                   help="a cluster: Mbit/s of each host's link, or OUT:IN; may be given several times")
    p.add_argument("--models", default="lenet5,vgg11")
    p.add_argument("--plans", default=",".join(PLANS))
    p.add_argument("--data", default="synthetic:cifar10")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--seconds", type=float, default=6, help="about how long each training takes")
    p.add_argument("--most-steps", type=int, default=60)
    p.add_argument("--rounds", type=int, default=2, help="turns of predicting and training of each plan")
    p.add_argument("--most-rounds", type=int, default=0,
                   help="turns of a plan whose error is not yet known to 2 %%, its standard error [--rounds]")
    p.add_argument("--most-others", type=float, default=0.1, metavar="CORES",
                   help="a measurement is repeated if other processes took more than that")
    p.add_argument("--tries", type=int, default=3, help="of each measurement")
    p.add_argument("--with", dest="wrapper", default="", metavar="COMMAND",
                   help="runs every measurement, to keep others off the machine")
    p.add_argument("--profile", help="where costs are kept [a new one]")
    p.add_argument("--keep", metavar="FOLDER", help="keep machine files there, and use those that are there")
    p.add_argument("--json", metavar="FILE", help="write the results there, too")
    args = p.parse_args()
    args.cleave = os.path.abspath(args.cleave)
    if args.profile:
        args.profile = os.path.abspath(args.profile)
    if args.keep:
        args.keep = os.path.abspath(args.keep)
    args.most_rounds = max(args.most_rounds, args.rounds)
    if os.getuid() != 0:
        sys.exit("only root can make network namespaces")
    results, n_failed = [], 0
    print(f"{'Mbit/s':<18} {'model':<8} {'plan':<18} {'predicted':>10} {'measured':>10} {'error':>10} "
          f"{'noise':>8} {'rounds':>6} {'steps':>5} {'others':>8}  bytes   (times in ms)")
    with tempfile.TemporaryDirectory(prefix="cleave-netns-") as folder:
        for hosts in args.hosts or ["100,100", "1000,1000", "100,1000"]:
            bench = Bench(args, folder)
            bench.run_cluster(hosts.split(","), results)
            n_failed += bench.n_failed
    if results:
        summarise(results)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
            f.write("\n")
    if n_failed:
        sys.exit(f"{n_failed} cases failed and are in no figure")


if __name__ == "__main__":
    main()
