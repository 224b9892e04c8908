#!/usr/bin/env python3
"""Sums over workers on one host: Cleave's threads, Cleave's ranks beside MPI_Allreduce in the same
run, and PyTorch's Gloo, one after the other, in one table.

    bench/comm/run.py --workers 2,4                 build/bench/cleave-bench-comm is measured
    bench/comm/run.py --workers 16 --to 67108864 --json comm.json

For every size: time in microseconds, from when the last worker begins to when the last has ended
(median of rounds). 'best' is the faster of ring and tree, and gather up to 1 MB; 'MPI/best' and
'Gloo/best' say how many times faster it is than the other. 'copy' is the time in which all workers
copy an array of that size at once. What is not installed (mpirun, PyTorch) is left out, visibly.
Use an idle machine.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

METHODS = ("ring", "tree", "gather")


def sizes(start, end):
    while start <= end:
        yield start
        start *= 4


def gloo_rank(args):
    """One process of PyTorch's measurement; rank 0 writes the file."""
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{args.gloo_file}", rank=args.gloo_rank,
                            world_size=args.gloo_size)
    rows = []
    for size in sizes(args.start, args.to):
        data = torch.zeros(size // 4)

        def once():
            dist.barrier()
            begin = time.monotonic_ns()
            dist.all_reduce(data)
            mine = torch.tensor([begin, time.monotonic_ns()])
            everybody = [torch.zeros(2, dtype=torch.int64) for _ in range(args.gloo_size)]
            dist.all_gather(everybody, mine)
            return (max(int(t[1]) for t in everybody) - max(int(t[0]) for t in everybody)) * 1e-9

        once()
        rounds = torch.tensor([max(5, min(400, int(args.seconds / max(once(), 1e-6))))])
        dist.broadcast(rounds, 0)
        rows.append({"transport": "gloo", "workers": args.gloo_size, "bytes": size,
                     "way": "all_reduce",
                     "seconds": statistics.median(once() for _ in range(int(rounds[0])))})
    if args.gloo_rank == 0:
        with open(args.json, "w") as f:
            json.dump(rows, f)
    dist.barrier()


def run_gloo(args, n, folder):
    if subprocess.run([args.python, "-c", "import torch.distributed"],
                      stderr=subprocess.DEVNULL).returncode != 0:
        print("PyTorch is not installed: no Gloo")
        return []
    result, meet = os.path.join(folder, "gloo.json"), os.path.join(folder, f"meet{n}")
    ranks = [subprocess.Popen([args.python, os.path.abspath(__file__), "--gloo-rank", str(i),
                               "--gloo-size", str(n), "--gloo-file", meet, "--json", result,
                               "--from", str(args.start), "--to", str(args.to),
                               "--seconds", str(args.seconds)],
                              env={**os.environ, "OMP_NUM_THREADS": "1",
                                   "GLOO_SOCKET_IFNAME": "lo"}) for i in range(n)]
    if any([r.wait() for r in ranks]):
        print("Gloo failed")
        return []
    with open(result) as f:
        return json.load(f)


def run_program(args, n, folder, mpi):
    result = os.path.join(folder, "result.json")
    command = [args.program, "--json", result, "--from", str(args.start), "--to", str(args.to),
               "--seconds", str(args.seconds)]
    env = dict(os.environ)
    if mpi:
        mpirun = shutil.which("mpirun")
        if not mpirun:
            print("mpirun is not installed: no MPI")
            return []
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        bind = "core" if n <= len(os.sched_getaffinity(0)) and args.bind else "none"
        command = [mpirun, "--oversubscribe", "--bind-to", bind, "-n", str(n)] + command
    else:
        command += ["--workers", str(n)]
    done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}")
    with open(result) as f:
        return json.load(f)


def print_table(rows, n):
    at = {}
    for row in rows:
        if row["workers"] == n:
            at[row["transport"], row["bytes"], row["way"]] = row["seconds"]

    def best(transport, size):
        times = [at[transport, size, m] for m in METHODS if (transport, size, m) in at]
        return min(times) if times else None

    def text(seconds, scale=1e6):
        return f"{seconds * scale:11.1f}" if seconds else f"{'-':>11}"

    def ratio(other, own):
        return f"{other / own:8.2f}x" if other and own else f"{'-':>9}"

    print(f"\n{n} workers, microseconds")
    print(f"{'bytes':>10} {'copy':>11} | {'thr. ring':>11} {'tree':>11} {'gather':>11} | "
          f"{'mpi ring':>11} {'tree':>11} {'gather':>11} | {'Allreduce':>11} {'Gloo':>11} | "
          f"{'MPI/best':>9} {'Gloo/best':>9} {'MPI/thr.':>9} {'copy/thr.':>9}")
    for size in sorted({row["bytes"] for row in rows}):
        mpi, gloo = at.get(("mpi", size, "MPI_Allreduce")), at.get(("gloo", size, "all_reduce"))
        copy = at.get(("threads", size, "copy"))
        print(f"{size:10d} {text(copy)} | "
              + " ".join(text(at.get(("threads", size, m))) for m in METHODS) + " | "
              + " ".join(text(at.get(("mpi", size, m))) for m in METHODS)
              + f" | {text(mpi)} {text(gloo)} | {ratio(mpi, best('mpi', size))} "
              f"{ratio(gloo, best('mpi', size))} {ratio(mpi, best('threads', size))} "
              f"{ratio(copy, best('threads', size))}")


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default="build/bench/cleave-bench-comm")
    p.add_argument("--workers", default="2,4")
    p.add_argument("--from", dest="start", type=int, default=1024)
    p.add_argument("--to", type=int, default=256 << 20)
    p.add_argument("--seconds", type=float, default=0.5, help="per size and way, about")
    p.add_argument("--json", help="write all rows here")
    p.add_argument("--python", default="/usr/bin/python3", help="the one that has PyTorch")
    p.add_argument("--bind", action="store_true", help="let mpirun bind ranks to cores")
    for name in ("--gloo-rank", "--gloo-size"):
        p.add_argument(name, type=int, help=argparse.SUPPRESS)
    p.add_argument("--gloo-file", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.gloo_rank is not None:
        gloo_rank(args)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for n in [int(w) for w in args.workers.split(",")]:
            rows += run_program(args, n, folder, mpi=False)
            rows += run_program(args, n, folder, mpi=True)
            rows += run_gloo(args, n, folder)
            print_table(rows, n)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
