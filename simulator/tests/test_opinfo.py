"""A sweep over torch's own catalogue of operators: on sim each gives the host's result, bit for bit, and its gradients."""

import os

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

# Their results are random, or not determined by their arguments (uninitialised memory).
NOT_DETERMINED = {
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric", "log_normal",
    "multinomial", "new_empty", "new_empty_strided", "nn.functional.multi_head_attention_forward", "nn.functional.alpha_dropout", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention", "normal", "pca_lowrank", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "svd_lowrank", "torch.ops.aten._safe_softmax.default", "uniform",
}  # fmt: skip

# Python code that does something else for each device; operators that name their device, or take host tensors; arguments that are views of a
# larger storage, which is not moved along.
NOT_COMPARABLE = {"tensor_split", "nn.functional.linear_cross_entropy", "to", "as_strided.partial_views"}

DTYPES = [torch.float32, torch.complex64, torch.int64, torch.bool, torch.bfloat16]
SAMPLES = int(os.environ.get("TORCH_SIM_TEST_SAMPLES", "3"))


def swept():
    for op in op_db:
        name = op.formatted_name if not op.variant_test_name else f"{op.name}.{op.variant_test_name}"
        if op.name in NOT_DETERMINED or {op.name, name} & NOT_COMPARABLE or "jiterator" in op.name or "sparse" in op.name:
            continue
        yield pytest.param(op, id=name)


def to_sim(value):
    return tree_map(lambda x: x.detach().to("sim").requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x, value)


def on_sim(kwargs):
    return {k: torch.device("sim") if k == "device" else v for k, v in to_sim(kwargs).items()}


def assert_same(host, sim):
    host, sim = tree_flatten(host)[0], tree_flatten(sim)[0]
    assert len(host) == len(sim)
    for a, b in zip(host, sim):
        if isinstance(a, torch.Tensor):
            assert b.device.type == "sim"
            assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
            torch.testing.assert_close(b.cpu(), a, rtol=0, atol=0, equal_nan=True)
        else:
            assert a == b or a != a


def differentiable(outputs):
    outputs = [x for x in tree_flatten(outputs)[0] if isinstance(x, torch.Tensor) and x.requires_grad]
    return [x.abs() if x.is_complex() else x for x in outputs if x.numel() > 0]


def gradients(outputs, inputs):
    inputs = [x for x in tree_flatten(inputs)[0] if isinstance(x, torch.Tensor) and x.requires_grad]
    outputs = differentiable(outputs)
    if not outputs or not inputs:
        return []
    return torch.autograd.grad([x.double().sum() for x in outputs], inputs, allow_unused=True)


@pytest.mark.slow
@pytest.mark.parametrize("op", swept())
def test_operator_gives_the_host_result(op):
    dtypes = [dtype for dtype in DTYPES if dtype in op.dtypes][:2]
    for dtype in dtypes:
        requires_grad = op.supports_autograd and dtype.is_floating_point and dtype in op.backward_dtypes
        for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=requires_grad)):
            if number == SAMPLES:
                break
            sim_args = to_sim((sample.input, *sample.args))
            sim_kwargs = on_sim(sample.kwargs)
            torch.manual_seed(0)
            try:
                host = op(sample.input, *sample.args, **sample.kwargs)
            except Exception as error:
                with pytest.raises(type(error)):
                    op(*sim_args, **sim_kwargs)
                continue
            sim = op(*sim_args, **sim_kwargs)
            assert_same(sample.output_process_fn_grad(host), sample.output_process_fn_grad(sim))
            if requires_grad:
                host_gradients = gradients(host, (sample.input, sample.args, sample.kwargs))
                assert_same(host_gradients, gradients(sim, (*sim_args, sim_kwargs)))
