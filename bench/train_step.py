#!/usr/bin/env python3
"""What communication adds to a training step: a transformer of 25 million parameters in bfloat16, alone, under DDP and under
FSDP2, with gloo and with hccl-like in turns within one run. See README.md."""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from hccl_like.bench import launch

FOLDER = "HCCL_BENCH_FOLDER"  # where the ranks of a run meet


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("-g", "--nproc", type=int, default=2, help="ranks (2)")
    add("--device", default="cpu", help="cpu or sim; gloo gets host tensors either way (cpu)")
    add("--rounds", type=int, default=4, help="turns that each way of training gets (4)")
    add("--steps", type=int, default=3, help="timed steps in a turn (3)")
    add("--layers", type=int, default=8)
    add("--width", type=int, default=512)
    add("--tokens", type=int, default=128, help="of one rank in one step")
    add("--fake", action="store_true",
        help="also torch's backend that does nothing: what DDP and FSDP2 take themselves")
    add("-J", "--json", metavar="FILE", help="write everything to a JSON file")
    return parser.parse_args(argv)


def transformer(layers: int, width: int):
    from torch import nn

    class Transformer(nn.Module):
        vocabulary = 256

        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(self.vocabulary, width)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
                for _ in range(layers))
            self.head = nn.Linear(width, self.vocabulary)

        def forward(self, tokens):
            hidden = self.embedding(tokens)
            for layer in self.layers:
                hidden = layer(hidden)
            return self.head(hidden) + 0  # a view would make FSDP2 warn

    return Transformer()


class Way:
    """One way to train: a model, perhaps wrapped, its optimiser and its data."""

    def __init__(self, name: str, args, device, wrap):
        import torch

        torch.manual_seed(1234)
        self.name, self._device = name, device
        self.model = wrap(transformer(args.layers, args.width).to(device, torch.bfloat16))
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self._tokens = torch.randint(0, 256, (1, args.tokens)).to(device)
        self.turns, self.loss = [], None  # of each turn the times of its steps, in milliseconds

    def step(self) -> None:
        import torch
        from torch.nn import functional

        self._optimizer.zero_grad()
        predicted = self.model(self._tokens)
        loss = functional.cross_entropy(predicted[0].float(), self._tokens[0])
        loss.backward()
        self._optimizer.step()
        if self._device.type != "cpu":
            torch.accelerator.synchronize()
        self.loss = float(loss.detach())

    def timed(self) -> None:
        begin = time.perf_counter_ns()
        self.step()
        self.turns[-1].append((time.perf_counter_ns() - begin) / 1e6)


def ddp(group):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    def wrap(model):
        wrapped = DistributedDataParallel(model, process_group=group)
        if dist.get_backend(group) == "fake":  # its futures have no value
            wrapped.register_comm_hook(None, _at_once)
        return wrapped

    return wrap


def _at_once(_, bucket):
    import torch

    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def fsdp2(group, device):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group, device.type)

    def wrap(model):
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    return wrap


def ways(args, device) -> list[Way]:
    import torch
    import torch.distributed as dist

    host = torch.device("cpu")
    groups = {"gloo": (dist.new_group(backend="gloo"), host), "hccl-like": (dist.new_group(backend="hccl-like"), device)}
    if args.fake:
        import torch.testing._internal.distributed.fake_pg  # noqa: F401 - registers it

        groups["fake"] = (dist.new_group(backend="fake"), host)
    found = [Way("alone", args, host, lambda model: model)]
    if device != host:
        found.append(Way(f"alone, {device.type}", args, device, lambda model: model))
    for label in ("DDP", "FSDP2"):
        for backend, (group, where) in groups.items():
            wrap = ddp(group) if label == "DDP" else fsdp2(group, where)
            found.append(Way(f"{label} {backend}", args, where, wrap))
    return found


def run(args) -> dict:
    """On one rank, which learns of all ranks' steps."""
    import torch
    import torch.distributed as dist

    from hccl_like.bench import machine
    from hccl_like.bench.run import pick_device
    from hccl_like.bench.shared_barrier import SharedBarrier

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cores = sorted(os.sched_getaffinity(0))
    device = pick_device(args.device)
    dist.init_process_group("gloo", store=launch.store(), rank=rank, world_size=ranks, timeout=timedelta(seconds=120))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    barrier = SharedBarrier(Path(os.environ[FOLDER]) / "visits", rank, ranks)
    tried = ways(args, device)
    load = machine.Load()
    for _ in range(args.rounds):
        for way in tried:
            way.step()  # the one before had the caches
            way.turns.append([])
            for _ in range(args.steps):
                barrier.wait()
                way.timed()
    mine = {way.name: way.turns for way in tried}
    busy, capacity, own = load.since()
    everyone = [None] * ranks
    dist.all_gather_object(everyone, (mine, own))
    turns = {name: turns_of_job([one[name] for one, _ in everyone]) for name in mine}
    foreign = machine.foreign(busy, capacity, sum(own for _, own in everyone))
    result = {"ranks": ranks, "device": args.device, "tokens": args.tokens, "steps": args.rounds * args.steps,
              "parameters": sum(p.numel() for p in tried[0].model.parameters()), "turns_ms": turns, "foreign": foreign,
              "losses": {way.name: way.loss for way in tried}}
    dist.destroy_process_group()
    return result


def turns_of_job(ranks: list[list[list[float]]]) -> list[float]:
    """What a step takes in each turn. A job has made one when its slowest rank has, also where no rank waits for another."""
    return [statistics.median(map(max, zip(*turn))) for turn in zip(*ranks)]


def added(turns: dict[str, list[float]], name: str) -> float:
    """What communication adds to a step, in milliseconds: over the same model on the same device, alone, in the same turn. The
    median of all turns, since a machine's pace changes from one to the next."""
    alone = next((its for way, its in turns.items() if way.startswith("alone, ") and name.endswith("hccl-like")),
                 turns["alone"])
    return statistics.median(step - least for step, least in zip(turns[name], alone))


def table(result: dict) -> str:
    turns = result["turns_ms"]
    lines = [f"**{result['parameters'] / 1e6:.1f} M parameters, bfloat16, {result['ranks']} ranks, {result['device']} tensors, "
             f"{result['tokens']} tokens a rank** (medians of {result['steps']} steps of the slowest rank, in turns; others used "
             f"{100 * (result['foreign'] or 0):.0f} % of the cores)", "",
             "| | a step, ms | communication adds, ms | of gloo's |", "|---|---|---|---|"]
    for name, its in turns.items():
        step = statistics.median(its)
        if name.startswith("alone"):
            lines.append(f"| {name} | {step:.1f} | | |")
            continue
        gloo = name.endswith("gloo")
        part = added(turns, name) / added(turns, f"{name.split()[0]} gloo")
        lines.append(f"| {name} | {step:.1f} | {added(turns, name):.1f} | {'' if gloo else f'{part:.2f}'} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    args = parse(argv)
    if "RANK" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            os.environ[FOLDER] = folder
            return launch.spawn(args.nproc, [sys.executable, __file__, *argv])
    result = run(args)
    if os.environ["RANK"] == "0":
        print(table(result))
        if args.json:
            Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
