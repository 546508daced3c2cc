"""torch.autocast("sim") really casts, by torch's own lists."""

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_matrix_products_run_in_the_lower_type(dtype):
    x, w = torch.randn(3, 4, device="sim"), torch.randn(5, 4, device="sim")
    with torch.autocast("sim", dtype=dtype):
        y = torch.nn.functional.linear(x, w)
        assert y.dtype == dtype
        assert (x @ w.t()).dtype == dtype
        assert torch.nn.functional.softmax(y, 0).dtype == torch.float32
        assert y.sum().dtype == torch.float32
        assert torch.cat([x, y[:, :4]]).dtype == torch.float32
        assert (x + 1).dtype == torch.float32
        with torch.autocast("sim", enabled=False):
            assert (x @ w.t()).dtype == torch.float32
    assert torch.equal(y, torch.nn.functional.linear(x.to(dtype), w.to(dtype)))


def test_it_is_off_outside():
    assert not torch.is_autocast_enabled("sim")
    with torch.autocast("sim", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("sim") and torch.get_autocast_dtype("sim") == torch.bfloat16


def test_gradients_are_those_of_the_parameters_type():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).sim()
    with torch.autocast("sim", dtype=torch.bfloat16):
        loss = model(torch.ones(2, 4, device="sim")).float().square().mean()
    loss.backward()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())


def test_the_device_tells_which_types():
    assert torch.sim.get_amp_supported_dtype() == [torch.bfloat16, torch.float16]
    assert torch.amp.is_autocast_available("sim")


def test_binary_cross_entropy_is_refused():
    with torch.autocast("sim", dtype=torch.float16), pytest.raises(RuntimeError, match="with_logits"):
        torch.nn.functional.binary_cross_entropy(torch.rand(3, device="sim"), torch.rand(3, device="sim"))


def test_the_grad_scaler_skips_steps_that_overflow():
    p = torch.nn.Parameter(torch.ones(2, device="sim"))
    optimiser = torch.optim.SGD([p], lr=1.0)
    scaler = torch.amp.GradScaler("sim", init_scale=4.0)
    scaler.scale((p * torch.tensor([1.0, float("inf")], device="sim")).sum()).backward()
    scaler.step(optimiser)
    scaler.update()
    assert p.tolist() == [1, 1] and scaler.get_scale() == 2.0
    optimiser.zero_grad()
    scaler.scale(p.sum()).backward()
    scaler.step(optimiser)
    scaler.update()
    assert p.tolist() == [0, 0]
