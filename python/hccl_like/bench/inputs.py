"""Inputs whose reduction is exact in every order of summation, so that a result is either right or wrong.

A value depends on the rank, on the position and on a salt. It repeats with a prime period, so that a chunk put in the
wrong place is noticed, and another salt gives other values, so that a stale result is noticed.
"""

import torch

from .types import Type

PERIOD = 1021


def _pattern(kind: Type, op: str, rank: int, ranks: int, salt: int) -> torch.Tensor:
    """PERIOD small integers, chosen so that no intermediate result leaves the exact range of the type."""
    at = torch.arange(PERIOD) + 31 * salt
    if kind.dtype is torch.bool:
        # Mostly true for a product (and), mostly false for everything else, or large groups give constants.
        marked = (at * 7 + rank) % (3 * ranks) == 0
        return ~marked if op in ("prod", "min", "band") else marked
    if op == "prod":
        return torch.where((at + rank) % ranks < 3, 2, 1)  # at most three twos: the product is at most 8
    if op in ("min", "max", "band", "bor", "bxor"):
        return (at * 5 + rank * 3) % (min(kind.exact, 100) + 1)
    if op == "avg":
        return _averaged(kind, at, rank, ranks)
    share = kind.exact // ranks
    if share == 0:  # more ranks than the range has numbers: at each position only so many add a one
        return ((at + rank) % ranks < kind.exact).long()
    return (at * 7 + rank * 11) % (min(share, 100) + 1)


def _averaged(kind: Type, at: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """A sum that is a multiple of `ranks`: all add the same, then neighbours in pairs add and take away one."""
    share = kind.exact // ranks
    base = 1 + at % min(share - 1, 100) if share > 1 else torch.full_like(at, min(share, 1))
    if share <= 1 or (ranks % 2 and rank == ranks - 1):
        return base
    return base + (1 if rank % 2 else -1)


def values(kind: Type, op: str, rank: int, ranks: int, count: int, salt: int = 0) -> torch.Tensor:
    """`count` elements that `rank` contributes, on the host."""
    pattern = _pattern(kind, op, rank, ranks, salt)
    if kind.dtype.is_complex and op != "prod":
        pattern = torch.complex(pattern.double(), pattern.flip(0).double())
    return _repeat(pattern.to(kind.dtype), count)


def reduced(kind: Type, op: str, ranks: int, count: int, salt: int = 0) -> torch.Tensor:
    """What all ranks' values reduce to."""
    patterns = [_pattern(kind, op, rank, ranks, salt) for rank in range(ranks)]
    if kind.dtype is torch.bool:
        return _repeat(_reduce_bool(torch.stack(patterns), op), count)
    total = patterns[0]
    for pattern in patterns[1:]:
        total = _EXACT[op](total, pattern)
    if op == "avg":
        total = total // ranks
    if kind.dtype.is_complex and op != "prod":
        total = torch.complex(total.double(), total.flip(0).double())
    return _repeat(total.to(kind.dtype), count)


_EXACT = {
    "sum": torch.add, "avg": torch.add, "prod": torch.mul, "min": torch.minimum, "max": torch.maximum,
    "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor,
}


def _reduce_bool(patterns: torch.Tensor, op: str) -> torch.Tensor:
    if op in ("prod", "min", "band"):
        return patterns.all(dim=0)
    return patterns.sum(dim=0) % 2 == 1 if op == "bxor" else patterns.any(dim=0)


def _repeat(pattern: torch.Tensor, count: int) -> torch.Tensor:
    # Through bytes: repeat() has no kernel for some of the narrow types.
    width = pattern.element_size()
    times = -(-count // PERIOD)
    return pattern.view(torch.uint8).repeat(times)[: count * width].view(pattern.dtype)


def wrong(got: torch.Tensor, expected: torch.Tensor, op: str, ranks: int) -> int:
    """How many elements differ. An average over a number of ranks that is no power of two may be one rounding off,
    because a backend may multiply by 1/ranks instead of dividing."""
    got = got.cpu()
    if got.numel() == 0:
        return 0
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}[got.element_size()]
    differs = got.contiguous().view(width) != expected.view(width)
    if got.element_size() == 16:
        differs = differs.view(-1, 2).any(dim=1)
    if not differs.any():
        return 0
    wide = torch.complex128 if got.dtype.is_complex else torch.float64
    if got.dtype.is_floating_point or got.dtype.is_complex:
        near = got.to(wide) - expected.to(wide)
        slack = 0.0
        if op == "avg" and ranks & (ranks - 1):
            slack = torch.finfo(got.dtype).eps
        return int((~(near.abs() <= slack * expected.to(wide).abs())).sum())  # "not near" also counts NaN
    return int(differs.sum())
