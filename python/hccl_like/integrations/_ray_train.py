"""What Ray pickles by name, so that its processes import this module."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import torch
from ray.air._internal import device_manager
from ray.train.torch import config

from hccl_like import _registration
from hccl_like.integrations import _apply

# The module's names may be ours already.
_Config: Any = next(
    kind for kind in config.TorchConfig.__mro__ if kind.__module__ == config.__name__
)


class DeviceManager(device_manager.CPUTorchDeviceManager):
    """For workers to which Ray gave no device that it knows."""

    def is_available(self) -> bool:
        return _apply.accelerator() is not None

    def get_devices(self) -> list[torch.device]:
        return [_apply.take_device()]  # LOCAL_RANK is set by then

    def set_device(self, device) -> None:
        torch.accelerator.set_device_index(torch.device(device).index)


def load() -> str | None:
    """In a worker, before all else; its accelerator."""
    if name := _apply.accelerator():
        device_manager.DEFAULT_TORCH_DEVICE_MANAGER_CLS = DeviceManager
        device_manager._torch_device_manager = None
    return name


@contextlib.contextmanager
def _in_the_worker():
    with config.TorchConfigContextManager():
        if isinstance(device_manager.get_torch_device_manager_by_context(), DeviceManager):
            _apply.take_device()
        yield


class Backend(config._TorchBackend):
    """Makes the group in the workers."""

    def on_start(self, worker_group, backend_config):
        known = worker_group.get_resources_per_worker()
        if (
            backend_config.asked in (None, _registration.NAME)
            and not known.get("GPU")
            and not known.get("TPU")
        ):
            if all(worker_group.execute(load)):
                backend_config = dataclasses.replace(backend_config, backend=_registration.NAME)
        super().on_start(worker_group, backend_config)


@dataclasses.dataclass
class TorchConfig(_Config):
    __doc__ = _Config.__doc__

    def __post_init__(self):
        self.asked = self.backend  # a TorchTrainer writes gloo over None

    @property
    def backend_cls(self):
        return Backend

    @property
    def train_func_context(self):
        return _in_the_worker


# Last, since it takes TorchConfig. In a worker nothing else loads it.
import hccl_like.integrations.ray  # noqa: E402, F401
