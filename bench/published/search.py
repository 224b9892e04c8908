#!/usr/bin/env python3
"""Plans that Cleave finds beside published ones, by the same clock.

    bench/published/search.py                    both tables, as Markdown
    bench/published/search.py --only optimum     the per-layer optimum of AlexNet and VGG-16
    bench/published/search.py --only slow-links  PipeDream's plans
    bench/published/search.py --check            exit 1 where a bar is not reached
    bench/published/search.py --json FILE

What is published are speeds and bytes by the sources' own counting, and plans. A published plan is
predicted by the clock that decides here, too, so that it and what Cleave finds can be compared.
docs/measurements/published.md says what the tables mean.
"""
import argparse
import json
import os
import sys
import tempfile

import run

BAR = 0.10

# PipeDream (Narayanan et al. 2019), nodes of V100: network -> images per GPU, machine and the plan
# that it chose; None: data parallelism.
V100 = "v100,intra=10GB/s,inter=10Gbit/s"
SLOW_LINKS = (("vgg16", 64, f"4x4:{V100}", (15, 1)), ("alexnet", 256, f"4x4:{V100}", (15, 1)),
              ("vgg16", 64, "4x1:v100,intra=130GB/s,inter=10Gbit/s", (3, 1)),
              ("alexnet", 256, "4x1:v100,intra=130GB/s,inter=10Gbit/s", (3, 1)),
              ("resnet50", 128, f"4x4:{V100}", None),
              ("resnet50", 128, "4x1:v100,intra=130GB/s,inter=10Gbit/s", None))


def plan(cleave, model, machine, batch, *more):
    return cleave.ask("plan", model, "--data", run.DATA, "--batch", batch, "--machine", machine,
                      "--limit", 60, "--no-eval", *more)


def clocked(answer, *families):
    """Candidates that fit and have been through the clock, the fastest first."""
    fit = [c for c in answer["candidates"] if c["clocked"] and c["fits"] and not c["stale"] and
           (not families or c["family"] in families)]
    return sorted(fit, key=lambda c: c["step_s"])


def named(answer, name):
    return next(c for c in answer["candidates"] if c["name"] == name)


def gib(n_bytes):
    return n_bytes / run.GIB


# ---- the per-layer optimum ----

def describe(candidate, images, moved):
    """Speed and bytes, with their difference from the published ones in percent."""
    ours, bytes_moved = candidate["images_per_s"], gib(candidate["bytes_moved"])
    return (f"{ours:.0f} ({100 * run.error(ours, images):+.1f}), {bytes_moved:.3f} "
            f"({100 * run.error(bytes_moved, moved):+.1f})")


def judge(candidate, reference, images, moved):
    """Both figures as published, within 10 %, or better; or faster than the published plan by the
    same clock, and no more moved than that moves."""
    quick = candidate["images_per_s"] >= (1 - BAR) * images
    thrifty = gib(candidate["bytes_moved"]) <= (1 + BAR) * moved
    if quick and thrifty:
        return "as published"
    faster = candidate["images_per_s"] / reference["images_per_s"]
    if quick and faster >= 1:
        less = candidate["bytes_moved"] <= reference["bytes_moved"]
        return f"{faster:.2f} times as fast as its plan{', and less moved' if less else ''}"
    return "no"


def compare_optimum(cleave, tables):
    tables.title("The per-layer optimum: images/s, GiB moved in a step (difference in percent)")
    tables.head("network", "GPUs", "published", "its plan, by the clock", "found", "which", "verdict")
    failures = []
    for model in run.ONE_GPU:
        for i, n in enumerate(run.COUNTS):
            failures += compare_count(cleave, tables, model, i, n)
    return failures


def compare_count(cleave, tables, model, i, n):
    images, moved = run.IMAGES_PER_S[model]["optimum"][i], run.MOVED_GIB[model]["optimum"][i]
    machine = f"{max(1, n // 4)}x{min(n, 4)}:{run.OPTCNN_GPUS}"
    speed = ("--calibrate", run.ONE_GPU[model], "--calibrate-batch", run.PER_GPU)
    batch = n * run.PER_GPU
    network = run.NETWORK[model]
    reference = cleave.predict(network, n, run.column_plan(model, "optimum", n), machine, batch, *speed)
    answer = plan(cleave, network, machine, batch, *speed)
    fastest = clocked(answer, "per layer")[0]
    near = [c for c in clocked(answer) if c["images_per_s"] >= (1 - BAR) * images]
    least = min(near, key=lambda c: c["bytes_moved"], default=fastest)
    rows = [("fastest", fastest)] + ([("least moved", least)] if least is not fastest else [])
    verdicts = [judge(c, reference, images, moved) for _, c in rows]
    for k, (what, c) in enumerate(rows):
        tables.line(model if k == 0 else "", str(n) if k == 0 else "",
                    f"{images}, {moved:g}" if k == 0 else "",
                    f"{reference['images_per_s']:.0f}, {gib(reference['bytes_moved']):.3f}"
                    if k == 0 else "",
                    describe(c, images, moved), f"{c['name']}, {what}", verdicts[k])
    tables.keep(table="optimum", model=model, gpus=n, published=(images, moved),
                reference=(reference["images_per_s"], gib(reference["bytes_moved"])),
                found=[(what, c["name"], c["images_per_s"], gib(c["bytes_moved"])) for what, c in rows],
                verdicts=verdicts, recommended=answer["best"])
    return [f"{model} on {n}: {c['name']} is neither as published nor better"
            for (_, c), verdict in zip(rows, verdicts) if verdict == "no"]


# ---- pipelines on slow links ----

def write_split(text, names, at, replicas, file):
    """A plan of two stages with its second one beginning at layer number `at`."""
    written = json.loads(text)
    for i, name in enumerate(names):
        stage = int(i >= at)
        parts = replicas[stage]
        written["layers"][name] = {"stage": stage, "cut": {"n": parts} if parts > 1 else {}}
    file.seek(0)
    file.truncate()
    json.dump(written, file)
    file.flush()


def best_split(cleave, model, machine, batch, schedule, replicas):
    """The fastest of all plans of two such stages, by the clock: no better one of PipeDream's form
    can be missed."""
    with tempfile.TemporaryDirectory() as folder:
        base = os.path.join(folder, "base.json")
        cleave.ask("plan", "make", schedule, model, "--data", run.DATA, "--batch", batch,
                   "--workers", sum(replicas), "--replicas", ",".join(map(str, replicas)), "-o",
                   base, json_output=False)
        with open(base) as f:
            text = f.read()
        names = list(json.loads(text)["layers"])
        with open(os.path.join(folder, "split.json"), "w") as file:
            speeds = []
            for at in range(1, len(names) - 1):
                write_split(text, names, at, replicas, file)
                speeds.append(cleave.ask("predict", model, "--data", run.DATA, "--batch", batch,
                                         "--machine", machine, "--plan", file.name,
                                         "--no-eval")["images_per_s"])
            return max(speeds)


def compare_slow_links(cleave, tables):
    tables.title("PipeDream's plans on slow links, images/s by the clock")
    tables.head("network", "machine", "PipeDream's plan", "its speed", "data", "recommended",
                "its speed", "verdict")
    failures = []
    for model, per_gpu, machine, replicas in SLOW_LINKS:
        batch = per_gpu * (sum(replicas) if replicas else 16 if machine.startswith("4x4") else 4)
        answer = plan(cleave, model, machine, batch)
        best, data = named(answer, answer["best"]), named(answer, "data")
        theirs = (best_split(cleave, model, machine, batch, "pipedream", replicas) if replicas else
                  data["images_per_s"])
        faster = best["images_per_s"] / theirs
        same = replicas is None and best["family"] == "data"
        verdict = ("the same" if same else f"{faster:.2f} times as fast" if replicas and faster >= 1
                   else "no")
        tables.line(model, machine, "-".join(map(str, replicas)) if replicas else "data",
                    f"{theirs:.0f}", f"{data['images_per_s']:.0f}", best["name"],
                    f"{best['images_per_s']:.0f}", verdict)
        tables.keep(table="slow-links", model=model, machine=machine, replicas=replicas,
                    theirs=theirs, data=data["images_per_s"], best=best["name"],
                    images_per_s=best["images_per_s"])
        if verdict == "no":
            failures.append(f"{model} on {machine}: {best['name']}")
    return failures


COMPARISONS = {"optimum": compare_optimum, "slow-links": compare_slow_links}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cleave", default=os.path.join(run.ROOT, "build", "cleave"),
                        help="the program [build/cleave]")
    parser.add_argument("--only", choices=COMPARISONS, help="one of the comparisons [both]")
    parser.add_argument("--check", action="store_true",
                        help="exit 1 where a bar is not reached")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    arguments = parser.parse_args()
    cleave, tables, failures = run.Cleave(arguments.cleave), run.Tables(), []
    for name, compare in COMPARISONS.items():
        if arguments.only in (None, name):
            failures += compare(cleave, tables)
    if arguments.json:
        with open(arguments.json, "w") as f:
            json.dump(tables.rows, f, indent=1)
    print("\n" + ("\n".join(failures) or "Every bar is reached."))
    return 1 if failures and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
