#!/usr/bin/env python3
"""Trains a small vision transformer on handwritten digits, on one process or on many.

    torchrun --nproc-per-node=2 examples/train_digits.py --parallel ddp
    torchrun --nproc-per-node=2 examples/train_digits.py --parallel fsdp2 --checkpoint /tmp/digits
    torchrun --nproc-per-node=3 examples/train_digits.py --parallel ddp --checkpoint /tmp/digits --resume

The backend is named, nothing is imported for it: PyTorch loads it by itself.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from digits import data, parallel
from digits.checkpoint import Checkpoints, Progress
from digits.model import VisionTransformer
from digits.report import Report, plot

LEARNING_RATE = 2e-3
WARM_UP = 40  # steps
READ_EVERY = 10  # steps between two looks at the loss: each makes the host wait for the device

EVALUATE_EVERY = 2  # epochs

# How far the losses of a run may lie from those of one process. Two ranks add up a gradient in another order than one:
# each sums its half of the batch, then the halves are added. In float32 that changes the last bits; training magnifies
# them, to some 1e-5 at the end. With bf16 autocast every rank rounds its own part of a weight's gradient to 8 bits
# before the parts are added in float32, so single gradients differ by about 2^-9 of their size and the losses of single
# steps by a few hundredths. That is noise, and noise has no preferred sign, so the mean over all steps is held to less:
# a wrong scale of the gradient or a wrong batch shows there. The bounds leave room for other processors' kernels.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1}
MEAN_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.01}


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--parallel", choices=("none", "ddp", "fsdp2"), default="ddp")
    add("--device", default="sim", help="sim, cpu, or another accelerator that torch knows (default: sim)")
    add("--backend", default="hccl-like", help="the process group's backend (default: hccl-like)")
    add("--epochs", type=int, default=30)
    add("--batch", type=int, default=96, help="images in a step over all ranks together (default: 96)")
    add("--seed", type=int, default=0)
    add("--compression", metavar="FORMAT", help="send gradients between hosts as mx8, mx4 or bf16 (ddp with hccl-like)")
    add("--amp", action=argparse.BooleanOptionalAction, default=True, help="bf16 autocast (default: on)")
    add("--checkpoint", metavar="DIR", help="save there with torch.distributed.checkpoint")
    add("--save-every", type=int, default=140, metavar="STEPS", help="steps between checkpoints (default: 140)")
    add("--async-checkpoint", action="store_true", help="train on while a checkpoint is written")
    add("--resume", action="store_true", help="go on from the newest checkpoint, on any number of ranks")
    add("--stop-after", type=int, metavar="STEP", help="stop (and save) after this step as if interrupted")
    add("--plot", default="train_digits.png", metavar="PNG", help="where the loss curve goes")
    add("--history", metavar="JSON", help="write the loss of every step")
    add("--compare", metavar="JSON", help="fail unless the losses agree with this history")
    add("--verify-single", action="store_true", help="train once more in one process and compare the losses")
    add("--min-accuracy", type=float, default=0.97, help="fail below this held-out accuracy (default: 0.97)")
    args = parser.parse_args(argv)
    if args.compression and args.parallel != "ddp":
        parser.error("--compression needs --parallel ddp")
    if args.resume and not args.checkpoint:
        parser.error("--resume needs --checkpoint DIR")
    return args


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine to zero; a function of the step, so there is nothing to restore."""
    warm = min(1.0, (step + 1) / WARM_UP)
    return LEARNING_RATE * warm * 0.5 * (1 + math.cos(math.pi * step / steps))


def accuracy(model, digits, ranks, autocast) -> float:
    """Each rank judges its part of the held-out images."""
    mine = slice(ranks.rank, None, ranks.world)
    model.eval()
    with torch.no_grad(), autocast():
        guess = model(digits.test_images[mine].to(ranks.device)).argmax(dim=1)
    model.train()
    right = (guess == digits.test_labels[mine].to(ranks.device)).sum()
    return ranks.sum(right).item() / data.HELD_OUT


def train(args, how, ranks, report, checkpoints=None):
    """Trains to the end (or --stop-after) and returns the progress and the images per second."""
    digits = data.load()
    sampler = data.Sampler(len(digits.train_labels), args.batch, args.seed)
    steps = args.epochs * sampler.steps_per_epoch
    last = min(steps, args.stop_after or steps)

    torch.manual_seed(args.seed)  # every rank builds the same model, on the host, so the device does not matter
    model = parallel.wrap(VisionTransformer().to(ranks.device), how, ranks, args.compression)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.05)
    progress = Progress(rng=torch.Generator().manual_seed(args.seed))
    if checkpoints and args.resume:
        checkpoints.load(model, optimizer, progress)
        report.say(f"resumed at step {progress.step} from {checkpoints.latest()}")

    def autocast():
        return torch.autocast(ranks.device.type, dtype=torch.bfloat16, enabled=args.amp)

    def advance(step):
        """One step of the optimiser; returns the loss of the global batch, still on the device."""
        # Drawn for the whole batch on every rank, so the generators stay equal whatever the number of ranks.
        moves = torch.randint(len(data.MOVES), (args.batch,), generator=progress.rng)
        which = data.slice_of(sampler.indices(step), ranks.rank, ranks.world)
        images = data.move(digits.train_images[which], data.slice_of(moves, ranks.rank, ranks.world))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        with autocast():
            logits = model(images.to(ranks.device))
            loss = F.cross_entropy(logits.float(), digits.train_labels[which].to(ranks.device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return ranks.sum(loss.detach() / ranks.world)

    unread = []
    first = progress.step
    speed = 0.0
    begin = time.perf_counter()
    with report.bar(first, steps):
        for step in range(first, last):
            unread.append(advance(step))
            done = progress.step = step + 1
            at_save = checkpoints and (done % args.save_every == 0 or done == last)
            at_evaluation = done % (EVALUATE_EVERY * sampler.steps_per_epoch) == 0 or done == last
            if done % READ_EVERY == 0 or at_save or at_evaluation:
                progress.losses += torch.stack(unread).tolist()
                unread.clear()
                speed = (done - first) * args.batch / (time.perf_counter() - begin)
                report.step(done, steps, progress.losses[-1], speed)
            if at_evaluation:
                progress.accuracies[done] = accuracy(model, digits, ranks, autocast)
            if at_save:
                checkpoints.save(model, optimizer, progress)
    if checkpoints:
        checkpoints.finish()
    return progress, speed


def compare(losses, reference, precision):
    """How far two histories lie apart, in a sentence, and whether that is within the bounds."""
    pairs = list(zip(losses, reference))
    largest, at = max((abs(a - b), step + 1) for step, (a, b) in enumerate(pairs))
    mean = abs(sum(a - b for a, b in pairs)) / len(pairs)
    told = (f"largest difference {largest:.1e} at step {at} (bound {TOLERANCE[precision]}), "
            f"of the means {mean:.1e} (bound {MEAN_TOLERANCE[precision]}), {len(pairs)} steps")
    return told, largest <= TOLERANCE[precision] and mean <= MEAN_TOLERANCE[precision]


def run(args, ranks, report) -> list[str]:
    """The whole job on this rank; returns what is wrong with its result."""
    precision = "bfloat16" if args.amp else "float32"
    where = f"{ranks.world} x {ranks.device.type}" + (f", backend {args.backend}" if args.parallel != "none" else "")
    report.say(f"train_digits: vision transformer, {precision}, parallel {args.parallel} on {where}, "
               f"{torch.get_num_threads()} host thread(s) a rank, torch {torch.__version__}")
    checkpoints = Checkpoints(args.checkpoint, args.async_checkpoint) if args.checkpoint else None
    begin = time.perf_counter()
    progress, speed = train(args, args.parallel, ranks, report, checkpoints)
    seconds = time.perf_counter() - begin
    if ranks.rank != 0:
        return []

    wrong = []
    rows = {"device": where, "parallel": args.parallel, "precision": precision,
            "steps": f"{progress.step} of {args.batch} images", "time": f"{seconds:.1f} s",
            "throughput": f"{speed:,.0f} images/s", "last loss": f"{progress.losses[-1]:.4f}"}

    def check(name, reference):
        told, good = compare(progress.losses, reference, precision)
        rows[name] = told
        if not good:
            wrong.append(f"{name}: the losses are too far away: {told}")

    if args.history:
        Path(args.history).write_text(json.dumps({"precision": precision, "losses": progress.losses}))
    if args.compare:
        check("against " + args.compare, json.loads(Path(args.compare).read_text())["losses"])
    if args.verify_single:
        report.say("once more in one process, to compare")
        single, _ = train(args, "none", parallel.Ranks(0, 1, ranks.device), report)
        check("against one process", single.losses)
    if checkpoints:
        rows["checkpoint"] = checkpoints.latest()
    title = f"train_digits: {args.parallel} on {where}, {precision}"
    plot(progress.losses, progress.accuracies, data.TRAINED_ON // args.batch, title, Path(args.plot))
    rows["loss curve"] = str(Path(args.plot).resolve())
    held_out = list(progress.accuracies.values())[-1]
    rows["held-out accuracy"] = f"{100 * held_out:.2f} %"
    if held_out < args.min_accuracy and not args.stop_after:
        wrong.append(f"held-out accuracy {100 * held_out:.2f} % is below {100 * args.min_accuracy:.0f} %")
    report.table(rows)
    return wrong


def main(argv=None) -> int:
    args = parse(argv)
    ranks = parallel.start(args.parallel, args.backend, args.device)
    if args.batch % ranks.world:
        raise SystemExit(f"--batch {args.batch} does not divide by {ranks.world} ranks: take a multiple of it")
    return parallel.finish(run(args, ranks, Report(talks=ranks.rank == 0)))


if __name__ == "__main__":
    sys.exit(main())
