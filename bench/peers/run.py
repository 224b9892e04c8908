#!/usr/bin/env python3
"""PyTorch and Cleave training the same networks, in turns, in one run.

    /usr/bin/python3 bench/peers/run.py --threads 2 --out peers.json

For each case both programs are started with the same network, shape, batch and threads, and then
asked alternately for a few steps: while one computes, the other is blocked reading its input. Both
do the same work: float32, SGD with momentum 0.9, no weight decay, one synthetic batch in memory. The
protocol is that of peer.py --interactive.

    round 1      round 2            the median of all steps of a program is its step time;
    P C [K]      P C [K]   ...      ratio = PyTorch's / Cleave's, above 1 when Cleave is faster

P: PyTorch, C: Cleave, K: torch.compile (with --compile). The floor is what Cleave reports at its
start: the sum of the least times of oneDNN's convolution and matrix primitives, each alone in its own
layout; a step below it is faster than those primitives could be. Exit status 1 if a case failed or fell below --least or --least-mean.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import select
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAUSE_S = 0.3  # Between turns: OpenMP's threads spin a little after their work.

# Name: model, form, shape, classes, batch.
CASES = {
    "lenet5": ("lenet5", "small", "1x28x28", 10, 128),
    "alexnet": ("alexnet", "large", "3x224x224", 1000, 64),
    "vgg11": ("vgg11", "large", "3x224x224", 1000, 8),
    "resnet18": ("resnet18", "large", "3x224x224", 1000, 16),
    "resnet50": ("resnet50", "large", "3x224x224", 1000, 8),
    "mobilenetv2": ("mobilenetv2", "large", "3x224x224", 1000, 16),
    "resnet18-cifar10": ("resnet18", "small", "3x32x32", 10, 64),
    "vgg11-cifar10": ("vgg11", "small", "3x32x32", 10, 64),
}


class PeerError(Exception):
    pass


class Peer:
    """A program that trains on demand: asked for N steps, it answers with their times."""

    def __init__(self, name, command, timeout_s):
        self.name = name
        self.timeout_s = timeout_s
        self.times = []
        self.rounds = []
        self.buffer = b""
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
            )
        except OSError as error:
            raise PeerError(f"{name}: cannot start {command[0]}: {error.strerror}") from error
        try:
            self.ready = self.read_json("event", "its ready line")
        except BaseException:
            self.close()
            raise

    def read_line(self, awaited):
        deadline = time.monotonic() + self.timeout_s
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise PeerError(f"{self.name}: no answer in {self.timeout_s} s, awaited {awaited}")
            chunk = os.read(descriptor, 65536)
            if not chunk:
                status = self.process.wait(timeout=10)
                raise PeerError(f"{self.name}: ended with status {status}, awaited {awaited}")
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def read_json(self, key, awaited):
        line = self.read_line(awaited)
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise PeerError(f"{self.name}: not JSON, awaited {awaited}: {line!r}") from error
        if key not in answer:
            raise PeerError(f"{self.name}: no '{key}' in {line!r}, awaited {awaited}")
        return answer

    def request(self, n_steps):
        try:
            self.process.stdin.write(f"{n_steps}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise PeerError(f"{self.name}: ended before it was asked to") from error

    def answer(self, n_steps):
        times = self.read_json("steps_s", f"the times of {n_steps} steps")["steps_s"]
        if len(times) != n_steps:
            raise PeerError(f"{self.name}: {len(times)} times for {n_steps} steps")
        return times

    def run(self, n_steps):
        """The seconds of each of `n_steps` further steps."""
        self.request(n_steps)
        times = self.answer(n_steps)
        time.sleep(PAUSE_S)
        return times

    def measure(self, n_steps):
        times = self.run(n_steps)
        self.times += times
        self.rounds.append(statistics.median(times))

    def median(self):
        return statistics.median(self.times)

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # A request that it did not live to read.
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def peer_commands(case, options):
    model, form, shape, classes, batch = case
    torch = [options.python, str(HERE / "peer.py"), "--interactive", "--model", model]
    torch += ["--form", form, "--shape", shape, "--classes", str(classes)]
    torch += ["--batch", str(batch), "--threads", str(options.threads)]
    cleave = [options.cleave, "bench", "step", model]
    cleave += ["--data", f"synthetic:{shape}/{classes}", "--batch", str(batch)]
    cleave += ["--threads", str(options.threads), "--interactive", "--floor", "--json"]
    commands = {"torch": torch, "cleave": cleave}
    if options.compile:
        commands["torch.compile"] = torch + ["--compile"]
    return commands


def steps_per_turn(peers, options):
    """Warms every program up, then takes the count that makes a turn of the slowest last about
    --turn seconds; at least two."""
    slowest = 0.0
    for peer in peers.values():
        peer.run(1)
        slowest = max(slowest, statistics.median(peer.run(2)))
    return max(2, min(100, round(options.turn / slowest)))


def run_case(name, options):
    """Runs one case; its result as a dictionary ready for JSON."""
    peers = {}
    try:
        for peer_name, command in peer_commands(CASES[name], options).items():
            peers[peer_name] = Peer(peer_name, command, options.timeout)
        n_steps = steps_per_turn(peers, options)
        for _ in range(options.rounds):
            for peer in peers.values():
                peer.measure(n_steps)
        return describe(name, peers, n_steps)
    finally:
        for peer in peers.values():
            peer.close()


def describe(name, peers, n_steps):
    model, form, shape, classes, batch = CASES[name]
    cleave_s = peers["cleave"].median()
    floor_s = peers["cleave"].ready.get("floor_s")
    result = {
        "case": name,
        "model": model,
        "form": form,
        "shape": shape,
        "classes": classes,
        "batch": batch,
        "steps_per_turn": n_steps,
        "cleave_s": cleave_s,
        "floor_s": floor_s,
        "step_over_floor": cleave_s / floor_s if floor_s else None,
    }
    for peer_name, peer in peers.items():
        if peer_name == "cleave":
            continue
        by_round = [p / c for p, c in zip(peer.rounds, peers["cleave"].rounds)]
        result[f"{peer_name}_s"] = peer.median()
        result[f"{peer_name}_ratio"] = peer.median() / cleave_s
        result[f"{peer_name}_ratio_by_round"] = by_round
    result["steps_s"] = {peer_name: peer.times for peer_name, peer in peers.items()}
    result["ready"] = {peer_name: peer.ready for peer_name, peer in peers.items()}
    return result


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def print_header(torch_peers):
    """One block of columns per PyTorch peer: its median, the ratio, the ratio's range by round."""
    header = f"{'case':18}"
    for peer in torch_peers:
        header += f"{peer + ' ms':>17}{'ratio':>7}{'by round':>14}"
    print(header + f"{'cleave ms':>12}{'floor ms':>10}{'step/floor':>12}", flush=True)


def print_row(r, torch_peers):
    line = f"{r['case']:18}"
    if "error" in r:
        print(line + f"  failed: {r['error']}", flush=True)
        return
    for peer in torch_peers:
        ratios = r[f"{peer}_ratio_by_round"]
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        line += f"{1e3 * r[f'{peer}_s']:17.1f}{r[f'{peer}_ratio']:7.2f}{spread:>14}"
    line += f"{1e3 * r['cleave_s']:12.1f}"
    if r["floor_s"]:
        line += f"{1e3 * r['floor_s']:10.1f}{r['step_over_floor']:12.2f}"
    else:
        line += f"{'-':>10}{'-':>12}"
    print(line, flush=True)


def summarise(results, torch_peers):
    """Per PyTorch peer the geometric mean and the least of the ratios of the cases that ran."""
    summary = {}
    for peer in torch_peers:
        ratios = {r["case"]: r[f"{peer}_ratio"] for r in results if "error" not in r}
        if ratios:
            least = min(ratios, key=ratios.get)
            summary[peer] = {
                "geometric_mean": geometric_mean(ratios.values()),
                "least": ratios[least],
                "least_case": least,
            }
    return summary


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(ln.split(":", 1)[1].strip() for ln in lines if ln.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def parse_arguments():
    parser = argparse.ArgumentParser(description="Time PyTorch and Cleave in turns.")
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated; default: all")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each program (default 5)")
    parser.add_argument("--turn", type=float, default=2.0, help="seconds a turn lasts, about")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--python", default="/usr/bin/python3", help="interpreter with PyTorch")
    parser.add_argument("--cleave", default=str(ROOT / "build" / "cleave"))
    parser.add_argument("--compile", action="store_true", help="torch.compile as a second peer")
    parser.add_argument("--timeout", type=float, default=600, help="seconds to wait for an answer")
    parser.add_argument("--out", type=pathlib.Path, help="write the results here, as JSON")
    parser.add_argument("--least", type=float, default=0.0, help="ratio each case must reach")
    parser.add_argument("--least-mean", type=float, default=0.0, help="same, geometric mean")
    options = parser.parse_args()
    options.cases = options.cases.split(",")
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"no case '{unknown[0]}'; there are: {', '.join(CASES)}")
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    return options


def run_cases(options, torch_peers):
    """Runs every case; a row is printed as soon as its case is done."""
    results = []
    for name in options.cases:
        try:
            results.append(run_case(name, options))
        except PeerError as error:
            results.append({"case": name, "error": str(error)})
        print_row(results[-1], torch_peers)
    return results


def main():
    options = parse_arguments()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"run.py: the machine is busy (load {load:.1f}); expect noise", file=sys.stderr)
    torch_peers = ["torch"] + (["torch.compile"] if options.compile else [])
    print(f"{cpu_name()}, {options.threads} threads, {options.rounds} rounds")
    print_header(torch_peers)
    results = run_cases(options, torch_peers)
    summary = summarise(results, torch_peers)
    failed = any("error" in r for r in results)
    for peer, s in summary.items():
        print(
            f"{peer}: geometric mean of ratios {s['geometric_mean']:.2f}, "
            f"least {s['least']:.2f} ({s['least_case']})"
        )
        failed |= s["least"] < options.least or s["geometric_mean"] < options.least_mean
    if options.out:
        record = {"cpu": cpu_name(), "threads": options.threads, "load": load}
        record.update(rounds=options.rounds, summary=summary, cases=results)
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
