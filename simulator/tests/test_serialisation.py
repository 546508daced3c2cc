"""torch.save and torch.load, pickle, deepcopy."""

import copy
import io
import pickle

import pytest
import torch


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("device", ["sim:0", "sim:1"])
def test_tensors_come_back_to_their_device(device):
    x = torch.arange(5.0, device=device)
    back = torch.load(saved(x))
    assert back.device == torch.device(device) and back.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("location", ["cpu", "sim:1", torch.device("sim:2"), {"sim:0": "sim:3"}, lambda storage, _: storage])
def test_they_can_be_loaded_elsewhere(location):
    back = torch.load(saved(torch.arange(5.0, device="sim")), map_location=location, weights_only=False)
    expected = location if isinstance(location, (str, torch.device)) else "sim:3" if isinstance(location, dict) else "cpu"
    assert back.device == torch.device(expected) and back.tolist() == [0, 1, 2, 3, 4]


def test_host_tensors_can_be_loaded_to_the_device():
    assert torch.load(saved(torch.ones(2)), map_location="sim").device == torch.device("sim:0")


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(RuntimeError, match="SIM device 63"):
        torch.load(saved(torch.ones(2)), map_location="sim:63")


def test_views_still_share_after_loading():
    x = torch.zeros(6, device="sim")
    a, b = torch.load(saved([x, x[2:4]]))
    b.fill_(1)
    assert a.tolist() == [0, 0, 1, 1, 0, 0]


def test_modules_and_optimisers_are_saved_and_loaded():
    model = torch.nn.Linear(3, 2).sim()
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, device="sim")).sum().backward()
    optimiser.step()
    state = torch.load(saved({"model": model.state_dict(), "optimiser": optimiser.state_dict()}))
    other = torch.nn.Linear(3, 2).sim()
    other.load_state_dict(state["model"])
    torch.optim.Adam(other.parameters()).load_state_dict(state["optimiser"])
    assert torch.equal(other.weight, model.weight)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64, torch.int64])
def test_pickle_and_deepcopy(dtype):
    x = torch.tensor([[1, 0], [0, 1]], dtype=dtype, device="sim")
    for back in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert back.device == x.device and torch.equal(back, x) and back.data_ptr() != x.data_ptr()


def test_saving_waits_for_queued_work():
    x = torch.zeros(100_000, device="sim")
    torch.sim._sleep(50)
    x.fill_(3)
    assert torch.load(saved(x)).min().item() == 3


def test_storages():
    storage = torch.UntypedStorage(16, device="sim")
    storage.fill_(7)
    assert storage.device == torch.device("sim:0") and storage.cpu().tolist() == [7] * 16
    assert storage.clone().cpu().tolist() == [7] * 16


def test_a_tensor_sent_to_another_process_is_refused_clearly():
    pipe = torch.multiprocessing.SimpleQueue()
    with pytest.raises(RuntimeError, match=r"send tensor.cpu\(\)"):
        pipe.put(torch.ones(2, device="sim"))
    pipe.put(torch.arange(3))  # the host's go as ever
    assert pipe.get().tolist() == [0, 1, 2]


def test_other_libraries_get_no_device_memory():
    x = torch.ones(2, device="sim")
    with pytest.raises(TypeError, match="to copy the tensor to host memory first"):
        x.numpy()
    with pytest.raises(ValueError, match="sim"):
        x.__dlpack_device__()
