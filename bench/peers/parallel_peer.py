#!/usr/bin/env python3
"""One parallel training configuration with PyTorch: N processes on this machine, over Gloo.

    /usr/bin/python3 bench/peers/parallel_peer.py --plan data --workers 2 \\
        --model lenet5 --shape 1x28x28 --batch 128 --steps 20

Plans. `data`: DistributedDataParallel with its own defaults, but gradient_as_bucket_view, which
saves a copy; --batch is that of each worker; batch norm takes its statistics from the worker's own
images (SyncBatchNorm needs GPUs). One worker trains without DistributedDataParallel. `gpipe` and
`1f1b`: torch.distributed.pipelining, a stage per worker; --batch is that of the whole step, cut
into --micro-batches. The network is cut between its blocks so that the largest stage has the fewest
operations. All else is as in peer.py, whose protocol this speaks.

    driver --stdin--> launcher --stdin of each--> rank 0 ... rank N-1
    driver <--------------------------stdout----- rank 0

The launcher hands each line on to every rank, so that between two turns no rank waits inside Gloo
and no time limit of Gloo runs. Every message between ranks has the limit --gloo-timeout. If a rank
dies the launcher ends the others and exits with 1; if the launcher dies the kernel ends the ranks.

Pipelines over Gloo need PyTorch 2.8: up to 2.7 they hang (pytorch issue 132644). With an older one
the only line is {"event":"skip","reason":...}, and the exit status 0.
"""

import argparse
import ctypes
import datetime
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import peer  # noqa: E402  after the line above, which keeps __pycache__ out of the sources

PIPELINES = ("gpipe", "1f1b")
OLDEST_FOR_PIPELINES = (2, 8)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Time parallel training steps with PyTorch.")
    parser.add_argument("--plan", choices=("data",) + PIPELINES, default="data")
    parser.add_argument("--workers", type=peer.parse_positive, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--form", choices=("small", "large"), default="small")
    parser.add_argument("--shape", type=peer.parse_shape, required=True, help="CxHxW of one image")
    parser.add_argument("--classes", type=peer.parse_positive, default=10)
    parser.add_argument("--batch", type=peer.parse_positive, required=True)
    parser.add_argument("--micro-batches", type=peer.parse_positive, default=8)
    parser.add_argument("--threads", type=peer.parse_positive, default=1, help="of each worker")
    parser.add_argument("--steps", type=peer.parse_positive, default=10)
    parser.add_argument("--warmup", type=peer.parse_positive, default=2)
    parser.add_argument("--gloo-timeout", type=peer.parse_positive, default=120, help="seconds")
    parser.add_argument("--interactive", action="store_true", help="take step counts from stdin")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)  # Set by the launcher.
    options = parser.parse_args()
    if options.plan in PIPELINES:
        if options.workers < 2:
            parser.error("a pipeline needs at least 2 workers")
        if options.batch % options.micro_batches:
            parser.error("--batch must be a multiple of --micro-batches")
    options.compile, options.channels_last = False, "no"  # What peer.Trainer also reads.
    return options


def die_with_parent():
    """Asks the kernel to kill this process when its parent ends."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


# ---- launcher ----


class RankDied(Exception):
    pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_rank(rank, options, port):
    environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(options.workers))
    environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    environment.update(OMP_NUM_THREADS=str(options.threads), MKL_NUM_THREADS=str(options.threads))
    command = [sys.executable, os.path.abspath(__file__)] + sys.argv[1:] + ["--rank", str(rank)]
    output = None if rank == 0 else sys.stderr
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, env=environment)


def hand_on(text, ranks):
    for process in ranks:
        process.stdin.write(text)
        process.stdin.flush()


def end_ranks(ranks, grace_s):
    """Closes the ranks' inputs, which ends them; kills those that stay. The first bad status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    deadline = time.monotonic() + grace_s
    for process in ranks:
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
    for process in ranks:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return next((p.returncode for p in ranks if p.returncode != 0), 0)


def launch(options):
    """Starts the ranks and serves them until the input ends; the exit status."""
    ranks = []

    def look_after_ranks(_signal, _frame):
        for rank, process in enumerate(ranks):
            if process.poll() not in (None, 0):
                raise RankDied(f"rank {rank} ended with status {process.returncode}")

    signal.signal(signal.SIGCHLD, look_after_ranks)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(1))
    grace_s = 0.0
    try:
        port = free_port()
        for rank in range(options.workers):
            ranks.append(start_rank(rank, options, port))
        look_after_ranks(None, None)  # One may have died before it was in the list.
        if options.interactive:
            for line in iter(sys.stdin.buffer.readline, b""):
                hand_on(line, ranks)
        grace_s = float(options.gloo_timeout + 60)  # They may still have steps to do.
    except (RankDied, BrokenPipeError) as error:
        print(f"parallel_peer.py: {error}", file=sys.stderr)
        grace_s = 1.0  # The others may still have an error to print.
    finally:
        status = end_ranks(ranks, grace_s)
    return 1 if status else 0


def reason_to_skip(options):
    """Why this PyTorch cannot run the plan; None if it can."""
    import torch

    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        return f"PyTorch {torch.__version__} is built without Gloo"
    if options.plan not in PIPELINES:
        return None
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < OLDEST_FOR_PIPELINES:
        needed = ".".join(str(part) for part in OLDEST_FOR_PIPELINES)
        return f"pipelines over Gloo need PyTorch {needed}; this is {torch.__version__}"
    return None


# ---- stages of a pipeline ----


def blocks_of(net):
    """The network as a list of modules to be called one after the other. None begins with an
    operation in place: the first one of a stage gets a leaf tensor that needs a gradient."""
    from torch import nn

    if hasattr(net, "layer1"):  # A ResNet, of networks.py or of torchvision.
        stem = [net.conv1, net.bn1, nn.ReLU(inplace=True)]
        if hasattr(net, "maxpool"):
            stem.append(net.maxpool)
        layers = (net.layer1, net.layer2, net.layer3, net.layer4)
        head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), net.fc)
        return [nn.Sequential(*stem)] + [block for layer in layers for block in layer] + [head]
    if hasattr(net, "pools_globally"):  # A SmallVgg: a block is a convolution and the layers behind it.
        blocks = []
        for layer in net.features:
            if isinstance(layer, nn.Conv2d):
                blocks.append(nn.Sequential())
            blocks[-1].add_module(str(len(blocks[-1])), layer)
        pool = [nn.AdaptiveAvgPool2d(1)] if net.pools_globally else []
        return blocks + [nn.Sequential(*pool, nn.Flatten(1), net.classifier)]
    sys.exit("parallel_peer.py: pipelines are there for resnet* and the small form of vgg*")


def count_operations(blocks, images):
    """Multiplications of the convolutions and linear layers of each block in a forward pass."""
    import torch

    counts = []

    def add(module, _inputs, output):
        per_output = module.weight[0].numel()
        counts[-1] += output.numel() * per_output

    with torch.no_grad():
        for block in blocks:
            counts.append(0)
            hooks = [
                m.register_forward_hook(add)
                for m in block.modules()
                if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear))
            ]
            images = block(images)
            for hook in hooks:
                hook.remove()
    return counts


def choose_cuts(counts, n_stages):
    """The bounds [0, ..., len(counts)] of n_stages runs of blocks whose largest sum is the least.
    There are at most a dozen blocks and a few stages: it tries all cuts."""
    if n_stages > len(counts):
        sys.exit(f"parallel_peer.py: {len(counts)} blocks cannot make {n_stages} stages")

    def stage_costs(inner):
        bounds = (0, *inner, len(counts))
        return sorted((sum(counts[a:b]) for a, b in zip(bounds, bounds[1:])), reverse=True)

    best = min(itertools.combinations(range(1, len(counts)), n_stages - 1), key=stage_costs)
    return (0, *best, len(counts))


# ---- ranks ----


class DataTrainer(peer.Trainer):
    """peer.Trainer, its gradients averaged over the ranks."""

    def __init__(self, options):
        super().__init__(options)
        import torch

        self.notes = {}
        if options.workers > 1:
            self.forward = torch.nn.parallel.DistributedDataParallel(
                self.net, gradient_as_bucket_view=True
            )


class PipelineTrainer(peer.Trainer):
    """One stage of peer.Trainer's network."""

    def __init__(self, options):
        super().__init__(options)
        import torch
        from torch.distributed import pipelining

        rank, n_stages = options.rank, options.workers
        self.is_first, self.is_last = rank == 0, rank == n_stages - 1
        blocks = blocks_of(self.net)
        counts = count_operations(blocks, self.images[: options.batch // options.micro_batches])
        bounds = choose_cuts(counts, n_stages)
        shares = [sum(counts[a:b]) / sum(counts) for a, b in zip(bounds, bounds[1:])]
        self.notes = {"cuts": list(bounds), "shares": [round(s, 3) for s in shares]}
        module = torch.nn.Sequential(*blocks[bounds[rank] : bounds[rank + 1]])
        module.train()
        # Without example arguments the shapes are found in the first step.
        stage = pipelining.PipelineStage(module, rank, n_stages, torch.device("cpu"))
        schedules = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}
        self.schedule = schedules[options.plan](
            stage, n_microbatches=options.micro_batches, loss_fn=self.loss_of
        )
        self.optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9)

    def step(self):
        """One training step; (loss, seconds), the loss only on the last rank. The backward pass
        ends on rank 0, so its seconds are those of the whole step."""
        began = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        if self.is_first:
            self.schedule.step(self.images)
        elif self.is_last:
            self.schedule.step(target=self.labels, losses=losses)
        else:
            self.schedule.step()
        self.optimizer.step()
        loss = sum(part.item() for part in losses) / len(losses) if losses else None
        return loss, time.perf_counter() - began


def run_rank(options):
    import torch
    from torch import distributed

    distributed.init_process_group(
        "gloo", timeout=datetime.timedelta(seconds=options.gloo_timeout)
    )
    trainer = (DataTrainer if options.plan == "data" else PipelineTrainer)(options)
    for _ in range(options.warmup):
        trainer.step()
    if options.interactive:
        distributed.barrier()
        if options.rank == 0:
            n_parameters = sum(p.numel() for p in trainer.net.parameters())
            peer.say(event="ready", peer="torch", version=torch.__version__, plan=options.plan,
                     workers=options.workers, threads=torch.get_num_threads(),
                     parameters=n_parameters, **trainer.notes)  # fmt: skip
        serve(trainer, options, distributed)
    else:
        times = timed_steps(trainer, options.steps, distributed)
        if options.rank == 0:
            n_images = options.batch * (options.workers if options.plan == "data" else 1)
            median = statistics.median(times)
            peer.say(event="done", steps=options.steps, median_step_s=median,
                     images_per_s=n_images / median, **trainer.notes)  # fmt: skip
    distributed.destroy_process_group()


def timed_steps(trainer, n_steps, distributed):
    distributed.barrier()  # The ranks got the request at different moments.
    return [trainer.step()[1] for _ in range(n_steps)]


def serve(trainer, options, distributed):
    for line in sys.stdin:
        text = line.strip()
        if not text.isdigit():
            sys.exit(f"parallel_peer.py: expected a number of steps on the input, got '{text}'")
        times = timed_steps(trainer, int(text), distributed)
        distributed.barrier()  # The turn is over when every rank has done its last step.
        if options.rank == 0:
            peer.say(steps_s=times)


def main():
    options = parse_arguments()
    die_with_parent()
    if options.rank is not None:
        run_rank(options)
        return 0
    reason = reason_to_skip(options)
    if reason:
        print(json.dumps({"event": "skip", "reason": reason}), flush=True)
        return 0
    return launch(options)


if __name__ == "__main__":
    sys.exit(main())
