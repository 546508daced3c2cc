"""``hccl-like bench --replay``: the calls of a job again, from its flight recorder's dumps, without the job.

Every rank makes the calls of its own dump, in order, with tensors of the same sizes and types in groups of the same ranks. A dump does not
tell the reduction and the root: sums, and the group's rank 0.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hccl_like import _dumps, _tables

_TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2",
    "Int": "int32", "Long": "int64", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128", "UInt16": "uint16", "UInt32": "uint32", "UInt64": "uint64",
}  # fmt: skip
_SAME = {"_all_gather_base": "all_gather", "all_gather_into_tensor": "all_gather", "allgather": "all_gather", "_reduce_scatter_base": "reduce_scatter",
         "reduce_scatter_tensor": "reduce_scatter", "allreduce": "all_reduce", "all_to_all_single": "all_to_all", "alltoall": "all_to_all",
         "alltoall_base": "all_to_all"}


def main(argv: list[str]) -> int:
    """Starts a rank for each dump, or runs here if this is a rank. 0, or 2 if the dumps cannot be replayed."""
    asked = parse(argv)
    try:
        dumps = _dumps.read_all(asked.replay)
        plans = plan(dumps)
        asked.left_out = sum(len(dump.records) for dump in dumps) - sum(map(len, plans))
    except _dumps.Unreadable as error:
        print(error, file=sys.stderr)
        return 2
    if "RANK" in os.environ:
        return run(asked, plans)
    from .launch import spawn

    return spawn(len(plans), [sys.executable, "-m", "hccl_like.bench", *argv])


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hccl-like bench --replay",
        description="Makes the calls of a job again, from the dumps of its flight recorder, one for each rank (docs/diagnosis.md), and holds their "
        "times against the recorded ones. Starts the ranks itself, unless a launcher has started as many.",
        epilog="example: TORCH_FR_DUMP_TEMP_FILE=/tmp/job_ torchrun ... train.py; hccl-like bench --replay /tmp/job_0 /tmp/job_1 --backend gloo")
    parser.add_argument("--replay", nargs="+", required=True, metavar="DUMP", help="the dumps, or a folder of them")
    parser.add_argument("-n", "--iters", type=int, default=3, help="times that all calls are made; medians count (3)")
    parser.add_argument("--device", default="cpu", help="where the tensors lie (cpu)")
    parser.add_argument("--backend", default="hccl-like", help="the backend that is measured (hccl-like)")
    parser.add_argument("-J", "--json", metavar="FILE", help="write the rows to a JSON file")
    asked = parser.parse_args(argv)
    if asked.iters < 1:
        parser.error("-n must be at least 1")
    return asked


def plan(dumps: Sequence[_dumps.Dump]) -> list[list[_dumps.Record]]:
    """By rank, the calls to make.

    Collectives need equal parts, and a record in the dump of every rank of their group. Messages need dumps that have lost no call.
    """
    if [dump.rank for dump in dumps] != list(range(len(dumps))):
        raise _dumps.Unreadable(f"there are dumps of ranks {', '.join(str(dump.rank) for dump in dumps)}: a replay takes those of all ranks from 0 on")
    groups = {group.key: group for dump in dumps for group in dump.groups.values()}
    made = {key: [{r.number for r in dumps[rank].records if r.group == key and not r.is_message and r.is_over} for rank in group.ranks if rank < len(dumps)]
            for key, group in groups.items()}
    common = {key: set.intersection(*every) if every else set() for key, every in made.items()}
    for dump in dumps:
        for record in dump.records:
            if not record.is_message and not _is_even(record, len(groups[record.group].ranks)):
                common[record.group].discard(record.number)
    whole = all(dump.is_whole for dump in dumps)

    def counts(record: _dumps.Record) -> bool:
        if record.is_message:
            return whole and record.is_over and record.peer is not None
        return record.number in common[record.group]

    plans = [[record for record in dump.records if counts(record)] for dump in dumps]
    if not any(plans):
        raise _dumps.Unreadable("the dumps have no call in common that ended: was the recorder on (TORCH_FR_BUFFER_SIZE)?")
    return plans


def run(asked: argparse.Namespace, plans: list[list[_dumps.Record]]) -> int:
    import torch
    import torch.distributed as dist

    from . import launch
    from .run import TIMEOUT, pick_device

    torch.set_num_threads(1)
    device = pick_device(asked.device)
    store = launch.store()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if ranks != len(plans):
        print(f"the dumps are of {len(plans)} ranks, and {ranks} were started", file=sys.stderr)
        return 2
    dist.init_process_group(asked.backend, timeout=TIMEOUT, **({"store": store, "rank": rank, "world_size": ranks} if store else {}))
    keys = sorted({record.group for one in plans for record in one}, key=lambda key: (len(key), key))
    groups = {key: dist.new_group(json.loads(key[key.index("["):])) for key in keys}
    calls = [_call(record, groups[record.group], device) for record in plans[rank]]
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(asked.iters + 1):  # the first one connects
        dist.barrier()
        works: list[tuple[int, float, Any]] = []
        for number, (record, call) in enumerate(zip(plans[rank], calls)):
            if not record.is_message:
                _finish(works, taken)
            begin = time.perf_counter()
            works.append((number, begin, call()))
            if not record.is_message:
                _finish(works, taken)
        _finish(works, taken)
        if device.type != "cpu":
            torch.accelerator.synchronize()
    rows = list(_rows(plans[rank], [statistics.median(one[1:]) for one in taken]))
    if rank == 0:
        print(f"# {sum(map(len, plans))} calls of {ranks} ranks, backend {asked.backend}, device {asked.device}; rank 0, medians in us", flush=True)
        if asked.left_out:
            print(f"# {asked.left_out} calls are left out: unfinished ones, those that not all ranks have in their dumps, and those with unequal parts",
                  flush=True)
        _tables.show("", ("call", "calls", "recorded", "replayed", "ratio"), [tuple(map(str, row)) for row in rows])
        if asked.json:
            names = ("call", "calls", "recorded_us", "replayed_us", "ratio")
            Path(asked.json).write_text(json.dumps([dict(zip(names, row)) for row in rows], indent=1) + "\n", encoding="utf-8")
    dist.destroy_process_group()
    return 0


def _finish(works: list, taken: list[list[float]]) -> None:
    for number, begin, work in works:
        if work is not None:
            work.wait()
        taken[number].append(time.perf_counter() - begin)
    works.clear()


def _name(record: _dumps.Record) -> str:
    return _SAME.get(record.name, record.name)


def _is_even(record: _dumps.Record, ranks: int) -> bool:
    """Whether the sizes of this rank are those of a call with equal parts, of a kind that can be made again."""
    given, taken = _elements(record.inputs), _elements(record.outputs)
    match _name(record):
        case "all_gather":
            return given * ranks == taken
        case "reduce_scatter":
            return taken * ranks == given
        case "all_to_all":
            return given == taken and given % ranks == 0
        case "all_reduce" | "broadcast" | "reduce" | "barrier" | "gather" | "scatter":
            return True
    return False


def _elements(tensors: Sequence[str]) -> int:
    total = 0
    for tensor in tensors:
        elements = 1
        for length in json.loads(tensor[tensor.index("["):]):
            elements *= length
        total += elements
    return total


def _call(record: _dumps.Record, group: Any, device: Any) -> Callable[[], Any]:
    """What makes the call again, with tensors of its own."""
    import torch
    import torch.distributed as dist

    name, size = _name(record), group.size()
    kind = (record.inputs or record.outputs or ("Float []",))[0].split(" ")[0]
    dtype = getattr(torch, _TYPES.get(kind, "float32"))
    given, taken = _elements(record.inputs), _elements(record.outputs)
    first, second = torch.zeros(given, dtype=dtype, device=device), torch.zeros(taken, dtype=dtype, device=device)
    root = dist.get_global_rank(group, 0)
    options = {"group": group, "async_op": True}
    if name == "send":
        return lambda: dist.isend(first, group_dst=record.peer, group=group)
    if name == "recv":
        return lambda: dist.irecv(second, group_src=record.peer, group=group)
    if name == "barrier":
        return lambda: dist.barrier(**options)
    if name == "broadcast":
        return lambda: dist.broadcast(first, root, **options)
    if name == "reduce":
        return lambda: dist.reduce(first, root, **options)
    if name == "all_gather":
        return lambda: dist.all_gather_into_tensor(second, first, **options)
    if name == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(second, first, **options)
    if name == "all_to_all":
        return lambda: dist.all_to_all_single(second, first, **options)
    if name == "gather":
        parts = [torch.zeros_like(first) for _ in range(size)] if group.rank() == 0 else None
        return lambda: dist.gather(first, parts, root, **options)
    if name == "scatter":
        parts = [torch.zeros_like(second) for _ in range(size)] if group.rank() == 0 else None
        return lambda: dist.scatter(second, parts, root, **options)
    return lambda: dist.all_reduce(first, **options)


def _rows(records: list[_dumps.Record], seconds: list[float]):
    """(call, how many, recorded, replayed, ratio), by the name and the tensors of a call, in the order of their first one."""
    kinds: dict[str, list[tuple[float | None, float]]] = {}
    for record, second in zip(records, seconds):
        tensors = max(record.inputs, record.outputs, key=_elements)
        title = " ".join([_name(record), *tensors[:1], *(["..."] if len(tensors) > 1 else [])])
        recorded = (record.completed - record.started) / 1000 if record.completed and record.started else None
        kinds.setdefault(title, []).append((recorded, 1e6 * second))
    for title, times in kinds.items():
        known = [one for one, _ in times if one is not None]
        before = statistics.median(known) if known else 0.0
        now = statistics.median(one for _, one in times)
        yield title, len(times), round(before, 1), round(now, 1), round(now / before, 2) if before else "-"
