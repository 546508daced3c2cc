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
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from digits import data, parallel
from digits.checkpoint import Checkpoints, Progress
from digits.model import VisionTransformer
from digits.report import Report, plot

LEARNING_RATE = 2e-3
WARM_UP = 40  # steps
READ_EVERY = 10  # steps between two looks at the loss: each makes the host wait for the device

# Two ranks add up the gradient in another order than one: each sums its half of the batch, then the halves are added.
# In float32 that changes the last bits, and training magnifies them slowly. With bf16 autocast each rank rounds its own
# half of every weight gradient to 8 bits before the halves are added in float32, so single steps differ by about 2^-9 of
# the gradient. Both are noise, not error, and the largest difference over a whole run stays under these bounds.
TOLERANCE = {"float32": 0.02, "bfloat16": 0.15}
# The mean difference is stricter: noise has no preferred sign, a wrong gradient scale or batch does.
MEAN_TOLERANCE = {"float32": 0.002, "bfloat16": 0.01}


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--parallel", choices=("none", "ddp", "fsdp2"), default="ddp")
    add("--device", default="sim", help="sim, cpu, or another accelerator that torch knows (default: sim)")
    add("--backend", default="hccl-like", help="the process group's backend (default: hccl-like)")
    add("--epochs", type=int, default=30)
    add("--batch", type=int, default=96, help="images in a step over all ranks together (default: 96)")
    add("--seed", type=int, default=0)
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
    if args.resume and not args.checkpoint:
        parser.error("--resume needs --checkpoint DIR")
    return args


@dataclass
class Result:
    losses: list[float]
    accuracies: dict[int, float] = field(default_factory=dict)  # by step
    seconds: float = 0.0
    images: int = 0


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


def train(args, how, ranks, report, checkpoints=None) -> Result:
    digits = data.load()
    sampler = data.Sampler(len(digits.train_labels), args.batch, args.seed)
    steps = args.epochs * sampler.steps_per_epoch
    last = min(steps, args.stop_after or steps)

    torch.manual_seed(args.seed)  # every rank builds the same model, on the host, so the device does not matter
    model = parallel.wrap(VisionTransformer().to(ranks.device), how, ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.05)
    progress = Progress(rng=torch.Generator().manual_seed(args.seed))
    if checkpoints and args.resume:
        checkpoints.load(model, optimizer, progress)
        report.say(f"resumed at step {progress.step} from {checkpoints.latest()}")

    def autocast():
        return torch.autocast(ranks.device.type, dtype=torch.bfloat16, enabled=args.amp)

    first = progress.step
    result = Result(progress.losses)
    unread = []  # losses that still lie on the device
    begin = time.perf_counter()
    with report.bar(first, steps):
        for step in range(first, last):
            # Drawn for the whole batch on every rank, so the generators stay equal whatever the number of ranks.
            moves = torch.randint(len(data.MOVES), (args.batch,), generator=progress.rng)
            which = data.slice_of(sampler.indices(step), ranks.rank, ranks.world)
            images = data.move(digits.train_images[which], data.slice_of(moves, ranks.rank, ranks.world))
            labels = digits.train_labels[which]
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps)

            with autocast():
                logits = model(images.to(ranks.device))
                loss = F.cross_entropy(logits.float(), labels.to(ranks.device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            unread.append(ranks.sum(loss.detach() / ranks.world))

            progress.step = step + 1
            at_save = checkpoints and (progress.step % args.save_every == 0 or progress.step == last)
            at_epoch = progress.step % (5 * sampler.steps_per_epoch) == 0 or progress.step == last
            if progress.step % READ_EVERY == 0 or at_save or at_epoch:
                progress.losses += torch.stack(unread).tolist()
                unread.clear()
                speed = (progress.step - first) * args.batch / (time.perf_counter() - begin)
                report.step(progress.step, steps, progress.losses[-1], speed)
            if at_epoch:
                result.accuracies[progress.step] = accuracy(model, digits, ranks, autocast)
            if at_save:
                checkpoints.save(model, optimizer, progress)
    result.seconds = time.perf_counter() - begin
    result.images = (progress.step - first) * args.batch
    if checkpoints:
        checkpoints.finish()
    return result


def compare(losses, reference, precision) -> str:
    """One line that tells how far two histories lie apart; raises SystemExit when that is too far."""
    pairs = list(zip(losses, reference))
    largest, at = max((abs(a - b), step + 1) for step, (a, b) in enumerate(pairs))
    mean = abs(sum(a - b for a, b in pairs)) / len(pairs)
    told = (f"largest difference {largest:.2e} at step {at} (bound {TOLERANCE[precision]}), of the means {mean:.2e} "
            f"(bound {MEAN_TOLERANCE[precision]}), {len(pairs)} steps")
    if largest > TOLERANCE[precision] or mean > MEAN_TOLERANCE[precision]:
        raise SystemExit(f"the losses are not those of the reference: {told}")
    return told


def main(argv=None) -> int:
    args = parse(argv)
    ranks = parallel.start(args.parallel, args.backend, args.device)
    report = Report(talks=ranks.rank == 0)
    try:
        run(args, ranks, report)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0


def run(args, ranks, report) -> None:
    if args.batch % ranks.world:
        raise SystemExit(f"--batch {args.batch} does not divide by {ranks.world} ranks: take a multiple of it")
    precision = "bfloat16" if args.amp else "float32"
    where = f"{ranks.world} x {ranks.device.type}" + (f", backend {args.backend}" if args.parallel != "none" else "")
    report.say(f"train_digits: vision transformer, {precision}, parallel {args.parallel} on {where}, "
               f"{torch.get_num_threads()} host thread(s) a rank, torch {torch.__version__}")

    checkpoints = Checkpoints(args.checkpoint, args.async_checkpoint) if args.checkpoint else None
    result = train(args, args.parallel, ranks, report, checkpoints)

    rows = {"device": where, "parallel": args.parallel, "precision": precision,
            "steps": f"{len(result.losses)} of {args.batch} images",
            "last loss": f"{result.losses[-1]:.4f}", "time": f"{result.seconds:.1f} s"}
    if result.seconds and result.images:
        rows["throughput"] = f"{result.images / result.seconds:,.0f} images/s"
    if ranks.rank == 0:
        title = f"train_digits: {args.parallel} on {where}, {precision}"
        plot(result.losses, result.accuracies, title, Path(args.plot))
        rows["loss curve"] = str(Path(args.plot).resolve())
        if args.history:
            Path(args.history).write_text(json.dumps({"precision": precision, "losses": result.losses}))
        if args.compare:
            rows["against " + args.compare] = compare(
                result.losses, json.loads(Path(args.compare).read_text())["losses"], precision)
        if args.verify_single:
            report.say("once more in one process, to compare")
            alone = argparse.Namespace(**{**vars(args), "resume": False})
            single = train(alone, "none", parallel.Ranks(0, 1, ranks.device), report)
            rows["against one process"] = compare(result.losses, single.losses, precision)
    if args.checkpoint:
        rows["checkpoint"] = checkpoints.latest() if ranks.rank == 0 else ""
    if result.accuracies:
        rows["held-out accuracy"] = f"{100 * list(result.accuracies.values())[-1]:.2f} %"
    report.table(rows)
    if result.accuracies and not args.stop_after and list(result.accuracies.values())[-1] < args.min_accuracy:
        raise SystemExit(f"held-out accuracy {100 * list(result.accuracies.values())[-1]:.2f} % is below "
                         f"{100 * args.min_accuracy:.0f} %")


if __name__ == "__main__":
    sys.exit(main())
