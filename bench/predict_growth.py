#!/usr/bin/env python3
"""What predicting costs, and how it grows with workers, layers and micro-batches.

    bench/predict_growth.py > growth.md                      on an idle machine
    bench/predict_growth.py --cleave build/cleave --rounds 5
    bench/predict_growth.py --beside ANOTHER                 both programs in turns, 16 workers

Costs are rooflines (machines of P100), so nothing is measured and all costs are known. `predict_s`
is what the command says itself: lowering, memory of all programs of the run, costs and the clock;
without starting the process and building the network. The least of several rounds counts.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STRATEGIES = ("data", "owt", "spatial", "model", "layers", "gpipe", "1f1b", "ps")
WORKERS = (2, 4, 8, 16)
MANY = (16, 64, 256, 1024)
DEPTHS = (("resnet18", 18), ("resnet50", 50), ("resnet101", 101), ("resnet152", 152))
MICRO_BATCHES = (8, 16, 32, 64, 128)
BAR_MS, WIDTH = 50, 50


class Cleave:
    def __init__(self, program, rounds):
        self.program, self.rounds = program, rounds

    def predict_ms(self, model, workers, plan, *more, batch=0):
        command = [self.program, "predict", model, "--data", "synthetic:imagenet", "--batch",
                   str(batch or 16 * workers), "--plan", plan, "--workers", str(workers), "--machine",
                   f"{max(1, workers // 4)}x{min(workers, 4)}:p100,intra=15GB/s,inter=4.5GB/s",
                   *map(str, more), "--json"]
        times = []
        for _ in range(self.rounds):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode not in (0, 3):  # 3: it does not fit, but was predicted
                return None
            times.append(json.loads(done.stdout)["predict_s"] * 1e3)
        return min(times)


def cell(ms):
    return "-" if ms is None else f"{ms:.1f}"


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def plot(rows):
    """Text bars on a scale of tenfold steps: 1, 10, 100, 1000 ms."""
    import math
    print("```")
    print(f"{'':24}1 ms{'':13}10{'':15}100{'':13}1000")
    for name, ms in rows:
        if ms is not None:
            length = max(1, round(WIDTH * math.log10(max(ms, 1.0)) / 3))
            print(f"{name:<22}  {'#' * length} {ms:.0f}")
    print("```")
    print()


def by_workers(cleave):
    print("## Inception-v3, by workers\n\nMilliseconds; 16 images per worker.\n")
    bars, rows, inside = [], [], 0
    for strategy in STRATEGIES:
        times = [cleave.predict_ms("inceptionv3", n, strategy) for n in WORKERS]
        rows.append([strategy, *map(cell, times)])
        bars.append((f"{strategy} on {WORKERS[-1]}", times[-1]))
        inside += times[-1] is not None and times[-1] < BAR_MS
    table(["strategy", *(f"{n} workers" for n in WORKERS)], rows)
    plot(bars)
    print(f"On {WORKERS[-1]} workers {inside} of {len(STRATEGIES)} are under {BAR_MS} ms.\n")


def beside(cleave, other):
    """The two take turns, so that both see the same machine."""
    n, rounds = WORKERS[-1], cleave.rounds
    print(f"## Two programs in turns: Inception-v3 on {n} workers\n")
    rows = []
    for strategy in STRATEGIES:
        pairs = [(Cleave(other, 1).predict_ms("inceptionv3", n, strategy),
                  Cleave(cleave.program, 1).predict_ms("inceptionv3", n, strategy))
                 for _ in range(rounds)]
        before, now = (min(times) for times in zip(*pairs))
        rows.append([strategy, cell(before), cell(now), f"{before / now:.1f}"])
    table(["strategy", "the other", "this", "times"], rows)


def by_many_workers(cleave):
    print("## Data parallel, by many workers\n")
    rows = [[model, *(cell(cleave.predict_ms(model, n, "data")) for n in MANY)]
            for model in ("resnet50", "inceptionv3")]
    table(["network", *(f"{n} workers" for n in MANY)], rows)


def by_layers(cleave):
    print("## ResNets, by layers, on 16 workers\n")
    plans = ("data", "model", "1f1b")
    times = {name: [cleave.predict_ms(name, 16, plan) for plan in plans] for name, _ in DEPTHS}
    table(["layers", *plans], [[str(depth), *map(cell, times[name])] for name, depth in DEPTHS])
    plot([(f"model, {depth} layers", times[name][1]) for name, depth in DEPTHS])


def by_micro_batches(cleave):
    print("## ResNet-50, by micro-batches, on 4 workers\n")
    plans = ("gpipe", "1f1b")
    rows = [[str(m), *(cell(cleave.predict_ms("resnet50", 4, plan, "--micro-batches", m,
                                              batch=256)) for plan in plans)]
            for m in MICRO_BATCHES]
    table(["micro-batches", *plans], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cleave", default=os.path.join(ROOT, "build", "cleave"),
                        help="the program [build/cleave]")
    parser.add_argument("--rounds", type=int, default=3, help="of which the quickest counts [3]")
    parser.add_argument("--beside", metavar="PROGRAM",
                        help="only compare with this one, in turns [everything of one program]")
    arguments = parser.parse_args()
    cleave = Cleave(arguments.cleave, arguments.rounds)
    if arguments.beside:
        beside(cleave, arguments.beside)
        return 0
    print("# What predicting costs\n\n    bench/predict_growth.py\n")
    for section in (by_workers, by_many_workers, by_layers, by_micro_batches):
        section(cleave)
    return 0


if __name__ == "__main__":
    sys.exit(main())
