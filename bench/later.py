#!/usr/bin/env python3
"""Predicted first, trained later, as a user does it: the error of each, and whether its error bar knew.

    bench/later.py                                  16 cases of ten networks, on 2 workers
    bench/later.py --beside OLD --rounds 2          another build in turns with this one
    bench/later.py --cases 'lenet5 fashion-mnist 128 data' 'vgg11 synthetic:cifar10 24 ps' --workers 4

A case is MODEL DATA BATCH PLAN. Each is predicted with a profile of its own, so that all is measured
anew, and then trained for some seconds. 'cleave bench accuracy' does both in turns of 50 ms, so that
both meet the same noise: it says how good the clock is. This says what a prediction is worth by the
time that somebody acts on it. Exit status 1 if a run failed, or memory is not as predicted.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CASES = ("lenet5 fashion-mnist 128 data", "lenet5 fashion-mnist 100 1f1b", "mlp synthetic:cifar10 200 data",
         "resnet18 synthetic:cifar10 10 data", "resnet18 synthetic:3x48x48/20 6 gpipe", "vgg11 synthetic:mnist 20 owt",
         "vgg11 synthetic:cifar10 24 ps", "mobilenetv2 synthetic:cifar10 12 spatial",
         "mobilenetv2 synthetic:mnist 10 model", "googlenet synthetic:3x96x96/50 4 data",
         "googlenet synthetic:3x80x80/10 6 owt", "alexnet synthetic:3x128x128/100 12 owt",
         "alexnet synthetic:3x64x64/10 16 pipedream", "inceptionv3 synthetic:3x96x96/10 2 layers",
         "vgg16 synthetic:cifar10 6 spatial", "resnet50 synthetic:mnist 4 1f1b")


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cleave", default=os.path.join(ROOT, "build", "cleave"))
    p.add_argument("--beside", help="another build, in turns with it")
    p.add_argument("--cases", nargs="+", default=CASES, metavar="CASE")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--seconds", type=float, default=3, help="of training [%(default)s]")
    p.add_argument("--rounds", type=int, default=1)
    return p.parse_args()


def run(command):
    """What it printed; None: it failed, and what it said was printed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    print(f"{' '.join(command)}: {done.stderr.strip()}", file=sys.stderr)
    return None


def try_case(program, case, a):
    """{"error", "bar", ..}, or None."""
    model, data, batch, plan = case.split()
    what = [model, "--data", data, "--batch", batch, "--plan", plan, "--workers", str(a.workers), "--threads", "1",
            "--no-eval"]
    with tempfile.TemporaryDirectory() as folder:
        said = run([program, "predict", *what, "--profile", os.path.join(folder, "profile.db"), "--json"])
    if said is None:
        return None
    p = json.loads(said)
    steps = max(6, min(5000, int(a.seconds / p["step_s"])))
    said = run([program, "train", *what, "--steps", str(steps), "--lr", "0.0001", "--run", "none", "--json"])
    if said is None:
        return None
    t = json.loads(said.splitlines()[-1])
    return {"predicted": p["step_s"], "measured": t["median_step_s"], "error": p["step_s"] / t["median_step_s"] - 1,
            "bar": p["error_s"] / p["step_s"], "memory": p["memory_bytes"] == t["memory_bytes"]}


def sum_up(name, results):
    errors = [abs(r["error"]) for r in results]
    inside = [abs(r["error"]) <= r["bar"] for r in results]
    twice = [abs(r["error"]) <= 2 * r["bar"] for r in results]
    print(f"{name}: {len(results)} cases, mean error {statistics.fmean(errors):.1%}, largest {max(errors):.1%}, "
          f"{sum(e > 0.1 for e in errors)} over 10 %; mean error bar {statistics.fmean(r['bar'] for r in results):.1%}, "
          f"{statistics.fmean(inside):.0%} within it, {statistics.fmean(twice):.0%} within twice; "
          f"memory equal in {sum(r['memory'] for r in results)}")


def main():
    a = read_arguments()
    programs = [os.path.abspath(p) for p in (a.beside, a.cleave) if p]
    results = {p: [] for p in programs}
    failed = False
    print(f"{'model':<12} {'data':<24} {'batch':>5} {'plan':<10} {'predicted':>9} {'measured':>9} {'error':>7} {'+-':>6}")
    for i in range(a.rounds):
        for case in a.cases:
            for program in programs if i % 2 == 0 else programs[::-1]:
                r = try_case(program, case, a)
                if r is None:
                    failed = True
                    continue
                results[program].append(r)
                model, data, batch, plan = case.split()
                print(f"{model:<12} {data:<24} {batch:>5} {plan:<10} {1e3 * r['predicted']:9.2f} "
                      f"{1e3 * r['measured']:9.2f} {r['error']:+7.1%} {r['bar']:6.1%}"
                      f"{'  (beside)' if program != programs[-1] else ''}", flush=True)
    for program in programs:
        if results[program]:
            sum_up(program, results[program])
    return 1 if failed or not all(r["memory"] for p in programs for r in results[p]) else 0


if __name__ == "__main__":
    sys.exit(main())
