"""Measures algorithms and paths on the ranks that run it, and writes which algorithms were the fastest: a profile.

    torchrun --nnodes=2 --nproc-per-node=8 ... -m hccl_like.tune --output profile.json

``HCCL_LIKE_PROFILE=profile.json`` then takes the place of the cost model in groups whose ranks lie on hosts in the same way.
The file keeps what it has of other layouts, so that one file serves a cluster. Calls that need no messages have a path and no algorithm:
they are measured beside the algorithms, and the result names the settings that would make them faster, if there are any.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hccl_like import _tables

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all")
_ROUNDS = 3
_MARGIN = 1.03  # what must be gained before the cost model is overruled
_DUELS = 5  # rounds that messages must win, all of them, against a path without messages
_HOPELESS = 4.0  # times as slow as the best in the first round: not measured again


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hccl-like tune", description=__doc__.splitlines()[0] + " Started on all ranks by a launcher.")
    parser.add_argument("--output", default="hccl_like_profile.json", help="the profile, written by rank 0 (%(default)s)")
    parser.add_argument("--collectives", type=_names, default=COLLECTIVES, help="separated by commas (all)")
    parser.add_argument("--max-bytes", type=int, default=64 << 20, help="the largest payload, all chunks together (%(default)s)")
    parser.add_argument("--device", help="of the tensors, if not the host's: sim. Each rank takes the one of its LOCAL_RANK")
    parser.add_argument("--milliseconds", type=float, default=20, help="for an algorithm at one size in one round (%(default)s)")
    asked = parser.parse_args(argv)

    import torch.distributed as dist

    ours = not dist.is_initialized()
    if ours and "RANK" not in os.environ:
        parser.error("start it on all ranks, with torchrun or mpirun: torchrun --nproc-per-node 2 -m hccl_like.tune")
    if ours:
        dist.init_process_group("hccl-like")
    try:
        measured = tune(asked.collectives, asked.max_bytes, asked.milliseconds / 1000, asked.device)
        if dist.get_rank() == 0:
            write(asked.output, measured)
            _report(measured)
            print("\n".join(advice(measured)))
            print(f"written to {asked.output}; HCCL_LIKE_PROFILE={os.path.abspath(asked.output)} uses it")
    finally:
        if ours:
            dist.destroy_process_group()
    return 0


def tune(collectives: Sequence[str] = COLLECTIVES, max_bytes: int = 64 << 20, seconds: float = 0.02, device: str | None = None) -> dict:
    """Measures in the default group, on all its ranks at once, and returns the same on each:
    {"layout": "2x8", "device": None, "collectives": {"all_reduce": [
        {"bytes": 8, "way": "messages", "seconds": {"ring": 1e-5, ...}, "best": "ring", "model": "ring"}, ...]}}

    A call that needs no messages has its path() among its seconds, and as "model"."""
    import torch
    import torch.distributed as dist
    from hccl_like import _extension

    extension = _extension.load()
    layout = _layout(dist.group.WORLD)
    place = _own_device(device)
    names = {
        collective: sorted(row[0] for row in extension.explain(collective, 8, layout)) for collective in collectives
    }
    groups = _groups(names)
    measured: dict[str, list[dict]] = {}
    for collective in collectives:
        measured[collective] = rows = []
        for size in _sizes(max_bytes):
            call = _call(collective, size, len(layout), place)
            way = extension.way(collective, size, layout, device=place if device else None)
            first = extension.explain(collective, size, layout)[0][0] if way == "messages" else path(way)
            ways = {name: groups[collective, name] for name in names[collective]}
            if way != "messages":
                ways[first] = dist.group.WORLD
            seconds_of = _measure(ways, call, seconds)
            best = min(seconds_of, key=seconds_of.__getitem__)
            if seconds_of[first] <= seconds_of[best] * _MARGIN or (way != "messages" and not _wins(call, ways[best], ways[first], seconds)):
                best = first
            rows.append({"bytes": size, "way": way, "seconds": seconds_of, "best": best, "model": first})
    return {"layout": extension.layout_name(layout), "device": device, "collectives": measured}


def path(way: str) -> str:
    """The name among algorithms of a way that has none: "path direct" is not the algorithm "direct"."""
    return f"path {way}"


def advice(measured: dict) -> list[str]:
    """What to set so that calls which need no messages go faster: a setting that gains at one size and loses at none."""
    found = []
    for collective, rows in measured["collectives"].items():
        rows = [row for row in rows if row["way"] != "messages"]  # whose model is the path
        gains: dict[str, float] = {}
        faster = [row for row in rows if row["best"] != row["model"]]
        for name in sorted({row["best"] for row in faster}):
            if all(_gain(row, name) >= 1 / _MARGIN for row in rows):
                gains[name] = max(_gain(row, name) for row in faster if row["best"] == name)
        if gains:
            name = max(gains, key=gains.__getitem__)
            found.append(f"HCCL_LIKE_ALGO={collective}:{name} makes {collective} up to {gains[name]:.1f} times as fast, and no size slower")
        elif faster:
            row = max(faster, key=lambda row: _gain(row, row["best"]))
            found.append(f"{collective} of {row['bytes']} bytes takes {row['seconds'][row['model']] * 1e6:.1f} us ({row['model']}), by messages "
                         f"{row['seconds'][row['best']] * 1e6:.1f} us ({row['best']}); no setting does that for these sizes alone")
        elif rows:
            found.append(f"{collective}: nothing to set; the paths without messages are the fastest")
    return found


def _gain(row: dict, name: str) -> float:
    """How many times as fast as the path of the call the algorithm is; 0 if it was not measured."""
    return row["seconds"][row["model"]] / row["seconds"].get(name, math.inf)


def write(path: str, measured: dict) -> None:
    """Adds the measurements to the profile, or begins one."""
    profile: dict = {"hccl_like_profile": 1, "layouts": {}}
    if os.path.exists(path):
        with open(path) as file:
            profile = json.load(file)
    # Jobs choose among algorithms; a path without messages has none.
    rows_of = {
        collective: [row for row in rows if row.get("way", "messages") == "messages"] for collective, rows in measured["collectives"].items()
    }
    new = {collective: [[row["bytes"], row["best"]] for row in rows] for collective, rows in rows_of.items() if rows}
    # A profile of an earlier version says "allreduce".
    same = {collective.replace("_", "") for collective in new}
    old = profile["layouts"].get(measured["layout"], {})
    kept = {collective: rows for collective, rows in old.items() if collective.replace("_", "") not in same}
    if new:
        profile["layouts"][measured["layout"]] = {**kept, **new}
    # For hccl-like explain; jobs read the layouts alone.
    times = profile.setdefault("measured", {}).setdefault(_times_key(measured["layout"], measured.get("device")), {})
    for collective, rows in measured["collectives"].items():
        times[collective] = [[row["bytes"], row.get("seconds", {})] for row in rows]
    with open(path + ".part", "w") as file:
        json.dump(profile, file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)  # a job that starts now reads the old one or the new one


class InProfile(NamedTuple):
    """What a profile says of a call."""

    best: str | None = None  # the algorithm that is used
    bytes: int | None = None  # the size that was measured next to that of the call
    seconds: dict[str, float] = {}  # by algorithm or way, at that size


def _times_key(layout: str, device: str | None) -> str:
    return f"{layout} {device}" if device else layout


def in_profile(path: str | None, layout: str, collective: str, size: int, device: str | None = None) -> InProfile:
    """`device`: its type; None: the host."""
    if not path:
        return InProfile()
    with open(path) as file:
        profile = json.load(file)

    def nearest(part: str, layout: str) -> list:
        rows = profile.get(part, {}).get(layout, {}).get(collective, [])
        return min(rows, key=lambda row: abs(math.log(max(1, row[0]) / max(1, size))), default=[None, None])

    measured = nearest("measured", _times_key(layout, device))
    return InProfile(nearest("layouts", layout)[1], measured[0], measured[1] or {})


def _own_device(type: str | None):
    import torch

    if not type:
        return torch.device("cpu")
    count = torch.get_device_module(type).device_count()
    device = torch.device(type, int(os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0"))) % count)
    torch.accelerator.set_device_index(device.index)
    return device


def _layout(group) -> list[int]:
    """The host of each rank."""
    import torch

    return group._get_backend(torch.device("cpu"))._info()["layout"]


def _sizes(most: int) -> list[int]:
    sizes = [8]
    while sizes[-1] * 8 <= most:
        sizes.append(sizes[-1] * 8)
    return sizes


def _groups(names: dict[str, list[str]]) -> dict:
    """A group for each algorithm. One group forces an algorithm in every collective, so there are few."""
    import torch.distributed as dist
    import hccl_like

    groups = {}
    for number in range(max(map(len, names.values()), default=0)):
        forced = {collective: all_[number] for collective, all_ in names.items() if number < len(all_)}
        algorithms = ";".join(f"{collective}:{name}" for collective, name in forced.items())
        group = dist.new_group(pg_options=hccl_like.Options(algorithms=algorithms))
        groups.update({item: group for item in forced.items()})
    return groups


def _call(collective: str, size: int, ranks: int, device) -> Callable:
    """A function of a group that makes one call of `size` bytes in all chunks together, of at least one float a chunk."""
    import torch
    import torch.distributed as dist

    whole = torch.zeros(max(1, size // 4), device=device)
    part = torch.zeros(max(1, size // 4 // ranks), device=device)
    # Taking turns, a root waits for the one before: else calls would follow each other without anybody hearing of the last.
    roots = itertools.cycle(range(ranks))
    parts, other = (torch.zeros(part.numel() * ranks, device=device) for _ in range(2))
    return {
        "all_reduce": lambda group: dist.all_reduce(whole, group=group),
        "reduce_scatter": lambda group: dist.reduce_scatter_tensor(part, parts, group=group),
        "all_gather": lambda group: dist.all_gather_into_tensor(parts, part, group=group),
        "broadcast": lambda group: dist.broadcast(whole, next(roots), group=group),
        "reduce": lambda group: dist.reduce(whole, next(roots), group=group),
        "all_to_all": lambda group: dist.all_to_all_single(parts, other, group=group),
    }[collective]


def _measure(groups: dict, call: Callable, seconds: float) -> dict[str, float]:
    """The time of a call in each group: of the slowest rank, in the best round. Rounds take turns, so that whatever else the
    machines do meets all algorithms."""
    best: dict[str, float] = {}
    for round_ in range(_ROUNDS):
        fastest = min(best.values(), default=0.0)
        for name, group in groups.items():
            if round_ and best[name] > _HOPELESS * fastest:
                continue
            if not round_:
                _timed(call, group, 1)  # connects, and makes the schedule
                best[name] = _timed(call, group, 1)
            calls = max(1, min(1000, int(seconds / best[name])))
            best[name] = min(best[name], _timed(call, group, calls))
    return best


def _wins(call: Callable, one, other, seconds: float) -> bool:
    """Whether a call in the group `one` is faster in each of some more rounds. The fastest of many by a few measurements may be so by chance."""
    for _ in range(_DUELS):
        calls = max(1, min(1000, int(seconds / _timed(call, one, 1))))
        if _timed(call, one, calls) * _MARGIN > _timed(call, other, calls):
            return False
    return True


def _timed(call: Callable, group, calls: int) -> float:
    """Seconds a call, of the slowest rank: the same on all of them."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call(group)
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    slowest = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item() / calls


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in COLLECTIVES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(COLLECTIVES)}")
    return names


def _report(measured: dict) -> None:
    rows = [
        (collective, str(row["bytes"]), row["best"], f"{row['seconds'][row['best']] * 1e6:.1f}",
         row["model"], f"{row['seconds'][row['model']] * 1e6:.1f}")
        for collective, rows in measured["collectives"].items() for row in rows
    ]
    _tables.show(f"layout {measured['layout']}", ("collective", "bytes", "fastest", "us", "without a profile", "us"), rows)


if __name__ == "__main__":
    sys.exit(main())
