#!/usr/bin/env python3
"""One training configuration with PyTorch, timed step by step.

    /usr/bin/python3 bench/peers/peer.py --model resnet18 --shape 3x224x224 --classes 1000 \\
        --batch 16 --threads 2 --steps 5

float32, SGD with momentum 0.9 and no weight decay, mean cross-entropy, one random batch that stays
in memory. A step is: forget the gradients, forward, loss, backward, update, read the loss; its time
is wall-clock. Prints one JSON line per step and a last one with the median.

With --interactive it first prints {"event":"ready", ...} (the warm-up is done by then), then answers
each line N on its input with {"steps_s":[...]}, the times of N further steps, until the input ends;
between lines it sleeps. `cleave bench step --interactive` speaks the same protocol, and run.py
alternates the two.

Works with PyTorch 1.13 and 2.x; --compile needs 2.x.
"""

import argparse
import json
import os
import statistics
import sys
import time


def parse_shape(text):
    parts = text.split("x")
    if len(parts) != 3 or not all(p.isdigit() and int(p) > 0 for p in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is not CxHxW, for example 3x224x224")
    return tuple(int(p) for p in parts)


def parse_positive(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Time training steps with PyTorch.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--form", choices=("auto", "small", "large"), default="auto")
    parser.add_argument("--shape", type=parse_shape, required=True, help="CxHxW of one image")
    parser.add_argument("--classes", type=parse_positive, default=10)
    parser.add_argument("--batch", type=parse_positive, required=True)
    parser.add_argument("--threads", type=parse_positive, default=os.cpu_count())
    parser.add_argument("--steps", type=parse_positive, default=10)
    parser.add_argument("--warmup", type=int, default=2, help="steps that are not timed")
    parser.add_argument("--optimizer", choices=("sgd",), default="sgd", help="momentum 0.9")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument("--channels-last", choices=("yes", "no"), default="no")
    parser.add_argument("--interactive", action="store_true", help="take step counts from stdin")
    arguments = parser.parse_args()
    if arguments.form == "auto":
        arguments.form = "small" if max(arguments.shape[1:]) <= 32 else "large"
    return arguments


class Trainer:
    def __init__(self, options):
        # Imported here: a wrong option is answered at once.
        import torch

        sys.dont_write_bytecode = True
        import networks

        torch.set_num_threads(options.threads)
        torch.manual_seed(1)
        self.net = networks.build(options.model, *options.shape, options.classes, options.form)
        self.net.train()
        self.images = torch.randn(options.batch, *options.shape)
        self.labels = torch.randint(options.classes, (options.batch,))
        if options.channels_last == "yes":
            self.net.to(memory_format=torch.channels_last)
            self.images = self.images.contiguous(memory_format=torch.channels_last)
        # A small rate: the one batch is seen often, and numbers that overflow or become
        # denormal would change the time of a step.
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9)
        self.loss_of = torch.nn.CrossEntropyLoss()
        self.forward = self.net
        if options.compile:
            if not hasattr(torch, "compile"):
                sys.exit(f"peer.py: --compile needs PyTorch 2; this is {torch.__version__}")
            self.forward = torch.compile(self.net)
        self.version = torch.__version__
        self.threads = torch.get_num_threads()

    def step(self):
        """One training step; (loss, seconds)."""
        began = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(self.forward(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        loss = loss.item()
        return loss, time.perf_counter() - began


def say(**fields):
    print(json.dumps(fields), flush=True)


def serve(trainer):
    for line in sys.stdin:
        text = line.strip()
        if not text.isdigit():
            sys.exit(f"peer.py: expected a number of steps on the input, got '{text}'")
        timed = [trainer.step() for _ in range(int(text))]
        say(steps_s=[seconds for _, seconds in timed], loss=timed[-1][0] if timed else None)


def run_steps(trainer, n_steps, batch):
    times = []
    for number in range(1, n_steps + 1):
        loss, seconds = trainer.step()
        times.append(seconds)
        say(event="step", step=number, loss=loss, step_s=seconds)
    median = statistics.median(times)
    say(event="done", steps=n_steps, median_step_s=median, images_per_s=batch / median)


def main():
    options = parse_arguments()
    trainer = Trainer(options)
    for _ in range(options.warmup):
        trainer.step()
    if options.interactive:
        say(event="ready", peer="torch", version=trainer.version, threads=trainer.threads)
        serve(trainer)
    else:
        run_steps(trainer, options.steps, options.batch)


if __name__ == "__main__":
    main()
