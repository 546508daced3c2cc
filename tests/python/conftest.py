import pytest
import torch


def has_simulator():
    return hasattr(torch, "sim")


@pytest.fixture(params=["cpu", "sim"])
def device(request):
    """The kind of device that tensors are on, as ranks name it."""
    if request.param == "sim" and not has_simulator():
        pytest.skip("the simulated accelerator is not installed: pip install ./simulator")
    return request.param


@pytest.fixture(params=["shm", "tcp"])
def transport(request):
    """The environment that makes ranks use one transport only."""
    return {"HCCL_LIKE_TRANSPORTS": request.param}


@pytest.fixture
def sim():
    if not has_simulator():
        pytest.skip("the simulated accelerator is not installed: pip install ./simulator")
    return "sim"
