"""Lightning, Fabric and Trainer: ``import hccl_like.integrations.lightning``.

The accelerator is registered under the device's name, and ``accelerator="auto"`` finds it. DDP
wraps a model for the device, one process trains on it, and ``precision="bf16-mixed"`` autocasts on
it. The group is hccl-like's by torch's own map of default backends. For the packages ``lightning``,
``pytorch_lightning`` and ``lightning_fabric``.
"""

from __future__ import annotations

import importlib

import torch

from hccl_like import _accelerator
from hccl_like.integrations import _apply


def _indices(devices) -> list[int]:
    """What Lightning takes for ``devices``: a number, a list, or either as text; -1 for all."""
    count = _accelerator.device_count()
    if isinstance(devices, str):
        devices = (
            [int(part) for part in devices.split(",") if part.strip()]
            if "," in devices
            else int(devices)
        )
    if isinstance(devices, int):
        devices = range(count if devices == -1 else devices)
    found = list(devices)
    if bad := [index for index in found if not 0 <= index < count]:
        raise ValueError(
            f"devices={found}: there is no device {_apply.accelerator()}:{bad[0]}; "
            f"there are {count}"
        )
    return found


def _accelerator_class(base):
    class Accelerator(base):
        """The accelerator that torch knows and Lightning does not."""

        def setup_device(self, device: torch.device) -> None:
            torch.accelerator.set_device_index(device.index)

        def teardown(self) -> None:
            pass

        def get_device_stats(self, device):
            return {}

        @staticmethod
        def parse_devices(devices):
            return _indices(devices)

        @staticmethod
        def get_parallel_devices(devices):
            return [torch.device(_apply.accelerator(), index) for index in _indices(devices)]

        @staticmethod
        def auto_device_count() -> int:
            return _accelerator.device_count()

        @staticmethod
        def is_available() -> bool:
            return _apply.accelerator() is not None

        @staticmethod
        def name() -> str:
            return _apply.accelerator() or ""

    return Accelerator


def _connector(class_name: str, registry: str, device_ids: str):
    """Mends a module in which Lightning chooses accelerator, strategy and precision."""

    def mend(module) -> None:
        connector = getattr(module, class_name)
        name = _apply.accelerator()
        if name is None or name in getattr(module, registry):
            return
        getattr(module, registry).register(
            name, _accelerator_class(module.Accelerator), description=f"device type {name}"
        )

        choose = connector._choose_auto_accelerator
        connector._choose_auto_accelerator = staticmethod(
            lambda: name if (found := choose()) == "cpu" else found
        )

        @_apply.wrap(connector, "_choose_strategy")
        def choose_strategy(original, self):
            strategy = original(self)
            if (
                isinstance(strategy, module.SingleDeviceStrategy)
                and self._parallel_devices[0].type == name
            ):
                return module.SingleDeviceStrategy(device=self._parallel_devices[0])
            return strategy

        strategies = importlib.import_module(
            module.SingleDeviceStrategy.__module__.rpartition(".")[0]
        )

        @_apply.wrap(strategies.DDPStrategy, device_ids)
        def no_ids(original, self):
            """DDP takes the device from the model then, and Lightning opens no stream of CUDA."""
            return None if self.root_device.type == name else original(self)

        @_apply.wrap(module.MixedPrecision, "__init__")
        def precision(original, self, precision, device, scaler=None):
            """Lightning says cuda for all that is neither the CPU nor MPS."""
            original(self, precision, name if device == "cuda" else device, scaler)

    return mend


_fabric = _connector("_Connector", "ACCELERATOR_REGISTRY", "_determine_ddp_device_ids")
_trainer = _connector("_AcceleratorConnector", "AcceleratorRegistry", "determine_ddp_device_ids")

_apply.mend(
    "lightning",
    "2.6.5 to 2.6.6",
    {
        "lightning.fabric.connector": _fabric,
        "lightning.pytorch.trainer.connectors.accelerator_connector": _trainer,
        "lightning_fabric.connector": _fabric,
        "pytorch_lightning.trainer.connectors.accelerator_connector": _trainer,
    },
)
