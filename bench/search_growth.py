#!/usr/bin/env python3
"""What searching for a plan costs, and how it grows with workers.

    bench/search_growth.py                        on an idle machine; writes both files of docs/
    bench/search_growth.py --cleave build/cleave --json search.json --out /tmp

Runs `cleave bench search`: one core, costs known (rooflines of P100), 32 images per worker. Written
are search-cost.md, with the bars beside what was measured, and search-growth.svg.
"""
import argparse
import json
import math
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BARS = ("lenet5:4", "alexnet:4", "vgg16:4", "inceptionv3:4", "inceptionv3:16", "inceptionv3:64",
        "inceptionv3:1024")
GROWTH = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
NETWORKS = {"alexnet": "#b35806", "vgg16": "#542788", "inceptionv3": "#1b7837"}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 64, 132, 34, 46
LEAST_S, MOST_S = 1e-4, 1e2


class Measured:
    """Cases by name; with a file, those that are in it already are not measured again."""

    def __init__(self, program, rounds, path):
        self.program, self.rounds, self.path, self.cases = program, rounds, path, {}
        if path and os.path.exists(path):
            with open(path) as f:
                self.cases = json.load(f)

    def get(self, names):
        for name in names:
            if name not in self.cases:
                self.cases[name] = self.measure(name)
                self.keep()
        return [self.cases[name] for name in names]

    def measure(self, name):
        done = subprocess.run([self.program, "bench", "search", "--cases", name, "--rounds",
                               str(self.rounds), "--json"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"cleave bench search --cases {name} failed: {done.stderr.strip()}")
        return json.loads(done.stdout)["cases"][0]

    def keep(self):
        if self.path:
            with open(self.path, "w") as f:
                json.dump(self.cases, f, indent=1)


def seconds(value):
    if value is None:
        return "-"
    return f"{1e3 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


# ---- the plot ----

def place(workers, time_s):
    x = LEFT + (WIDTH - LEFT - RIGHT) * math.log2(workers / GROWTH[0]) / math.log2(
        GROWTH[-1] / GROWTH[0])
    y = TOP + (HEIGHT - TOP - BOTTOM) * math.log10(MOST_S / time_s) / math.log10(MOST_S / LEAST_S)
    return x, y


def text(x, y, words, anchor="middle", size=12, colour="#333"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{colour}">{words}</text>')


def axes():
    parts = [text(LEFT, 18, "Search time on one core: the best cut of every layer (solid), with "
                  "pipelines (dashed)", "start", 13)]
    time_s = LEAST_S
    while time_s <= MOST_S * 1.01:
        x, y = place(GROWTH[0], time_s)
        parts += [f'<path d="M {x:.1f} {y:.1f} H {WIDTH - RIGHT}" stroke="#ddd"/>',
                  text(x - 8, y + 4, seconds(time_s), "end")]
        time_s *= 10
    for workers in GROWTH:
        x, y = place(workers, LEAST_S)
        parts.append(text(x, y + 18, workers))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "workers"))
    return parts


def curve(points, colour, dashed):
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*p) for p in points))
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'


def plot(cases):
    parts = axes()
    for network, colour in NETWORKS.items():
        mine = [c for c in cases if c["model"] == network]
        for key, dashed in (("search_s", False), ("with_pipelines_s", True)):
            points = [(c["workers"], c[key]) for c in mine if c[key]]
            parts.append(curve(points, colour, dashed))
        x, y = place(mine[-1]["workers"], mine[-1]["search_s"])
        parts.append(text(x + 8, y + 4, network, "start", 12, colour))
    for c in cases:  # the bars that are held
        if c["bar_s"] and c["model"] in NETWORKS:
            x, y = place(c["workers"], c["bar_s"])
            parts += [f'<path d="M {x - 7:.1f} {y:.1f} h 14" stroke="{NETWORKS[c["model"]]}" '
                      f'stroke-width="3"/>', text(x, y - 6, "bar", size=10)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(parts) +
            "\n</svg>\n")


# ---- the page ----

def bars_table(cases):
    lines = ["| network | workers | plans | search | bar | with pipelines | bar | held |",
             "|---|---|---|---|---|---|---|---|"]
    for c in cases:
        lines.append(f"| {c['model']} | {c['workers']} | 1e{c['log10_plans']:.0f} | "
                     f"{seconds(c['search_s'])} | {seconds(c['bar_s'])} | "
                     f"{seconds(c['with_pipelines_s'])} | {seconds(c['with_pipelines_bar_s'])} | "
                     f"{'yes' if c['held'] else 'no'} |")
    return lines


def growth_table(cases):
    lines = ["| workers | " + " | ".join(f"{n}, search | with pipelines" for n in NETWORKS) + " |",
             "|---|" + "---|---|" * len(NETWORKS)]
    for workers in GROWTH:
        row = [next(c for c in cases if c["model"] == n and c["workers"] == workers)
               for n in NETWORKS]
        lines.append(f"| {workers} | " + " | ".join(
            f"{seconds(c['search_s'])} | {seconds(c['with_pipelines_s'])}" for c in row) + " |")
    return lines


def page(held, grown):
    return "\n".join([
        "# What searching for a plan costs", "", "    bench/search_growth.py", "",
        "One core, nothing else running; costs are known (rooflines of P100, four to a node, 32",
        "images per worker). `search` is the best cut of every layer: listing the choices, pricing",
        "layers and edges, the exact solution, the plan. `with pipelines` also searches for stages of",
        "any width, for six numbers of micro-batches and three schedules. `plans` is how many plans of",
        "one stage there are. Building the network and the clock are not in it. A figure is the middle",
        "of five rounds, or one round where that takes more than 2 s.", "",
        "## The bars", "", *bars_table(held), "",
        "## Growth", "", "![Search time by workers](../images/search-growth.svg)", "",
        *growth_table(grown), "",
        "The time grows with the square of a layer's number of choices, for each different edge between",
        "two layers. A layer has at most 400 choices, the most promising ones. Up to 8 workers any",
        "number of parts is tried, beyond that divisors and powers of two: 8 workers take longer than 16.",
        "Pipelines have at most 16 slots, each of several workers where there are more; beyond that the",
        "time to price stages of many workers grows.", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cleave", default=os.path.join(ROOT, "build", "cleave"),
                        help="the program [build/cleave]")
    parser.add_argument("--rounds", type=int, default=5, help="of which the middle one counts [5]")
    parser.add_argument("--out", help="folder for both files [docs/measurements and docs/images]")
    parser.add_argument("--json", metavar="FILE",
                        help="keep the figures there; figures that it has are not measured again")
    arguments = parser.parse_args()
    measured = Measured(arguments.cleave, arguments.rounds, arguments.json)
    held = measured.get(BARS)
    grown = measured.get([f"{n}:{w}" for n in NETWORKS for w in GROWTH])
    docs = os.path.join(ROOT, "docs")
    with open(os.path.join(arguments.out or os.path.join(docs, "measurements"), "search-cost.md"),
              "w") as f:
        f.write(page(held, grown))
    with open(os.path.join(arguments.out or os.path.join(docs, "images"), "search-growth.svg"),
              "w") as f:
        f.write(plot(grown))
    return 0 if all(c["held"] for c in held) else 1


if __name__ == "__main__":
    sys.exit(main())
