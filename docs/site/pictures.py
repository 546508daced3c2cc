#!/usr/bin/env python3
"""Draws docs/pictures: schedules by `hccl-like explain`, and the order of streams from a run of two ranks on the simulated device.

    python docs/site/pictures.py [FOLDER]

The schedules are the same on every machine, and a test compares them; the run is measured anew.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from hccl_like import _pictures, cli
from hccl_like.bench import launch

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
EXPLAINED = {
    "ring.svg": ["1M", "4", "--hosts", "4", "--algorithm", "ring", "--svg"],
    "recursive_doubling.svg": ["1K", "4", "--hosts", "4", "--algorithm", "recursive_doubling", "--svg"],
    "slices.svg": ["16M", "4", "--hosts", "4", "--algorithm", "ring", "--timeline"],
}
# Milliseconds of the kernels of each rank: rank 1 comes late to the call.
KERNELS = {0: (30, 60, 20), 1: (70, 30, 20)}


def explained(folder: Path) -> None:
    """Draws what the program knows without running."""
    for name, arguments in EXPLAINED.items():
        if cli.main(["explain", "all_reduce", *arguments, str(folder / name)]):
            sys.exit(f"{name} was not drawn")


def run_rank(folder: Path) -> None:
    """One rank: two kernels about an asynchronous call, and one behind it. Leaves the times in a file."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.sim.set_device(rank % torch.sim.device_count())
    dist.init_process_group("hccl-like", store=launch.store(), rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    tensor = torch.ones(1 << 18, device="sim")
    dist.all_reduce(tensor)
    torch.sim.synchronize()
    events = [torch.sim.Event(enable_timing=True) for _ in range(6)]
    side = torch.sim.Stream()
    host = []

    def issue(name, function):
        begin = time.monotonic_ns()
        result = function()
        host.append((name, begin, time.monotonic_ns()))
        return result

    first, second, third = KERNELS[rank]
    events[0].record()
    origin = time.monotonic_ns()
    issue("kernel", lambda: torch.sim._sleep(first))
    events[1].record()
    work = issue("all_reduce", lambda: dist.all_reduce(tensor, async_op=True))
    issue("kernel", lambda: torch.sim._sleep(second))
    events[2].record()
    with torch.sim.stream(side):
        work.wait()
        events[3].record()
    issue("wait", work.wait)
    events[4].record()
    issue("kernel", lambda: torch.sim._sleep(third))
    events[5].record()
    issue("synchronize", torch.sim.synchronize)
    at = [origin + 1e6 * events[0].elapsed_time(event) for event in events]
    (folder / f"{rank}.json").write_text(json.dumps({"host": host, "stream": at}))
    dist.destroy_process_group()


def measured() -> list[dict]:
    """The times of both ranks, in nanoseconds of the host's clock."""
    with tempfile.TemporaryDirectory() as folder:
        if launch.spawn(2, [sys.executable, __file__, "--rank", folder]):
            sys.exit("a rank failed")
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(2)]


def stream_order(times: list[dict]) -> str:
    """Three rows for each rank: what the host issues, the current stream, the stream of the group."""
    begin = min(one["host"][0][1] for one in times)
    end = max(one["host"][-1][2] for one in times)
    left, right, row = 150, 1000, 34
    drawing = _pictures.Drawing(right + 50)
    drawing.text(12, 22, "An asynchronous all_reduce on two ranks: the host runs ahead, the streams keep the order", bold=True)
    scale = (right - left) / (end - begin)
    bottom = 40.0
    for rank, one in enumerate(times):
        kernel, call, late = at = [_pictures.colour_of(number) for number in range(3)]
        rows = [("host", [(name, first, last, "#e4e7eb" if name in ("wait", "synchronize") else at[name == "all_reduce"])
                          for name, first, last in one["host"]]),
                ("current stream", [("first kernel", *one["stream"][0:2], kernel), ("second kernel", *one["stream"][1:3], kernel),
                                    ("third kernel", *one["stream"][4:6], late)]),
                ("group's stream", [("all_reduce", one["stream"][1], one["stream"][3], call)])]  # fmt: skip
        drawing.text(12, bottom + 20, f"rank {rank}", bold=True)
        for name, bars in rows:
            drawing.text(left - 6, bottom + 20, name, anchor="end")
            drawing.line(left, bottom + row, right, bottom + row, _pictures.FAINT)
            for label, first, last, colour in bars:
                x, wide = left + (first - begin) * scale, max(3.0, (last - first) * scale)
                drawing.rectangle(x, bottom + 4, wide, row - 8, colour)
                if wide > 7 * len(label):
                    drawing.text(x + wide / 2, bottom + 21, label, anchor="middle")
                elif name != "host":
                    drawing.text(x + wide + 5, bottom + 21, label)
            bottom += row
        bottom += 10
    for tick in range(5):
        x = left + (right - left) * tick / 4
        drawing.line(x, bottom, x, bottom + 5, _pictures.INK)
        drawing.text(x, bottom + 20, f"{(end - begin) * tick / 4e6:.0f} ms", anchor="middle")
    return drawing.finish(bottom + 26)


def main(argv: list[str]) -> None:
    """Draws all of them."""
    if argv[:1] == ["--rank"]:
        return run_rank(Path(argv[1]))
    folder = Path(argv[0]) if argv else FOLDER
    folder.mkdir(exist_ok=True)
    explained(folder)
    (folder / "stream_order.svg").write_text(stream_order(measured()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
