#!/usr/bin/env python3
"""What a prediction is worth when its costs were first measured beside other programs.

    bench/bad_minute.py                                all named plans of vgg11 and resnet18, 2 workers
    bench/bad_minute.py --beside OLD                   another build in turns with this one
    bench/bad_minute.py --models vgg11 --plans model spatial

Each plan is predicted with a fresh profile while busy loops run, as many as there are workers; then
again with the same profile on the idle host; then it is trained. The second prediction must be
within 15 % of the trained step (--within). Exit status 1 if one is not, or a run failed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLANS = ("data", "owt", "model", "spatial", "layers", "gpipe", "1f1b", "ps")
LOOP = "while True: pass"


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cleave", default=os.path.join(ROOT, "build", "cleave"))
    p.add_argument("--beside", help="another build, in turns with it")
    p.add_argument("--models", nargs="+", default=("vgg11", "resnet18"), metavar="MODEL")
    p.add_argument("--plans", nargs="+", default=PLANS, metavar="PLAN")
    p.add_argument("--data", default="synthetic:cifar10")
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--seconds", type=float, default=3, help="of training [%(default)s]")
    p.add_argument("--within", type=float, default=0.15, help="[%(default)s]")
    return p.parse_args()


def run(command):
    """The last line that it printed, as JSON."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout if command[1] == "predict" else done.stdout.splitlines()[-1])


def try_plan(program, model, plan, a):
    """The relative errors of the two predictions."""
    what = [model, "--data", a.data, "--batch", str(a.batch), "--plan", plan, "--workers", str(a.workers),
            "--threads", "1", "--no-eval", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        profile = ["--profile", os.path.join(folder, "profile.db")]
        loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(a.workers)]
        try:
            busy = run([program, "predict", *what, *profile])
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
        idle = run([program, "predict", *what, *profile])
    steps = max(6, min(5000, int(a.seconds / idle["step_s"])))
    trained = run([program, "train", *what, "--steps", str(steps), "--lr", "0.0001", "--run", "none"])
    step_s = trained["median_step_s"]
    return step_s, busy["step_s"] / step_s - 1, idle["step_s"] / step_s - 1


def main():
    a = read_arguments()
    programs = [os.path.abspath(p) for p in (a.beside, a.cleave) if p]
    errors = {p: [] for p in programs}
    failed = False
    print(f"{'model':<12} {'plan':<10} {'trained ms':>10} {'beside loops':>12} {'asked again':>12}")
    for model in a.models:
        for plan in a.plans:
            for program in programs:
                try:
                    step_s, busy, idle = try_plan(program, model, plan, a)
                except subprocess.CalledProcessError as e:
                    print(f"{' '.join(e.cmd)}: {e.stderr.strip()}", file=sys.stderr)
                    failed = True
                    continue
                errors[program].append(abs(idle))
                print(f"{model:<12} {plan:<10} {1e3 * step_s:10.2f} {busy:+12.1%} {idle:+12.1%}"
                      f"{'  (beside)' if program != programs[-1] else ''}", flush=True)
    for program in programs:
        if errors[program]:
            print(f"{program}: asked again, mean error {statistics.fmean(errors[program]):.1%}, "
                  f"largest {max(errors[program]):.1%}")
    return 1 if failed or max(errors[programs[-1]], default=1) > a.within else 0


if __name__ == "__main__":
    sys.exit(main())
