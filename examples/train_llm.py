#!/usr/bin/env python3
"""Trains a small byte-level GPT on Python's own documentation, cut over any grid of ranks.

    torchrun --nproc-per-node=2 examples/train_llm.py --layout dp2
    torchrun --nproc-per-node=8 examples/train_llm.py --layout pp2,dp2,tp2 --checkpoint /tmp/llm
    torchrun --nproc-per-node=4 examples/train_llm.py --layout cp2,tp2 --checkpoint /tmp/llm --resume
    torchrun --nproc-per-node=2 examples/train_llm.py --layout tp2 --checkpoint /tmp/llm --generate "The with statement"

The backend is named, nothing is imported for it: PyTorch loads it by itself.
"""

import argparse
import math
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.markup import escape

from digits.checkpoint import Progress
from digits.parallel import Ranks, finish, start
from digits.report import Report, plot
from llm import data, pipeline
from llm.attention import FORMS
from llm.checkpoint import LayoutCheckpoints
from llm.generate import generate
from llm.layout import MEANING, Grid, Layout
from llm.model import SIZES, Mixture, whole
from llm.parallel import Job

WARM_UP = 0.1  # of all steps
READ_EVERY = 10  # steps between two looks at the loss: each makes the host wait for the device

# How far a run may lie from one process. The ranks of a layout add up the same numbers in another order, which changes
# the last bits of a float32; training magnifies them, the more the higher the learning rate: at 2e-3 instead of 5e-4,
# 200 steps of size "small" made 1e-7 to 2e-2. A token on the border of two experts may go to the other one.
# The gradients are compared because AdamW hides it from the weights when a gradient has the wrong scale.
LOSS_TOLERANCE = 1e-3  # of every step
MEAN_TOLERANCE = 1e-4  # of the mean over all steps
NORM_TOLERANCE = 1e-2  # the norm of the difference of all final weights, relative to their norm; the same for gradients


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--layout", metavar="GRID", help="dimensions and their ranks, such as dp2,tp2 (default: dp with all ranks): "
        + "; ".join(f"{name}: {meaning}" for name, meaning in MEANING.items()))
    add("--data", choices=("ddp", "fsdp2"), default="ddp", help="replicated or sharded parameters (default: ddp)")
    add("--schedule", choices=pipeline.SCHEDULES, default="1f1b", help="of the pipeline (default: 1f1b)")
    add("--micro-batches", type=int, help="of the pipeline (default: 2 for each rank of pp)")
    add("--context", choices=FORMS, default="ring", help="how attention crosses the ranks of cp (default: ring)")
    add("--experts", type=int, default=0, metavar="N", help="experts in every block (default: none)")
    add("--top", type=int, choices=(1, 2), default=2, help="experts of a token (default: 2)")
    add("--capacity", type=float, metavar="F", help="drop tokens above F times an expert's mean share (default: never)")
    add("--size", choices=SIZES, default="small")
    add("--steps", type=int, help="length of the training (default: by size)")
    add("--batch", type=int, help="sequences in a step over all ranks together (default: by size)")
    add("--seed", type=int, default=0)
    add("--device", default="sim", help="sim, cpu, or another accelerator that torch knows (default: sim)")
    add("--backend", default="hccl-like", help="the process group's backend (default: hccl-like)")
    add("--checkpoint", metavar="DIR", help="save there with torch.distributed.checkpoint at the end")
    add("--save-every", type=int, metavar="STEPS", help="save in between, too")
    add("--resume", action="store_true", help="go on from the newest checkpoint, in any layout")
    add("--stop-after", type=int, metavar="STEP", help="stop (and save) after this step as if interrupted")
    add("--verify-single", action="store_true", help="train once more in one process; compare losses and weights")
    add("--generate", metavar="TEXT", help="do not train: load the checkpoint and continue this text")
    add("--bytes", type=int, default=64, help="how many bytes --generate adds (default: 64)")
    add("--plot", default="train_llm.png", metavar="PNG", help="where the loss curve goes")
    args = parser.parse_args(argv)
    if (args.resume or args.generate is not None) and not args.checkpoint:
        parser.error("--resume and --generate need --checkpoint DIR")
    if args.experts and args.experts < args.top:
        parser.error(f"--experts {args.experts} are too few for --top {args.top}")
    args.steps = args.steps or SIZES[args.size].steps
    args.batch = args.batch or SIZES[args.size].batch
    return args


def learning_rate(step: int, steps: int, highest: float) -> float:
    """Linear warm-up, then half a cosine to a tenth; a function of the step, so there is nothing to restore."""
    warm = min(1.0, (step + 1) / max(1, int(WARM_UP * steps)))
    return highest * warm * (0.55 + 0.45 * math.cos(math.pi * step / steps))


def build(args, layout: Layout, device: torch.device) -> Job:
    return Job(whole(SIZES[args.size], mixture(args), args.seed), Grid(layout, device), SIZES[args.size], args)


def mixture(args) -> Mixture:
    return Mixture(args.experts, args.top, args.capacity)


def checkpoints_of(args):
    described = {"size": args.size, "experts": asdict(mixture(args))}
    return LayoutCheckpoints(args.checkpoint, described) if args.checkpoint else None


@dataclass
class Result:
    """Of a training. Rank 0 has all weights, and the gradients of the last step if the run is to be verified."""

    losses: list[float]
    weights: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]
    speed: float  # bytes per second


def train(args, layout: Layout, device: torch.device, report, checkpoints=None) -> Result:
    """Trains to the end (or --stop-after)."""
    size = SIZES[args.size]
    text = data.load()
    job = build(args, layout, device)
    # One parameter at a time: some of them are DTensors, which torch does not mix with others in one call.
    optimizer = torch.optim.AdamW(job.model.parameters(), lr=size.learning_rate, eps=1e-6, foreach=False)
    progress = Progress()
    if checkpoints and args.resume:
        checkpoints.load(job.model, optimizer, progress)
        report.say(f"resumed at step {progress.step} from {checkpoints.latest()}")

    first, last = progress.step, min(args.steps, args.stop_after or args.steps)
    unread, gradients = [], {}
    speed = 0.0
    begin = time.perf_counter()
    with report.bar(first, args.steps):
        for step in range(first, last):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, args.steps, size.learning_rate)
            unread.append(job.learn(*data.batch(text, step, args.batch, size.context, args.seed)))
            if args.verify_single and step + 1 == last:
                gradients = job.grid.whole({name: p.grad for name, p in job.model.named_parameters()})
            optimizer.step()
            optimizer.zero_grad()
            done = progress.step = step + 1
            at_save = checkpoints and (done == last or args.save_every and done % args.save_every == 0)
            if done % READ_EVERY == 0 or done == last or at_save:
                progress.losses += torch.stack(unread).tolist()
                unread.clear()
                speed = (done - first) * args.batch * size.context / (time.perf_counter() - begin)
                report.step(done, args.steps, progress.losses[-1], speed)
            if at_save:
                checkpoints.save(job.model, optimizer, progress)
    return Result(progress.losses, job.grid.whole(dict(job.model.named_parameters())), gradients, speed)


def distance(tensors, others) -> float:
    """The norm of the difference of all tensors, relative to the norm of the others."""
    assert tensors.keys() == others.keys()
    squares = sum((tensors[name] - other).square().sum() for name, other in others.items())
    return math.sqrt(squares / sum(other.square().sum() for other in others.values()))


def compare(run: Result, single: Result):
    """How far a run lies from one process, in a sentence, and whether that is within the bounds."""
    differences = [a - b for a, b in zip(run.losses, single.losses, strict=True)]
    found = {"loss of a step": (max(map(abs, differences)), LOSS_TOLERANCE),
             "mean loss": (abs(sum(differences)) / len(differences), MEAN_TOLERANCE),
             "final weights": (distance(run.weights, single.weights), NORM_TOLERANCE),
             "last gradients": (distance(run.gradients, single.gradients), NORM_TOLERANCE)}
    told = ", ".join(f"{name} {far:.1e} (bound {bound})" for name, (far, bound) in found.items())
    return f"differences: {told}", all(far <= bound for far, bound in found.values())


def continue_text(args, layout: Layout, ranks: Ranks, report) -> list[str]:
    if layout.ranks != layout.tp:
        raise SystemExit(f"--generate runs tensor parallel: --layout tp{ranks.world} instead of {layout}")
    job = build(args, layout, ranks.device)
    checkpoints_of(args).load_weights(job.model)
    found = generate(job, args.generate.encode(), args.bytes, SIZES[args.size].context)
    report.say(f"{ranks.world} x {ranks.device.type} go on:")
    report.say(escape(found.decode(errors="backslashreplace")))
    return []


def run(args, ranks: Ranks, report) -> list[str]:
    """The whole job on this rank; returns what is wrong with its result."""
    layout = Layout.parse(args.layout or f"dp{ranks.world}")
    args.micro_batches = args.micro_batches or 2 * layout.pp if layout.pp > 1 else 1
    layout.check(ranks.world, SIZES[args.size], mixture(args), args.batch, args.micro_batches,
                 pipeline.stages(layout.pp, args.schedule), args.data)
    if args.generate is not None:
        return continue_text(args, layout, ranks, report)
    where = f"{layout} ({ranks.world} x {ranks.device.type}), backend {args.backend}"
    report.say(f"train_llm: {args.size} GPT, float32, {where}, "
               f"{torch.get_num_threads()} host thread(s) a rank, torch {torch.__version__}")
    checkpoints = checkpoints_of(args)
    begin = time.perf_counter()
    result = train(args, layout, ranks.device, report, checkpoints)
    seconds = time.perf_counter() - begin
    if ranks.rank != 0:
        return []

    wrong = []
    options = {"data parallel": (args.data, layout.data_ranks), "schedule": (args.schedule, layout.pp),
               "attention": (args.context, layout.cp), "experts": (f"{args.experts}, top {args.top}", args.experts)}
    rows = {"layout": where, **{name: value for name, (value, many) in options.items() if many > 1},
            "parameters": f"{sum(weight.numel() for weight in result.weights.values()):,}",
            "steps": f"{len(result.losses)} of {args.batch} x {SIZES[args.size].context} bytes",
            "time": f"{seconds:.1f} s", "throughput": f"{result.speed:,.0f} bytes/s",
            "last loss": f"{result.losses[-1]:.4f}"}
    if args.verify_single:
        report.say("once more in one process, to compare")
        args.micro_batches, args.resume = 1, False
        rows["against one process"], good = compare(result, train(args, Layout(), ranks.device, report))
        if not good:
            wrong.append(f"too far from one process: {rows['against one process']}")
    if checkpoints:
        rows["checkpoint"] = checkpoints.latest()
    span = max(1, len(result.losses) // 20)
    plot(result.losses, {}, span, f"train_llm: {where}", Path(args.plot), span_name=f"{span} steps")
    rows["loss curve"] = str(Path(args.plot).resolve())
    report.table(rows)
    return wrong


def main(argv=None) -> int:
    args = parse(argv)
    ranks = start("torchrun", args.backend, args.device)
    return finish(run(args, ranks, Report(talks=ranks.rank == 0, unit="bytes")))


if __name__ == "__main__":
    sys.exit(main())
