"""How fast bytes go from each host of a job to each other one, and which way is slow."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_SIZES = (256 << 10, 4 << 20)
_LONG = 0.1  # seconds of a message; a larger one is not sent
# Messages of a size, and seconds for them if they are more than the least. The best counts: hosts are busy with other things, too.
_LEAST, _MOST, _SECONDS = 5, 50, 0.5
_MOST_ROUNDS = 15  # so a host of a large job is measured with 15 others
_SLOW = 10.0  # times as slow as the fastest way; less is met on hosts that are busy


def measure(layout: Sequence[int]) -> dict[int, float]:
    """By rank the bytes a second that this rank sends to it. In the default group, on all its ranks; `layout`: the host of each rank. The
    first rank of a host measures for it."""
    import torch.distributed as dist

    rank = dist.get_rank()
    ranks = [layout.index(host) for host in dict.fromkeys(layout)]
    speeds = {}
    for pairs in rounds(ranks):
        for first, second in pairs:
            if rank == first:
                speeds[second] = _send(second)
                _receive(second)
            elif rank == second:
                _receive(first)
                speeds[first] = _send(first)
    return speeds


def rounds(ranks: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Pairs, each rank once in a round, as in a tournament: all pairs if there are few ranks."""
    fixed, *others = [*ranks, None] if len(ranks) % 2 else [*ranks]
    for turn in range(min(len(others), _MOST_ROUNDS)):
        order = [fixed, *others[turn:], *others[:turn]]
        pairs = zip(order, reversed(order[len(order) // 2 :]))
        yield [(first, second) for first, second in pairs if first is not None and second is not None]


def _send(peer: int) -> float:
    """Bytes a second."""
    import torch
    import torch.distributed as dist

    for size in _SIZES:
        times: list[float] = []
        data = torch.zeros(size, dtype=torch.uint8)
        begin = time.perf_counter()
        while len(times) < _LEAST or (len(times) < _MOST and time.perf_counter() - begin < _SECONDS):
            dist.send(torch.tensor([size]), peer)
            start = time.perf_counter()
            dist.send(data, peer)
            _hear(peer)
            times.append(time.perf_counter() - start)
        if min(times) * _SIZES[-1] / size > _LONG:
            break
    dist.send(torch.tensor([0]), peer)
    return size / min(times)


def _receive(peer: int) -> None:
    import torch
    import torch.distributed as dist

    while size := int(_hear(peer)):
        dist.recv(torch.empty(size, dtype=torch.uint8), peer)
        dist.send(torch.tensor([1]), peer)


def _hear(peer: int) -> torch.Tensor:
    import torch
    import torch.distributed as dist

    number = torch.zeros(1, dtype=torch.int64)
    dist.recv(number, peer)
    return number


def slow(speeds: dict[tuple[int, int], float], names: dict[int, str]) -> list[str]:
    """A sentence for each host, or each way between two, that is much slower than the fastest. `names`: of the ranks."""
    best = max(speeds.values(), default=0.0)
    ways = {way for way, speed in speeds.items() if speed * _SLOW < best}
    sentences = []
    # The slowest host first: its ways are not held against the hosts at their other ends.
    for rank in sorted(names, key=lambda rank: min((max(speeds[way] for way in of) for of in _of_host(rank, speeds).values()), default=0.0)):
        kinds = _of_host(rank, speeds)
        bad = [kind for kind, of in kinds.items() if ways.issuperset(of)]
        if bad:
            all_ = [way for kind in bad for way in kinds[kind]]
            sentences.append(f"the network {'of' if len(bad) > 1 else bad[0]} {names[rank]} is slow: {_rate(max(speeds[way] for way in all_))} at "
                             f"best, and {_rate(best)} between others")  # fmt: skip
            ways -= {*all_}
    return sentences + [f"the network from {names[a]} to {names[b]} is slow: {_rate(speeds[a, b])}, and {_rate(best)} elsewhere" for a, b in sorted(ways)]


def _of_host(rank: int, speeds: dict[tuple[int, int], float]) -> dict[str, list[tuple[int, int]]]:
    """The ways out of a host and into it, where there are several: of two hosts none can be told from the other."""
    kinds = {"out of": [way for way in speeds if way[0] == rank], "into": [way for way in speeds if way[1] == rank]}
    return {kind: of for kind, of in kinds.items() if len(of) > 1}


def _rate(speed: float) -> str:
    return f"{speed / 1e9:.1f} GB/s" if speed >= 1e9 else f"{speed / 1e6:.3g} MB/s"


def rows(speeds: dict[tuple[int, int], float], names: dict[int, str]) -> list[tuple[str, str]]:
    """The slowest first."""
    return [(f"{names[a]} to {names[b]}", _rate(speed)) for (a, b), speed in sorted(speeds.items(), key=lambda one: one[1])][:16]
