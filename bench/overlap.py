#!/usr/bin/env python3
"""How much of its communication DDP hides behind the backward pass, on the simulator with modelled times. See README.md."""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path

from hccl_like.bench import launch

MODEL = {"TORCH_SIM_DISCRETE": "1", "TORCH_SIM_LINK_GBPS": "0.005", "TORCH_SIM_KERNEL_GBPS": "0.1"}
SHORT = 200_000  # ns: kernels that take less are not drawn


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("-g", "--nproc", type=int, default=2, help="ranks (2)")
    add("--layers", type=int, default=24, help="of the model, one bucket of gradients each (24)")
    add("--width", type=int, default=192, help="of a layer (192)")
    add("--tokens", type=int, default=3072, help="of one rank in one step (3072)")
    add("--turns", type=int, default=5, help="steps of each kind, in turns (5)")
    add("--plot", metavar="FILE", help="draw one step of every rank, as .svg or .png")
    add("-J", "--json", metavar="FILE", help="write everything to a JSON file")
    return parser.parse_args(argv)


class Training:
    """A model under DDP, and the three things that are timed."""

    def __init__(self, args, device):
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel

        layers = [layer for _ in range(args.layers) for layer in (nn.Linear(args.width, args.width), nn.ReLU(inplace=True))]
        bucket = 4 * args.width**2 / 2**20
        self._model = DistributedDataParallel(
            nn.Sequential(*layers).to(device), bucket_cap_mb=bucket, gradient_as_bucket_view=True)
        self._inputs = torch.randn(args.tokens, args.width).to(device)
        self.step()  # DDP then makes its buckets anew, in the order of the gradients
        self.step()
        sizes = [entry["input_sizes"][0] for entry in calls_during(self.step)]
        self._buckets = [torch.zeros(size, device=device) for size in sizes]

    def step(self, how=contextlib.nullcontext) -> None:
        import torch

        self._model.zero_grad()
        with how():
            self._model(self._inputs).square().mean().backward()
        torch.accelerator.synchronize()

    def step_alone(self) -> None:
        self.step(self._model.no_sync)

    def calls_alone(self) -> None:
        import torch
        import torch.distributed as dist

        for work in [dist.all_reduce(bucket, async_op=True) for bucket in self._buckets]:
            work.wait()
        torch.accelerator.synchronize()


def calls_during(function) -> list[dict]:
    """What the flight recorder tells of the collectives that the function makes."""
    import hccl_like

    def recorded():
        return hccl_like.dump_flight_recorder(stacks=False)["entries"]

    before = max((entry["record_id"] for entry in recorded()), default=-1)
    function()
    return [entry for entry in recorded() if entry["record_id"] > before]


def timeline(function) -> dict:
    """Kernels and collectives of the function: of each its name, begin and end, in nanoseconds of the clock."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        calls = calls_during(function)
    kernels = [(event.name(), event.start_ns(), event.start_ns() + event.duration_ns())
               for event in profiled.profiler.kineto_results.events()
               if event.name().startswith("aten::") and event.duration_ns() > SHORT]
    return {"kernels": kernels, "calls": [(entry["profiling_name"], entry["time_discovered_started_ns"],
                                           entry["time_discovered_completed_ns"]) for entry in calls]}


def timed(function, barrier) -> float:
    """Milliseconds."""
    barrier()
    begin = time.perf_counter_ns()
    function()
    return (time.perf_counter_ns() - begin) / 1e6


def run(args) -> dict:
    """On one rank, which learns of all ranks' steps."""
    import torch
    import torch.distributed as dist

    from hccl_like.bench.run import pick_device

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    device = pick_device("sim")
    dist.init_process_group("hccl-like", store=launch.store(), rank=rank, world_size=ranks, timeout=timedelta(seconds=120))
    control = dist.new_group(backend="gloo")
    training = Training(args, device)
    measured = {"step": training.step, "step alone": training.step_alone, "calls alone": training.calls_alone}
    times = {name: [] for name in measured}
    for turn in range(args.turns):
        for name, function in measured.items():
            times[name].append(timed(function, lambda: dist.barrier(control)))
    dist.barrier(control)
    everyone = [None] * ranks
    dist.all_gather_object(everyone, (times, timeline(training.step)), group=control)
    dist.destroy_process_group()
    # A job has made a step when its slowest rank has.
    medians = {name: statistics.median(map(max, zip(*(mine[name] for mine, _ in everyone)))) for name in measured}
    return {"ms": medians, "hidden": hidden(medians), "timelines": [drawn for _, drawn in everyone]}


def hidden(ms: dict[str, float]) -> float:
    """The part of the communication that does not make a step longer."""
    return 1 - (ms["step"] - ms["step alone"]) / ms["calls alone"]


def summary(result: dict) -> str:
    ms = result["ms"]
    return (f"a step {ms['step']:.0f} ms, without communication {ms['step alone']:.0f} ms; "
            f"its communication alone {ms['calls alone']:.0f} ms: {result['hidden']:.0%} hidden")


def draw(result: dict, target: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.fonttype"], pyplot.rcParams["svg.hashsalt"] = "none", "hccl-like"
    timelines = result["timelines"]
    begin = min(start for one in timelines for _, start, _ in one["kernels"])
    figure, axes = pyplot.subplots(figsize=(10, 0.6 + 0.8 * len(timelines)), layout="constrained")
    labels = []
    for one in timelines:
        for kind, colour in (("kernels", "tab:blue"), ("calls", "tab:orange")):
            spans = [((start - begin) / 1e6, (end - start) / 1e6) for _, start, end in one[kind]]
            axes.broken_barh(spans, (len(labels) - 0.4, 0.8), facecolors=colour, edgecolors="white", linewidth=0.5)
            labels.append(f"rank {len(labels) // 2}: {kind}")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set(xlabel="ms", title=summary(result))
    figure.savefig(target, metadata={"Date": None} if target.endswith(".svg") else None)
    pyplot.close(figure)


def main(argv: list[str]) -> int:
    args = parse(argv)
    if "RANK" not in os.environ:
        os.environ.update({name: value for name, value in MODEL.items() if name not in os.environ})
        return launch.spawn(args.nproc, [sys.executable, __file__, *argv])
    result = run(args)
    if os.environ["RANK"] == "0":
        print(summary(result))
        if args.plot:
            draw(result, args.plot)
        if args.json:
            Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
