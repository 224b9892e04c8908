#!/usr/bin/env python3
"""PyTorch and Cleave training in parallel on this machine, in turns, in one run.

    /usr/bin/python3 bench/peers/parallel.py --mode data --workers 2,4 --out data.json
    /usr/bin/python3 bench/peers/parallel.py --mode weak --workers 16
    /usr/bin/python3 bench/peers/parallel.py --mode pipeline --workers 4

Same network (the parameter counts are compared), shape, batch, float32, SGD with momentum 0.9, no
weight decay, synthetic images, one thread per worker. A round is a turn of each program, a turn
about --seconds of steps; PyTorch's processes (parallel_peer.py) stay, blocked, while Cleave is
started anew for each turn and its first steps are left out.

    data      cleave train --plan data          against DistributedDataParallel over Gloo
    pipeline  cleave train --plan gpipe, 1f1b   against torch.distributed.pipelining over Gloo
    weak      each program against itself: N workers over N times one worker, where "one" is once
              alone and once the mean of N independent copies at the same time. The second is the
              fair one: cores share memory, caches and clock, and only the rest is communication.

Two differences remain. Cleave takes batch norm's statistics over all workers, so that N workers
train to the losses of one; DistributedDataParallel does not, and torch.nn.SyncBatchNorm needs GPUs:
Cleave does more work there. And Cleave's loader makes the images of each step anew, in a thread of
its own, while PyTorch uses one batch again and again.

Exit status 1 if a case failed or fell below --least. A pipeline that this PyTorch cannot run is
printed as skipped, and Cleave is measured alone.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import run  # noqa: E402  after the line above, which keeps __pycache__ out of the sources
from parallel_peer import PIPELINES, die_with_parent  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
CLEAVE_WARMUP = 3  # Steps left out at the start of each of Cleave's turns.
MOST_STEPS = 1000  # In a turn.

# Name: model, form, shape, classes, batch (of a worker; in a pipeline of the whole step). The form
# is Cleave's own choice, by the height: 33 is the least that has torchvision's stem.
CASES = {
    "lenet5": ("lenet5", "small", "1x28x28", 10, 128),
    "resnet18-stem": ("resnet18", "large", "3x33x32", 10, 64),
    "resnet18-cifar10": ("resnet18", "small", "3x32x32", 10, 64),
    "vgg11-cifar10": ("vgg11", "small", "3x32x32", 10, 64),
}
PIPELINE_CASES = ("resnet18-cifar10", "vgg11-cifar10")


class Skipped(Exception):
    pass


# ---- programs: measure(n) does n more steps, rounds and times keep the figures ----


class Torch:
    """PyTorch with `workers` processes, `copies` times at once."""

    name = "torch"

    def __init__(self, case, plan, workers, copies, options):
        self.peers, self.times, self.rounds, self.turns = [], [], [], []
        command = torch_command(case, plan, workers, options)
        try:
            for _ in range(copies):
                self.peers.append(run.Peer(self.name, command, options.timeout))
                self.ready = self.peers[-1].ready
                if self.ready["event"] == "skip":
                    raise Skipped(self.ready["reason"])
        except BaseException:
            self.close()
            raise

    def measure(self, n_steps, keep=True):
        for peer in self.peers:
            peer.request(n_steps)
        answers = [peer.answer(n_steps) for peer in self.peers]
        time.sleep(run.PAUSE_S)
        return record(self, answers, keep)

    def close(self):
        for peer in self.peers:
            peer.close()


class Cleave:
    """`cleave train`, started for each turn, `copies` times at once."""

    name = "cleave"

    def __init__(self, case, plan, workers, copies, options):
        self.case, self.plan, self.workers, self.copies = case, plan, workers, copies
        self.options, self.times, self.rounds, self.turns = options, [], [], []
        self.ready = {"parameters": cleave_parameters(case, options)}

    def measure(self, n_steps, keep=True):
        # The quickest copies go on until the slowest has done the steps that count: all of those
        # were taken under the same load.
        tail = n_steps + 2 if self.copies > 1 else 0
        command = cleave_command(self.case, self.plan, self.workers, n_steps + tail, self.options)
        outputs = run_together([command] * self.copies, self.options.timeout)
        times = [read_steps(text, n_steps + tail)[:n_steps] for text in outputs]
        return record(self, times, keep)

    def close(self):
        pass


def record(program, answers, keep):
    """The median of a turn; kept, unless it was a warm-up."""
    times = [seconds for answer in answers for seconds in answer]
    median = statistics.median(times)
    if keep:
        program.times += times
        program.rounds.append(median)
        program.turns.append(answers)
    return median


def torch_command(case, plan, workers, options):
    model, form, shape, classes, batch = case
    command = [options.python, str(HERE / "parallel_peer.py"), "--interactive", "--plan", plan]
    command += ["--workers", str(workers), "--threads", "1", "--batch", str(batch)]
    command += ["--model", model, "--form", form, "--shape", shape, "--classes", str(classes)]
    command += ["--micro-batches", str(options.micro_batches)]
    # Half: Gloo's own complaint should come first, it says more.
    return command + ["--gloo-timeout", str(max(1, int(options.timeout / 2)))]


def images_per_step(case, plan, workers):
    return case[4] if plan in PIPELINES else case[4] * workers


def cleave_command(case, plan, workers, n_steps, options):
    model, _form, shape, classes, _batch = case
    batch = images_per_step(case, plan, workers)
    n_steps += CLEAVE_WARMUP
    # As many images as the steps need: one epoch, and no short batch at its end.
    command = [options.cleave, "train", model, "--json", "--no-eval", "--lr", "0.001"]
    command += ["--run", "none"]  # A record would cost time, and stay.
    command += ["--data", f"synthetic:{shape}/{classes}/{batch * n_steps}", "--batch", str(batch)]
    command += ["--steps", str(n_steps), "--momentum", "0.9", "--weight-decay", "0"]
    command += ["--schedule", "constant", "--workers", str(workers), "--threads", "1"]
    command += ["--plan", plan if workers > 1 else "serial"]
    if plan in PIPELINES:
        command += ["--micro-batches", str(options.micro_batches)]
    return command + options.cleave_args


def start(command, out):
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE,
            preexec_fn=die_with_parent, cwd=run.ROOT,
        )  # fmt: skip
    except OSError as error:
        raise run.PeerError(f"cleave: cannot start {command[0]}: {error.strerror}") from error


def run_together(commands, timeout_s):
    """Runs the commands at the same time; what each wrote. None outlives the call."""
    deadline = time.monotonic() + timeout_s
    running = []
    try:
        for command in commands:
            out = tempfile.TemporaryFile()
            running.append((start(command, out), out))
        return [finish(process, out, deadline) for process, out in running]
    except subprocess.TimeoutExpired as error:
        raise run.PeerError(f"cleave: not done in {timeout_s} s: {' '.join(error.cmd)}") from error
    finally:
        for process, out in running:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stderr.close()
            out.close()


def finish(process, out, deadline):
    _none, complaints = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    if process.returncode != 0:
        last = complaints.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise run.PeerError(f"cleave: exit status {process.returncode}: {last[0]}")
    out.seek(0)
    return out.read()


def read_steps(text, n_steps):
    """The times of the last n_steps steps in Cleave's JSON lines."""
    events = [json.loads(line) for line in text.splitlines() if line.strip()]
    times = [e["step_s"] for e in events if e.get("event") == "step"]
    if len(times) != n_steps + CLEAVE_WARMUP or events[-1].get("event") != "done":
        raise run.PeerError(f"cleave: {len(times)} steps, not {n_steps + CLEAVE_WARMUP}")
    return times[CLEAVE_WARMUP:]


def cleave_parameters(case, options):
    model, _form, shape, classes, _batch = case
    command = [options.cleave, "show", model, "--data", f"synthetic:{shape}/{classes}", "--json"]
    return json.loads(run_together([command], 60)[0])["parameters"]


def check_parameters(programs):
    counts = {p.name: p.ready["parameters"] for p in programs}
    if len(set(counts.values())) != 1:
        raise run.PeerError(f"not the same network: parameters {counts}")


# ---- rounds ----


def steps_per_turn(program, options):
    """A first turn to warm up, and the steps that fill about --seconds."""
    if options.steps:
        program.measure(min(2, options.steps), keep=False)
        return options.steps
    median = program.measure(2, keep=False)
    if median < 0.1:  # Two such steps say little.
        median = program.measure(10, keep=False)
    return max(2, min(MOST_STEPS, round(options.seconds / median)))


def take_turns(programs, options):
    n_steps = [steps_per_turn(p, options) for p in programs]
    for _ in range(options.rounds):
        for program, n in zip(programs, n_steps):
            program.measure(n)


def open_programs(makers):
    """Starts them all, or none."""
    programs = []
    try:
        for make in makers:
            programs.append(make())
    except BaseException:
        close_programs(programs)
        raise
    return programs


def close_programs(programs):
    for program in programs:
        program.close()


def versus(name, plan, workers, options):
    """PyTorch against Cleave on one case, as a dictionary ready for JSON."""
    case = CASES[name]
    batch = images_per_step(case, plan, workers)
    result = {"case": name, "plan": plan, "workers": workers, "batch_of_step": batch}
    result["skipped"] = None
    arguments = (case, plan, workers, 1, options)
    try:
        programs = open_programs([lambda: Torch(*arguments), lambda: Cleave(*arguments)])
    except Skipped as reason:
        result["skipped"] = str(reason)
        programs = [Cleave(*arguments)]
    try:
        check_parameters(programs)
        take_turns(programs, options)
        for program in programs:
            describe(program, program.name, batch, result)
    finally:
        close_programs(programs)
    if not result["skipped"]:
        torch, cleave = programs
        result["ratio"] = result["torch_s"] / result["cleave_s"]
        result["ratio_by_round"] = [t / c for t, c in zip(torch.rounds, cleave.rounds)]
    return result


def describe(program, prefix, batch, result):
    median = statistics.median(program.times)
    result[f"{prefix}_s"] = median
    result[f"{prefix}_images_per_s"] = batch / median
    result[f"{prefix}_rounds_s"] = program.rounds
    result[f"{prefix}_steps_s"] = program.times
    result[f"{prefix}_ready"] = program.ready


def images_per_s(turns, batch):
    """Of one of the copies that ran in these turns; the mean of all. (A median would leave out the
    cores that are slow just then, and those who work together cannot.)"""
    return statistics.mean(
        batch * len(times) / sum(times) for answers in turns for times in answers
    )


def weak(name, workers, program, options):
    """One program with one worker alone, as one of N copies, and with N workers. PyTorch's
    processes of the one wait, blocked, while the others are measured."""
    case = CASES[name]
    result = {"case": name, "plan": "data", "workers": workers, "program": program.name}
    forms = {"alone": (1, 1), "copies": (1, workers), "parallel": (workers, 1)}
    programs = open_programs(
        [lambda w=w, c=c: program(case, "data", w, c, options) for w, c in forms.values()]
    )
    try:
        take_turns(programs, options)
        batches = [images_per_step(case, "data", w) for w, _copies in forms.values()]
        for form, p, batch in zip(forms, programs, batches):
            describe(p, form, batch, result)
            result[f"{form}_images_per_s"] = images_per_s(p.turns, batch)
    finally:
        close_programs(programs)
    n_workers = result["parallel_images_per_s"]
    result["efficiency_of_copies"] = n_workers / (workers * result["copies_images_per_s"])
    result["efficiency_of_alone"] = n_workers / (workers * result["alone_images_per_s"])
    _alone, copies, parallel = programs
    result["efficiency_by_round"] = [
        images_per_s([p], batches[2]) / (workers * images_per_s([c], batches[1]))
        for c, p in zip(copies.turns, parallel.turns)
    ]
    return result


# ---- tables ----


def spread(values):
    return f"{min(values):.2f}-{max(values):.2f}"


def print_header(mode):
    start_of_line = f"{'case':18}{'plan':>6}{'workers':>8}"
    if mode == "weak":
        print(f"{start_of_line}{'program':>9}{'1 alone/s':>11}{'1 of N/s':>10}{'N/s':>9}"
              f"{'of N x 1 of N':>15}{'by round':>12}{'of N x alone':>14}", flush=True)  # fmt: skip
    else:
        print(f"{start_of_line}{'torch ms':>10}{'images/s':>10}{'cleave ms':>11}{'images/s':>10}"
              f"{'ratio':>7}{'by round':>12}", flush=True)  # fmt: skip


def print_row(r):
    line = f"{r['case']:18}{r['plan']:>6}{r['workers']:>8}"
    if "error" in r:
        line += f"  failed: {r['error']}"
    elif "program" in r:
        line += f"{r['program']:>9}{r['alone_images_per_s']:11.0f}{r['copies_images_per_s']:10.0f}"
        line += f"{r['parallel_images_per_s']:9.0f}{r['efficiency_of_copies']:15.2f}"
        line += f"{spread(r['efficiency_by_round']):>12}{r['efficiency_of_alone']:14.2f}"
    elif r["skipped"]:
        line += f"{'-':>10}{'-':>10}{1e3 * r['cleave_s']:11.1f}{r['cleave_images_per_s']:10.0f}"
        line += f"{'-':>7}  PyTorch skipped: {r['skipped']}"
    else:
        line += f"{1e3 * r['torch_s']:10.1f}{r['torch_images_per_s']:10.0f}"
        line += f"{1e3 * r['cleave_s']:11.1f}{r['cleave_images_per_s']:10.0f}"
        line += f"{r['ratio']:7.2f}{spread(r['ratio_by_round']):>12}"
    print(line, flush=True)


# ---- command line ----


def parse_arguments():
    parser = argparse.ArgumentParser(description="Time parallel PyTorch and Cleave in turns.")
    parser.add_argument("--mode", choices=("data", "pipeline", "weak"), default="data")
    parser.add_argument("--workers", help="comma-separated; default: the cores, in a pipeline 4")
    parser.add_argument("--cases", help="comma-separated; default: all of the mode")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each program (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn, about (default 3)")
    parser.add_argument("--steps", type=int, help="in a turn, instead of --seconds")
    parser.add_argument("--micro-batches", type=int, default=8, help="in a pipeline (default 8)")
    parser.add_argument("--plans", default=",".join(PIPELINES), help="of the pipelines")
    parser.add_argument("--sync-bn", choices=("off",), default="off",
                        help="of PyTorch: off is all it has without GPUs")  # fmt: skip
    parser.add_argument("--python", default="/usr/bin/python3", help="interpreter with PyTorch")
    parser.add_argument("--cleave", default=str(run.ROOT / "build" / "cleave"))
    parser.add_argument("--cleave-args", default="", help="more options of cleave train")
    parser.add_argument("--no-torch", action="store_true", help="weak: Cleave only")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a turn may last")
    parser.add_argument("--out", type=pathlib.Path, help="write the results here, as JSON")
    parser.add_argument("--least", type=float, default=0.0,
                        help="ratio each case must reach; weak: efficiency")  # fmt: skip
    return check_arguments(parser, parser.parse_args())


def check_arguments(parser, options):
    pipeline = options.mode == "pipeline"
    cases = PIPELINE_CASES if pipeline else tuple(CASES)
    options.cases = options.cases.split(",") if options.cases else list(cases)
    for name in options.cases:
        if name not in cases:
            parser.error(f"no case '{name}' in this mode; there are: {', '.join(cases)}")
    options.plans = options.plans.split(",")
    if not set(options.plans) <= set(PIPELINES):
        parser.error(f"--plans takes some of: {','.join(PIPELINES)}")
    workers = options.workers or ("4" if pipeline else str(os.cpu_count()))
    if not all(w.isdigit() and int(w) >= (2 if pipeline else 1) for w in workers.split(",")):
        parser.error(f"--workers '{workers}' is not a list of numbers of workers")
    options.workers = [int(w) for w in workers.split(",")]
    if options.rounds < 1 or (options.steps is not None and options.steps < 1):
        parser.error("--rounds and --steps must be at least 1")
    options.cleave_args = options.cleave_args.split()
    return options


def list_jobs(options):
    """(what to print if it fails, what to call) for each row of the table."""
    plans = options.plans if options.mode == "pipeline" else ["data"]
    for name in options.cases:
        for n in options.workers:
            for plan in plans:
                label = {"case": name, "plan": plan, "workers": n}
                if options.mode != "weak":
                    yield label, lambda: versus(name, plan, n, options)
                    continue
                for program in (Cleave,) if options.no_torch else (Torch, Cleave):
                    labelled = dict(label, case=f"{name} {program.name}")
                    yield labelled, lambda: weak(name, n, program, options)


def run_jobs(options):
    results = []
    for label, job in list_jobs(options):
        try:
            results.append(job())
        except run.PeerError as error:
            results.append(dict(label, error=str(error)))
        print_row(results[-1])
    return results


def reached(result, otherwise):
    """What --least is about: the ratio, in weak mode Cleave's share of N copies."""
    if result.get("program") == Cleave.name:
        return result["efficiency_of_copies"]
    return result.get("ratio", otherwise)


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(1))  # Runs the finally parts.
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"parallel.py: the machine is busy (load {load:.1f}); expect noise", file=sys.stderr)
    cores = len(os.sched_getaffinity(0))
    if max(options.workers) > cores:
        print(f"parallel.py: more workers than the {cores} cores", file=sys.stderr)
    print(f"{run.cpu_name()}, {cores} cores, 1 thread per worker, {options.rounds} rounds; "
          "batch norm over all workers in Cleave, over each one's images in PyTorch")  # fmt: skip
    print_header(options.mode)
    results = run_jobs(options)
    if options.out:
        about = {"cpu": run.cpu_name(), "cores": cores, "load": load, "mode": options.mode}
        about.update(threads=1, rounds=options.rounds, sync_bn={"cleave": True, "torch": False})
        options.out.write_text(json.dumps(dict(about, cases=results), indent=1) + "\n", "utf-8")
    low = [r for r in results if reached(r, options.least) < options.least]
    return 1 if low or any("error" in r for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
