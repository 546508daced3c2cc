"""The benchmarks' inputs: exact in every order, different where they should differ, judged element by element."""

import pytest
import torch

from hccl_like.bench import inputs, types

KINDS = list(types.TYPES.values())
COUNT = 2500  # more than two periods


def wide(tensor):
    """In a type that torch can calculate with and that holds every value."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.dtype.is_floating_point else tensor.to(torch.int64)


def rounded(values, kind):
    return wide(values.to(kind.dtype))


def combined(kind, op, ranks, order):
    """The inputs reduced one after the other, rounded to the type after every step, as the worst backend would."""
    parts = [wide(inputs.values(kind, op, rank, ranks, COUNT)) for rank in order]
    total = parts[0]
    step = {"sum": torch.add, "avg": torch.add, "prod": torch.mul, "min": torch.minimum, "max": torch.maximum,
            "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}[op]
    for part in parts[1:]:
        total = rounded(step(total, part), kind)
    return total / ranks if op == "avg" else total


DEFINED = [pytest.param(kind, op, id=f"{kind.name}-{op}")
           for kind in KINDS for op in types.REDUCTIONS if types.allowed(kind, op)]


@pytest.mark.parametrize("kind, op", DEFINED)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 40])
def test_reductions_are_exact_in_every_order_of_summation(kind, op, ranks):
    expected = inputs.reduced(kind, op, ranks, COUNT)
    assert expected.dtype is kind.dtype
    for order in (range(ranks), reversed(range(ranks)), [*range(1, ranks, 2), *range(0, ranks, 2)]):
        assert torch.equal(combined(kind, op, ranks, list(order)), wide(expected))


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_the_results_are_not_all_the_same(kind):
    assert len(wide(inputs.reduced(kind, "sum", 2, COUNT)).abs().unique()) > 1


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_ranks_and_salts_give_different_values(kind):
    values = [inputs.values(kind, "sum", rank, 3, COUNT, salt) for rank, salt in ((0, 0), (1, 0), (0, 1))]
    assert not torch.equal(wide(values[0]), wide(values[1]))
    assert not torch.equal(wide(values[0]), wide(values[2]))


def test_values_repeat_with_a_prime_period():
    values = inputs.values(types.type_named("float32"), "sum", 1, 2, 3000)
    assert torch.equal(values[:1000], values[1021:2021])
    assert not torch.equal(values[:1000], values[1024:2024])


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_every_wrong_element_is_counted(kind):
    expected = inputs.reduced(kind, "sum", 2, COUNT)
    assert inputs.wrong(expected.clone(), expected, "sum", 2) == 0
    got = expected.clone()
    spoilt = (0, 17, COUNT - 1)
    for at in spoilt:
        got.view(torch.uint8)[at * got.element_size()] ^= 1 if kind.dtype is torch.bool else 0x40
    assert inputs.wrong(got, expected, "sum", 2) == len(spoilt)


def test_nan_is_wrong():
    expected = torch.ones(5)
    assert inputs.wrong(torch.full((5,), float("nan")), expected, "avg", 3) == 5


def test_an_average_over_three_may_be_one_rounding_off_but_not_two():
    expected = torch.ones(4)
    near = expected + torch.tensor([0.0, 1.0, 2.0, 0.0]) * torch.finfo(torch.float32).eps
    assert inputs.wrong(near, expected, "avg", 3) == 1
    assert inputs.wrong(near, expected, "avg", 4) == 2
    assert inputs.wrong(near, expected, "sum", 3) == 2
