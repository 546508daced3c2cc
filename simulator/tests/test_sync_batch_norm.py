"""The steps of SyncBatchNorm, with the ranks' parts one after another: together they are batch normalisation of the whole."""

import pytest
import torch
from torch.nn.functional import batch_norm

EPS = 1e-3
MOMENTUM = 0.3
# How far each type may be off: accumulation is in float32 for half precision, so only the result is rounded.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
STATISTICS = {torch.float64: torch.float64}  # float32 for all others

LAYOUTS = {
    "2d": ((11, 3), torch.contiguous_format),
    "3d": ((11, 3, 5), torch.contiguous_format),
    "4d": ((11, 3, 5, 2), torch.contiguous_format),
    "channels last": ((11, 3, 5, 2), torch.channels_last),
    "channels last 3d": ((11, 3, 2, 3, 2), torch.channels_last_3d),
}


def synchronised(x, dy, parts, weight, bias, running_mean, running_var):
    """Forward and backward of the parts of a batch, as nn.SyncBatchNorm does it; results on the host."""
    xs, dys = x.split(parts), dy.split(parts)
    local = [torch.batch_norm_stats(part, EPS) for part in xs]
    counts = torch.tensor([part.numel() // part.size(1) for part in xs], dtype=local[0][0].dtype, device="sim")
    means, invstds = (torch.stack(values) for values in zip(*local))
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        x, means, invstds, running_mean, running_var, MOMENTUM, EPS, counts
    )
    ys = [torch.batch_norm_elemt(part, weight, bias, mean, invstd, EPS) for part in xs]
    affine = weight is not None
    reduced = [
        torch.batch_norm_backward_reduce(d, part, mean, invstd, weight, True, affine, affine) for d, part in zip(dys, xs)
    ]
    sum_dy, sum_dy_xmu = sum(r[0] for r in reduced), sum(r[1] for r in reduced)
    wide = None if weight is None else weight.to(mean.dtype)
    dxs = [
        torch.batch_norm_backward_elemt(d, part, mean, invstd, wide, sum_dy, sum_dy_xmu, counts.int())
        for d, part in zip(dys, xs)
    ]
    for part, y, dx in zip(xs, ys, dxs):
        assert y.dtype == dx.dtype == part.dtype and y.stride() == dx.stride() == part.stride()
    assert mean.dtype == sum_dy.dtype == STATISTICS.get(x.dtype, torch.float32)
    gradients = [sum(r[2].double() for r in reduced), sum(r[3].double() for r in reduced)] if affine else []
    return [t.double().cpu() for t in (torch.cat(ys), torch.cat(dxs), *gradients)]


def in_one_piece(x, dy, weight, bias, running_mean, running_var):
    x = x.double().cpu().requires_grad_()
    affine = [] if weight is None else [t.double().cpu().requires_grad_() for t in (weight, bias)]
    y = batch_norm(x, running_mean, running_var, *(affine or (None, None)), True, MOMENTUM, EPS)
    y.backward(dy.double().cpu())
    return [y.detach(), x.grad, *(t.grad for t in affine)]


@pytest.mark.parametrize("affine", ["no weight", "weight of the input's type", "float32 weight"])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape, layout", LAYOUTS.values(), ids=LAYOUTS)
def test_parts_of_a_batch_are_normalised_as_one(shape, layout, dtype, affine):
    x = (torch.randn(shape) * 2 + 1).to("sim", dtype)
    dy = torch.randn(shape).to("sim", dtype)
    if len(shape) > 3:
        x, dy = x.to(memory_format=layout), dy.to(memory_format=layout)
    kind = torch.float32 if affine == "float32 weight" else dtype
    weight, bias = (None, None) if affine == "no weight" else (torch.randn(3, device="sim", dtype=kind) for _ in range(2))
    running = [torch.zeros(3, device="sim"), torch.ones(3, device="sim")]
    expected_running = [torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)]
    got = synchronised(x, dy, (1, 7, 3), weight, bias, *running)
    expected = in_one_piece(x, dy, weight, bias, *expected_running)
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        tolerance = max(TOLERANCE[dtype], TOLERANCE[kind])
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    for a, b in zip(running, expected_running):
        torch.testing.assert_close(a.double().cpu(), b, rtol=1e-6, atol=1e-6)


def test_statistics_have_exact_values():
    x = torch.tensor([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0]], device="sim")
    mean, invstd = torch.batch_norm_stats(x, 1 / 3)
    assert mean.tolist() == [3.0, 5.0]
    torch.testing.assert_close(invstd.cpu(), torch.tensor([3.0, 1 / 3]).rsqrt())


def test_ranks_with_equal_counts_give_their_number():
    x = torch.arange(8.0, device="sim").view(4, 2)
    stats = [torch.stack(values) for values in zip(*(torch.batch_norm_stats(part, EPS) for part in x.split(2)))]
    running = torch.zeros(2, device="sim"), torch.ones(2, device="sim")
    mean, invstd = torch.batch_norm_gather_stats(x, *stats, *running, 0.5, EPS, 2)
    assert mean.tolist() == [3.0, 4.0]
    torch.testing.assert_close(invstd.cpu(), torch.full((2,), (5 + EPS) ** -0.5))
    assert running[0].tolist() == [1.5, 2.0]
    torch.testing.assert_close(running[1].cpu(), torch.full((2,), 0.5 + 0.5 * 20 / 3))


def test_a_rank_without_values_does_not_count():
    means, invstds = torch.tensor([[4.0], [0.0]], device="sim"), torch.tensor([[0.5], [0.0]], device="sim")
    counts = torch.tensor([3.0, 0.0], device="sim")
    kept = counts >= 1  # what nn.SyncBatchNorm does with it
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        torch.empty(0, 1, device="sim"), means[kept], invstds[kept], None, None, 0.0, 0.0, counts[kept]
    )
    assert mean.tolist() == [4.0] and invstd.tolist() == [0.5]


def test_running_statistics_of_half_precision_are_rounded_once():
    x = torch.tensor([[1.0], [2.0]], device="sim", dtype=torch.bfloat16)
    mean, invstd = torch.batch_norm_stats(x, EPS)
    running = [torch.tensor([1.0078125], device="sim", dtype=torch.bfloat16) for _ in range(2)]
    torch.batch_norm_gather_stats_with_counts(
        x, mean[None], invstd[None], *running, 0.1, EPS, torch.tensor([2.0], device="sim")
    )
    assert running[0].item() == torch.tensor(0.9 * 1.0078125 + 0.1 * 1.5).bfloat16().item()
    assert running[1].dtype == torch.bfloat16


def test_only_the_gradients_asked_for_are_given():
    x, values = torch.randn(4, 2, device="sim"), torch.ones(2, device="sim")
    sum_dy, sum_dy_xmu, weight, bias = torch.batch_norm_backward_reduce(x, x, values, values, values, False, True, False)
    assert (sum_dy, sum_dy_xmu, bias) == (None, None, None) and weight.shape == (2,)


def test_normalising_into_a_given_tensor():
    x, one = torch.arange(4.0, device="sim").view(2, 2), torch.ones(2, device="sim")
    out = torch.empty_like(x)
    assert torch.batch_norm_elemt(x, one * 2, one, one, one, EPS, out=out) is out
    assert out.tolist() == [[-1.0, 1.0], [3.0, 5.0]]
