#!/usr/bin/env python3
"""Two builds of cleave train the same plans in turns: how long a step takes with each, and the ratio.

    tools/build.sh build-naps -DCMAKE_C_FLAGS=-DCOMM_SPIN_S=50e-6
    bench/beside.py build-naps/cleave build/cleave --models lenet5,mobilenetv2 --batch 64 --workers 2
    bench/beside.py OLD NEW --models vgg11 --plans data,ps --workers 16 --batch 64 --steps 20

A step's time is the median of a training's steps; of a plan, the median of its trainings. The build that
begins changes from round to round. Exit status 1 if a training failed.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("before")
    p.add_argument("after", nargs="?", default=os.path.join(ROOT, "build", "cleave"))
    p.add_argument("--models", default="lenet5")
    p.add_argument("--plans", default="data,spatial,owt,layers,gpipe,1f1b,ps")
    p.add_argument("--data", default="synthetic:cifar10")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--rounds", type=int, default=3)
    return p.parse_args()


def train(program, model, plan, a):
    """The median step in ms; None: it failed, and what it said was printed."""
    command = [program, "train", model, "--plan", plan, "--data", a.data, "--batch", str(a.batch), "--workers",
               str(a.workers), "--threads", "1", "--steps", str(a.steps), "--lr", "0.0001", "--no-eval", "--run",
               "none", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or not events or events[-1].get("event") != "done":
        print(f"{' '.join(command)}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return 1e3 * events[-1]["median_step_s"]


def compare(model, plan, a):
    """The medians of both."""
    times = {a.before: [], a.after: []}
    for i in range(a.rounds):
        for program in (a.before, a.after) if i % 2 == 0 else (a.after, a.before):
            ms = train(program, model, plan, a)
            if ms is None:
                return None
            times[program].append(ms)
    return statistics.median(times[a.before]), statistics.median(times[a.after])


def main():
    a = read_arguments()
    if os.path.realpath(a.before) == os.path.realpath(a.after):
        sys.exit("beside.py: both are the same program")
    a.before, a.after = os.path.abspath(a.before), os.path.abspath(a.after)
    ratios, failed = [], False
    print(f"{'model':<12} {'plan':<10} {'before ms':>10} {'after ms':>10} {'after/before':>13}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CLEAVE_PROFILE"] = os.path.join(folder, "profile.db")
        for model in a.models.split(","):
            for plan in a.plans.split(","):
                both = compare(model, plan, a)
                if both is None:
                    failed = True
                    continue
                ratios.append(both[1] / both[0])
                print(f"{model:<12} {plan:<10} {both[0]:10.2f} {both[1]:10.2f} {ratios[-1]:13.3f}", flush=True)
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{len(ratios)} plans, {a.workers} workers: {mean:.3f}, the geometric mean")
    return 1 if failed or not ratios else 0


if __name__ == "__main__":
    sys.exit(main())
