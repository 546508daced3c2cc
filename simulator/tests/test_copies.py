"""Copies between host and device, between devices, and pinned memory."""

import pytest
import torch

from conftest import not_strict


def test_pinned_memory_is_known_as_such():
    x = torch.empty(1000, pin_memory=True)
    assert x.is_pinned() and x[500:].is_pinned()
    assert not torch.empty(1000).is_pinned()
    assert torch.arange(5).pin_memory().is_pinned()
    assert not torch.ones(3, device="sim").is_pinned()


@pytest.mark.parametrize("count", [1, 100_001])
def test_pinned_copies_go_on_without_the_host(count, gate):
    source = torch.arange(count, dtype=torch.float32).pin_memory()
    back = torch.empty(count, pin_memory=True)
    gate.close()
    there = source.to("sim", non_blocking=True)
    back.copy_(there, non_blocking=True)
    assert not torch.sim.current_stream().query()
    gate.open()
    torch.sim.synchronize()
    assert torch.equal(back, source)


@not_strict
def test_pageable_copies_are_done_when_they_return():
    torch.sim._sleep(50)
    x = torch.arange(1000.0)
    there = x.to("sim", non_blocking=True)
    x.fill_(-1)
    assert torch.equal(there.cpu(), torch.arange(1000.0))


def test_blocking_copies_from_pinned_memory_are_done_when_they_return():
    x = torch.arange(1000.0).pin_memory()
    torch.sim._sleep(50)
    there = x.to("sim")
    x.fill_(-1)
    assert torch.equal(there.cpu(), torch.arange(1000.0))


def test_pinned_memory_freed_during_a_copy_is_not_reused_yet(gate):
    there = torch.empty(1 << 20, dtype=torch.uint8, device="sim")
    source = torch.full((1 << 20,), 3, dtype=torch.uint8).pin_memory()
    place = source.data_ptr()
    gate.close()
    there.copy_(source, non_blocking=True)
    del source
    other = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
    assert other.data_ptr() != place
    other.fill_(9)
    gate.open()
    torch.sim.synchronize()
    assert there.unique().tolist() == [3]
    assert place in [x.data_ptr() for x in [torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True) for _ in range(8)]]


def test_pinned_memory_may_be_freed_inside_a_host_function():
    held = [torch.empty(5000, pin_memory=True)]
    there = torch.ones(5000, device="sim")
    held[0].copy_(there, non_blocking=True)
    torch.sim.launch_host_func(torch.sim.current_stream(), held.clear)
    torch.sim.synchronize()
    assert held == []


def test_copies_convert_types_and_layouts_in_order():
    x = torch.arange(12.0).view(3, 4)
    there = torch.empty(4, 3, dtype=torch.int64, device="sim")
    there.copy_(x.t())
    assert torch.equal(there.cpu(), x.t().long())
    pinned = torch.empty(3, 4, dtype=torch.float64, pin_memory=True)
    pinned.copy_(there.t(), non_blocking=True)
    torch.sim.synchronize()
    assert torch.equal(pinned, x.double())


def test_copies_broadcast():
    there = torch.zeros(3, 4, device="sim")
    there.copy_(torch.arange(4.0))
    assert there.cpu().tolist() == [[0, 1, 2, 3]] * 3
    there.copy_(torch.tensor(5.0, device="sim"))
    assert there.cpu().tolist() == [[5] * 4] * 3


def test_empty_copies_do_nothing():
    assert torch.empty(0, 3).to("sim").cpu().shape == (0, 3)


def test_conjugate_and_negative_views_are_copied_as_what_they_mean():
    x = torch.randn(5, dtype=torch.complex64)
    assert torch.equal(x.to("sim").conj().cpu(), x.conj())
    assert torch.equal(x.conj().to("sim").cpu(), x.conj().resolve_conj())
    assert torch.equal(x.to("sim").conj().imag.cpu(), x.conj().imag)
    there = torch.empty(5, dtype=torch.complex64, device="sim")
    there.copy_(x.to("sim").conj())
    assert torch.equal(there.cpu(), x.conj().resolve_conj())


def test_copies_between_devices_wait_for_both_sides(gate, second_gate):
    x = torch.arange(100_000.0, device="sim:0")
    y = torch.empty(100_000, device="sim:1")
    gate.close(torch.sim.default_stream(0))
    second_gate.close(torch.sim.default_stream(1))
    x.fill_(2)
    y.fill_(1)
    y.copy_(x)
    x.fill_(3)
    second_gate.open()
    gate.open()
    assert y.device == torch.device("sim:1")
    assert y.unique().tolist() == [2]
    assert x.to("sim:1").to("sim:0").device == torch.device("sim:0")


def test_the_loader_pins_batches():
    data = torch.utils.data.TensorDataset(torch.arange(10.0))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert batch.is_pinned()
