"""What process groups and calls leave behind in a process: threads, descriptors, memory."""

import ctypes
import gc
import os

import torch.distributed as dist

from .case import Case, Measure, Settings
from .figure import Figure, Result
from .job import Job, Outcome, Rank
from .needs import simulator

_libc = ctypes.CDLL(None)
SMALL, LARGER = 2, 300  # numbers: a line of the board, and what needs room beside it


def holds() -> tuple[int, int, int]:
    """Threads, descriptors, and bytes of memory: this process's own, and what it lends to its peers."""
    gc.collect()
    _libc.malloc_trim(0)
    with open("/proc/self/smaps_rollup") as rollup:
        anonymous = next(int(line.split()[1]) for line in rollup if line.startswith("Anonymous:")) << 10
    shared, names = 0, os.listdir("/proc/self/fd")
    for name in names:
        path = f"/proc/self/fd/{name}"
        if os.path.exists(path) and "memfd:" in os.readlink(path):
            shared += os.stat(path).st_blocks * 512
    return len(os.listdir("/proc/self/task")), len(names), anonymous + shared


def _growth(rank: Rank, before: tuple[int, int, int]) -> None:
    threads, descriptors, memory = (late - early for early, late in zip(before, holds()))
    rank.figures |= {"threads": threads, "descriptors": descriptors, "memory": memory}


def _use(rank: Rank, group) -> None:
    for elements in (SMALL, LARGER):
        tensor = rank.ones(elements)
        dist.all_reduce(tensor, group=group)
        rank.synchronize()
        if rank.backend != "fake":
            assert tensor.eq(rank.size).all()


def _made_and_destroyed(rank: Rank, groups: int, before: int) -> Outcome:
    """`before`: groups that are made and destroyed before it counts."""

    def some(count: int) -> None:
        for _ in range(count):
            group = dist.new_group()
            _use(rank, group)
            dist.destroy_process_group(group)

    rank.begin()
    some(before)
    held = holds()
    outcome = rank.attempt(lambda: some(groups))
    _growth(rank, held)
    rank.figures["each"] = outcome.seconds / groups * 1000
    return outcome


class Groups:
    """Ours is what is beyond that of torch's backend that does nothing."""

    name = "groups"
    what = "1,000 groups are made, used and destroyed"
    quick = True
    RANKS = 2

    def needs(self) -> str:
        return ""

    def try_it(self, settings: Settings) -> Result:
        groups = 100 if settings.quick else 1000

        def of(backend: str) -> list[Outcome]:
            job = Job(self.RANKS, settings.timeout, backend, slack=240)
            return job.run(lambda rank: _made_and_destroyed(rank, groups, 100))

        import torch.testing._internal.distributed.fake_pg  # noqa: F401  registers the backend

        outcomes, others = of(settings.backend), of("fake")
        problems = [f"rank {rank} {outcome}" for rank, outcome in enumerate(outcomes + others) if outcome.kind != "done"]
        if problems:
            return Result(problems=problems)
        torchs = max(outcome.figures["memory"] for outcome in others)
        samples = {name: [outcome.figures[name] for outcome in outcomes] for name in ("threads", "descriptors", "memory", "each")}
        return Result([
            Figure("threads more", 0, samples["threads"], ""),
            Figure("descriptors more", 0, samples["descriptors"], ""),
            Figure("memory beyond torch's own", 1, [(memory - torchs) / (1 << 20) for memory in samples["memory"]], "MiB"),
            Figure("each, made, used twice and destroyed", 5 * settings.patience, samples["each"], "ms", of="median"),
        ])


def _alive(rank: Rank) -> Outcome:
    rank.begin()
    groups = [dist.new_group() for _ in range(8)]
    for group in groups:
        _use(rank, group)
    held, count = holds(), 60 if rank.quick else 300

    def more():
        for _ in range(count):
            groups.append(dist.new_group())
            _use(rank, groups[-1])

    outcome = rank.attempt(more)
    _growth(rank, held)
    rank.figures["memory"] /= 1024 * count
    return outcome


def _many_calls(rank: Rank) -> Outcome:
    rank.begin()
    tensor = rank.ones(SMALL)

    def some(count: int) -> None:
        for _ in range(count):
            dist.all_reduce(tensor)
            tensor.fill_(1)
        rank.synchronize()

    some(20_000)  # the flight recorder is full then
    held, count = holds(), 50_000 if rank.quick else 1_000_000 if rank.device == "cpu" else 100_000
    outcome = rank.attempt(lambda: some(count))
    dist.all_reduce(tensor)
    _growth(rank, held)
    rank.figures["memory"] /= count
    rank.figures["each"] = outcome.seconds / count * 1e6
    return outcome


NOTHING_MORE = (Measure("threads", "threads more", 0), Measure("descriptors", "descriptors more", 0))
QUIET = {"kind": "done", "ranks": 2, "within": None}
CASES = [
    Groups(),
    Case("groups-alive", "300 groups are alive", _alive, slack=240,
         measures=(*NOTHING_MORE, Measure("memory", "memory of each", 32, "KiB")), **QUIET),
    Case("calls", "a million all_reduces of 8 bytes", _many_calls, slack=900,
         measures=(*NOTHING_MORE, Measure("memory", "memory more for each call", 1, "B")), **QUIET),
    Case("calls-sim", "a hundred thousand on a device", _many_calls, slack=900, device="sim",
         measures=(*NOTHING_MORE, Measure("memory", "memory more for each call", 1, "B")), needs=simulator, **QUIET),
]
