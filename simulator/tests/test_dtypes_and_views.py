"""All element types, all shapes, view operators, in-place and out= operators."""

import pytest
import torch

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
    torch.complex32, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_goes_there_and_back(dtype):
    x = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    there = x.to("sim")
    assert there.dtype == dtype and there.is_sim
    assert torch.equal(there.cpu().view(torch.uint8), x.view(torch.uint8))
    assert torch.equal(there.clone().cpu().view(torch.uint8), x.view(torch.uint8))
    assert torch.equal(there.to(torch.float64).cpu() if not dtype.is_complex else there.real.double().cpu(),
                       torch.tensor([0.0, 1, 1, 0, 1], dtype=torch.float64))  # fmt: skip
    assert there.zero_().cpu().view(torch.uint8).max() == 0


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (7,), (2, 3, 5), (1, 1, 1, 1)])
def test_every_shape_works(shape):
    x = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    there = x.to("sim")
    assert torch.equal((there * 2 + 1).cpu(), x * 2 + 1)
    assert torch.equal(there.sum().cpu(), x.sum())
    assert torch.equal(torch.cat([there.flatten()] * 2).cpu(), torch.cat([x.flatten()] * 2))


def test_non_contiguous_tensors_are_seen_as_they_are():
    x = torch.arange(24.0).view(4, 6)
    there = x.to("sim")
    for view in (lambda t: t.t(), lambda t: t[1:3, ::2], lambda t: t[:, 1], lambda t: t.expand(2, 4, 6)):
        assert torch.equal((view(there) + 1).cpu(), view(x) + 1)
        assert torch.equal(view(there).contiguous().cpu(), view(x).contiguous())
        assert torch.equal(view(there).cpu(), view(x))


def test_channels_last_stays_so():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    there = x.to("sim")
    assert there.stride() == x.stride()
    assert (there + 1).stride() == (x + 1).stride()


def test_views_share_memory_with_what_they_view():
    x = torch.zeros(2, 6, device="sim")
    x.view(12)[3] = 1
    x.t()[1, 1] = 2
    x.unfold(1, 2, 2)[0, 0, 0] = 3
    x.as_strided((2,), (6,), 5).add_(4)
    x.diagonal().mul_(10)
    x.view(torch.int32)[1, 0] = 0x40A00000  # 5.0
    assert x.tolist() == [[30, 0, 0, 1, 0, 4], [5, 20, 0, 0, 0, 4]]


def test_complex_views_write_through():
    x = torch.zeros(3, dtype=torch.complex64, device="sim")
    torch.view_as_real(x)[:, 1] = torch.tensor([1.0, 2, 3])
    x.real.add_(5)
    x.imag[0] = -1
    assert x.tolist() == [5 - 1j, 5 + 2j, 5 + 3j]
    y = torch.zeros(3, 2, device="sim")
    torch.view_as_complex(y).add_(2 + 4j)
    assert y.tolist() == [[2, 4]] * 3
    assert x.conj().tolist() == [5 + 1j, 5 - 2j, 5 - 3j]
    assert torch.vdot(x, x.conj()).item() == complex(torch.vdot(x.cpu(), x.cpu().conj()))


def test_in_place_operators_change_the_tensor_itself():
    x = torch.arange(6.0, device="sim")
    place, version = x.data_ptr(), x._version
    y = x.mul_(2).add_(1).clamp_(max=8)
    assert y is x and x.data_ptr() == place and x._version > version
    assert x.tolist() == [1, 3, 5, 7, 8, 8]
    x[2:4] = -1
    x[torch.tensor([0, 5])] = 9  # host indices are allowed, as on other accelerators
    x.masked_fill_(x == 3, 4)
    x.index_add_(0, torch.tensor([1, 1], device="sim"), torch.ones(2, device="sim"))
    assert x.tolist() == [9, 6, -1, -1, 8, 9]


def test_out_operators_write_to_the_tensor_given():
    x = torch.arange(6.0, device="sim")
    out = torch.empty(6, device="sim")
    assert torch.add(x, 1, out=out) is out
    assert out.tolist() == [1, 2, 3, 4, 5, 6]
    strided = torch.zeros(6, 2, device="sim")
    torch.mul(x, 2, out=strided[:, 1])
    assert strided.tolist() == [[0, 2 * i] for i in range(6)]


def test_an_out_tensor_that_is_too_small_is_made_larger():
    small = torch.empty(0, device="sim")
    before = torch.sim.memory_allocated()
    torch.mm(torch.ones(20, 30, device="sim"), torch.ones(30, 10, device="sim"), out=small)
    assert small.shape == (20, 10) and small.unique().tolist() == [30]
    assert small.is_sim and small.untyped_storage().device == torch.device("sim:0")
    values, indices = torch.empty(0, device="sim"), torch.empty(0, dtype=torch.int64, device="sim")
    torch.sort(torch.tensor([3.0, 1, 2], device="sim"), out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([1, 2, 3], [1, 2, 0])
    del small, values, indices
    assert torch.sim.memory_allocated() <= before


def test_overlap_is_refused_as_on_the_host():
    x = torch.arange(6.0, device="sim")
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.add(x[:5], 1, out=x[1:])


def test_set_shares_a_storage():
    x = torch.arange(6.0, device="sim")
    y = torch.empty(0, device="sim").set_(x.untyped_storage())
    z = torch.empty(0, device="sim").set_(x)
    w = torch.empty(0, device="sim").set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    x.add_(1)
    assert y.tolist() == z.tolist() == [1, 2, 3, 4, 5, 6]
    assert w.tolist() == [[2, 3], [4, 5]]
    assert y.set_().numel() == 0 and y.is_sim


def test_data_of_a_parameter_can_change_device():
    p = torch.nn.Parameter(torch.ones(3))
    p.data = torch.full((3,), 2.0, device="sim")
    assert p.is_sim and (p * 2).tolist() == [4, 4, 4]
    p.data = torch.zeros(2)
    assert not p.is_sim and p.tolist() == [0, 0]


def test_mixed_devices_are_an_error():
    with pytest.raises(RuntimeError, match="same device.*sim:0 and cpu"):
        torch.ones(3, device="sim") + torch.ones(3)
    with pytest.raises(RuntimeError, match="same device.*sim:0 and sim:1"):
        torch.ones(3, device="sim:0") + torch.ones(3, device="sim:1")
    assert (torch.ones(3, device="sim") + torch.tensor(2.0)).tolist() == [3, 3, 3]


def test_a_device_that_is_not_there_is_an_error():
    with pytest.raises(RuntimeError, match="no device 63"):
        torch.ones(3, device="sim:63")


def test_quantised_and_nested_tensors_are_refused_clearly():
    with pytest.raises(RuntimeError, match="use layout=torch.jagged"):
        torch._nested_tensor_from_mask(torch.ones(2, 3, 4, device="sim"), torch.ones(2, 3, dtype=torch.bool, device="sim"))
    with pytest.raises(RuntimeError, match="of quantised ones none"):
        torch.quantize_per_tensor(torch.ones(3, device="sim"), 0.1, 0, torch.qint8)


def test_indexing_and_printing():
    x = torch.arange(12, device="sim").view(3, 4)
    assert x[x > 6].tolist() == [7, 8, 9, 10, 11]
    assert x[[0, 2], [1, 3]].tolist() == [1, 11]
    assert [int(v) for v in x[0]] == [0, 1, 2, 3]
    assert repr(torch.ones(2, device="sim")) == "tensor([1., 1.], device='sim:0')"


def test_generated_methods():
    x = torch.ones(2).sim()
    assert x.is_sim and x.cpu().sim(1).device == torch.device("sim:1")
    assert torch.nn.Linear(2, 2).sim().weight.is_sim
    assert x.untyped_storage().is_sim
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 1), [3, 1])
    assert packed.sim().is_sim


def test_autograd():
    x = torch.tensor([1.0, 2, 3], device="sim", requires_grad=True)
    (x.pow(3).sum() + x.view(3, 1).expand(3, 2).sum()).backward()
    assert x.grad.is_sim and x.grad.tolist() == [5, 14, 29]
    assert torch.autograd.gradcheck(lambda t: torch.nn.functional.softplus(t).cumsum(0), x.detach().double().requires_grad_())


def test_complex_autograd():
    z = torch.tensor([1 + 2j, 3 - 1j], device="sim", requires_grad=True)
    (z * z.conj()).real.sum().backward()
    assert z.grad.tolist() == [2 + 4j, 6 - 2j]


def test_custom_operators_with_a_host_kernel_work():
    @torch.library.custom_op("sim_test::twice", mutates_args=(), device_types="cpu")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)  # sees a host tensor

    y = twice(torch.ones(3, device="sim"))
    assert y.is_sim and y.tolist() == [2, 2, 2]


def test_inference_mode():
    with torch.inference_mode():
        x = torch.ones(4, device="sim")
        x.view(2, 2).add_(1)
        assert x.tolist() == [2] * 4
        assert torch.ones(100_000, device="sim").fill_(2).sum().item() == 200_000


def test_deterministic_mode_shows_no_old_memory():
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, device="sim").isnan().all()
        assert torch.empty(2, dtype=torch.int32, device="sim").resize_(5)[2:].tolist() == [2**31 - 1] * 3
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("device", ["sim:0", "sim:1"])
def test_copies_on_write_are_made_when_written(device):
    x = torch.arange(4.0, device=device)
    y = torch._lazy_clone(x)
    y.add_(1)
    assert x.tolist() == [0, 1, 2, 3] and y.tolist() == [1, 2, 3, 4]
    assert y.untyped_storage().device == torch.device(device)


def test_function_transforms():
    from torch.func import grad, jacrev, vmap

    x = torch.arange(6.0, device="sim").view(2, 3)
    assert torch.equal(vmap(grad(lambda t: (t**2).sum()))(x), 2 * x)
    assert torch.equal(jacrev(lambda t: 3 * t)(x[0]), 3 * torch.eye(3, device="sim"))


def test_ahead_of_time_compilation():
    f = torch.compile(lambda x: (x @ x.t()).relu().sum(), backend="aot_eager")
    x = torch.arange(6.0, device="sim").view(2, 3).requires_grad_()
    f(x).backward()
    assert x.grad.tolist() == [[6, 10, 14], [6, 10, 14]]
