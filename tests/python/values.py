"""Tensors whose reductions are exact in any order, and what they come to."""

import math

import torch

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
NARROW = [torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
ALL = FLOATS + NARROW + INTEGERS + COMPLEX + [torch.bool]


def plain(rank, count, dtype, start=0):
    """Small whole numbers that differ by rank and place; sums over eight ranks are exact in every type."""
    places = torch.arange(start, start + count, dtype=torch.int64)
    if dtype in NARROW:
        numbers = (places + rank) % 2
    elif dtype == torch.bool:
        numbers = (places + rank) % 3 == 0
    else:
        numbers = (places * 7 + rank * 3) % 5 + 1
    if dtype in COMPLEX:
        return torch.complex(numbers.double(), numbers.double() - 2).to(dtype)
    return numbers.to(dtype)


def large(rank, size, count, dtype):
    """What a rank gives to an average of `size` ranks whose sum overflows, and the average, in patterns of four."""
    top = 40000.0 if dtype == torch.float16 else 2.0 ** (math.frexp(torch.finfo(dtype).max)[1] - 1)
    given = torch.tensor([top, -top, size if rank == 0 else 0, 2 * size if rank == size - 1 else 0], dtype=torch.float64)
    average = torch.tensor([top, -top, 1, 2], dtype=torch.float64)
    return given.repeat(count // 4).to(dtype), average.repeat(count // 4).to(dtype)


def factors(rank, count, dtype):
    """Whole numbers whose product over many ranks is exact in every type: only two ranks bring more than 1."""
    places = torch.arange(count, dtype=torch.int64)
    numbers = (places % 2 + 1) if rank < 2 else torch.ones(count, dtype=torch.int64)
    return numbers.to(dtype)


def bits(rank, count, dtype):
    places = torch.arange(count, dtype=torch.int64)
    return ((places * 31 + rank * 17) % 128).to(dtype)


def widest(dtype):
    """A type in which the reference is computed exactly."""
    if dtype in COMPLEX:
        return torch.complex128
    if dtype.is_floating_point:
        return torch.float64
    return torch.int64


def total(tensors):
    """The elementwise sum in the tensors' own type; or, for bool."""
    dtype = tensors[0].dtype
    wide = torch.stack([tensor.to(widest(dtype)) for tensor in tensors])
    return wide.sum(0).to(dtype)


def equal(a, b):
    """Bitwise."""
    a, b = a.cpu().contiguous(), b.cpu().contiguous()
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a.reshape(-1).view(torch.uint8).equal(b.reshape(-1).view(torch.uint8))
