"""Element types and reductions under their nccl-tests names, and what is exact in them."""

from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Type:
    """An element type; every integer from 0 to `exact` is represented exactly."""

    name: str
    dtype: torch.dtype
    exact: int

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating_point or self.dtype.is_complex


TYPES = {
    t.name: t
    for t in (
        Type("int8", torch.int8, 127),
        Type("uint8", torch.uint8, 127),
        Type("int16", torch.int16, 2**15 - 1),
        Type("uint16", torch.uint16, 2**15 - 1),
        Type("int32", torch.int32, 2**31 - 1),
        Type("uint32", torch.uint32, 2**31 - 1),
        Type("int64", torch.int64, 2**53),
        Type("uint64", torch.uint64, 2**53),
        Type("half", torch.float16, 2**11),
        Type("float", torch.float32, 2**24),
        Type("double", torch.float64, 2**53),
        Type("bfloat16", torch.bfloat16, 2**8),
        Type("f8e4m3", torch.float8_e4m3fn, 2**4),
        Type("f8e5m2", torch.float8_e5m2, 2**3),
        Type("bool", torch.bool, 1),
        Type("complex64", torch.complex64, 2**24),
        Type("complex128", torch.complex128, 2**53),
    )
}
ALIASES = {"float16": "half", "float32": "float", "float64": "double", "bf16": "bfloat16",
           "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}

REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "avg": dist.ReduceOp.AVG,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}
BITWISE = ("band", "bor", "bxor")


def allowed(kind: Type, op: str) -> bool:
    """Whether torch.distributed defines the reduction for the type."""
    if op in BITWISE:
        return not kind.is_float
    if kind.dtype.is_complex:
        return op in ("sum", "avg")
    return op != "avg" or kind.is_float


def type_named(name: str) -> Type:
    return TYPES[ALIASES.get(name, name)]
