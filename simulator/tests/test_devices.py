"""Several devices, and torch.accelerator."""

import pytest
import torch


def test_the_current_device_is_where_tensors_go():
    assert torch.sim.current_device() == 0
    torch.sim.set_device(2)
    assert torch.ones(1, device="sim").device == torch.device("sim:2")
    with torch.sim.device(1):
        assert torch.empty(1, device="sim").device == torch.device("sim:1")
        with torch.sim.device(None), torch.sim.device(-1):
            assert torch.sim.current_device() == 1
    with torch.sim.device_of(torch.ones(1, device="sim:3")):
        assert torch.sim.current_device() == 3
    with torch.sim.device("sim:4"):
        assert torch.accelerator.current_device_index() == 4
    assert torch.sim.current_device() == 2


@pytest.mark.parametrize("device", [99, "sim:99", torch.device("sim", 99)])
def test_devices_that_are_not_there_are_refused(device):
    with pytest.raises((RuntimeError, ValueError), match="no device 99"):
        torch.sim.set_device(device)


def test_operators_run_on_the_device_of_their_arguments():
    x = torch.ones(3, device="sim:3")
    y = (x + 1).nonzero()
    assert y.device == (x * 2).device == torch.device("sim:3")
    assert torch.sim.current_device() == 0


def test_devices_work_side_by_side(gate):
    gate.close(torch.sim.default_stream(0))
    for index in range(1, 4):
        with torch.sim.device(index):
            torch.sim._sleep(1)
        torch.sim.synchronize(index)
    assert not torch.sim.default_stream(0).query()


def test_current_streams_are_kept_for_each_device():
    side = torch.sim.Stream(1)
    with torch.sim.stream(side):
        assert torch.sim.current_device() == 1
        assert torch.sim.current_stream(0) == torch.sim.default_stream(0)
        assert torch.sim.current_stream(1) == side
    assert torch.sim.current_device() == 0


def test_memory_is_counted_for_each_device():
    before = torch.sim.memory_allocated("sim:2")
    x = torch.empty(512, dtype=torch.uint8, device="sim:2")
    assert torch.sim.memory_allocated(2) == before + 512 and x.is_sim


def test_torch_accelerator():
    acc = torch.accelerator
    assert acc.is_available() and acc.current_accelerator() == torch.device("sim")
    with acc.device_index(1):
        assert torch.sim.current_device() == 1
    acc.set_device_index(2)
    assert acc.current_device_index() == 2
    stream = torch.Stream("sim:2")
    acc.set_stream(stream)
    assert acc.current_stream() == stream
    event = stream.record_event()
    event.synchronize()
    acc.synchronize()
    assert torch.float8_e5m2 in acc.get_device_capability()["supported_dtypes"]
    assert acc.memory.get_memory_info(2)[0] > 0


def test_properties():
    properties = torch.sim.get_device_properties(0)
    assert properties.total_memory == torch.sim.mem_get_info(0)[1]
    assert torch.sim.get_device_name(1) == properties.name == "Simulated accelerator in host memory"
    assert torch.sim.get_device_capability() == (1, 0)
    assert torch.sim.is_bf16_supported() and torch.sim.is_initialized()
    assert torch.get_device_module("sim") is torch.sim and torch.get_device_module() is torch.sim
    with pytest.raises(ValueError):
        torch.sim.get_device_properties(8)


def test_the_default_device_can_be_sim():
    with torch.device("sim:1"):
        assert torch.zeros(2).device == torch.device("sim:1")
        assert torch.nn.Linear(2, 2).weight.device == torch.device("sim:1")
