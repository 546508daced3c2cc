"""One warning where a framework is used that does not know the accelerator, and its integration was
not loaded.

Such a framework trains on the CPU, often a separate model on each rank, and says nothing.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import warnings

from hccl_like import _after_import, integrations
from hccl_like.torch_compat import _ours

# Integration: modules of its framework, each with what a program that trains calls first there.
_TRAINER = "trainer.connectors.accelerator_connector"
FIRST_USES = {
    "accelerate": {"accelerate.state": "PartialState.__init__"},
    "deepspeed": {"deepspeed.runtime.engine": "DeepSpeedEngine.__init__"},
    "lightning": {
        "lightning.fabric.connector": "_Connector.__init__",
        f"lightning.pytorch.{_TRAINER}": "_AcceleratorConnector.__init__",
        "lightning_fabric.connector": "_Connector.__init__",
        f"pytorch_lightning.{_TRAINER}": "_AcceleratorConnector.__init__",
    },
    "ray": {"ray.train.torch.config": "_setup_torch_process_group"},
}

_told: set[str] = set()


def install() -> None:
    for name, modules in FIRST_USES.items():
        for module, attribute in modules.items():
            _after_import.call(module, functools.partial(_watch, name, attribute))


def _watch(name: str, attribute: str, module) -> None:
    """Puts the question before the first use. A framework without that attribute is left alone."""
    *parents, last = attribute.split(".")
    owner = functools.reduce(lambda found, part: getattr(found, part, None), parents, module)
    original = getattr(owner, last, None)
    if original is None:
        return

    @functools.wraps(original)
    def first_use(*arguments, **named):
        _tell(name, original, arguments, named)
        return original(*arguments, **named)

    setattr(owner, last, first_use)


def _tell(name: str, function, arguments, named) -> None:
    if name in _told or integrations.is_off() or f"hccl_like.integrations.{name}" in sys.modules:
        return
    if os.environ.get("RANK", "0") != "0":
        return
    _told.add(name)
    try:
        asked = inspect.signature(function).bind_partial(*arguments, **named).arguments
    except TypeError:  # the call will say so
        return
    device = _ours.accelerator()
    if device is None or asked.get("cpu") or asked.get("accelerator") == "cpu":
        return
    warnings.warn(
        f"{name} does not know the device '{device}': it trains on the CPU, or with a separate "
        f"model on each rank. Add the line 'import hccl_like.integrations.{name}' to the program, "
        f"or set {integrations.SWITCH}={name} "
        f"({integrations.SWITCH}=0: no warning)",
        RuntimeWarning,
        stacklevel=3,
    )
