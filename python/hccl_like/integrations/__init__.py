"""Frameworks of others on an accelerator that they do not know: ``import
hccl_like.integrations.accelerate``.

Each module of this package is for one framework and names no device: it takes the PrivateUse1
accelerator that torch knows, where there is no CUDA. The module does not import its framework. It
changes the framework right after the program imports that, and does nothing where the framework is
not installed. ``docs/frameworks.md`` lists them.

``HCCL_LIKE_INTEGRATIONS=accelerate,lightning`` loads those modules without a line in the program,
in launchers too. ``HCCL_LIKE_INTEGRATIONS=0`` leaves every framework as it is and switches the
warning of :mod:`_guard` off.
"""

from __future__ import annotations

import importlib
import logging
import os

SWITCH = "HCCL_LIKE_INTEGRATIONS"
FRAMEWORKS = ("accelerate", "deepspeed", "lightning", "ray", "torchtitan")

log = logging.getLogger(__name__)


def is_off() -> bool:
    return os.environ.get(SWITCH, "").strip() == "0"


def install() -> None:
    """At the end of ``import torch``: loads what the setting names, and watches for the rest."""
    if is_off():
        return
    names = [name.strip() for name in os.environ.get(SWITCH, "").split(",") if name.strip()]
    if unknown := sorted(set(names) - set(FRAMEWORKS)):
        log.warning(
            "%s: there is no integration %s; there are %s",
            SWITCH,
            ", ".join(unknown),
            ", ".join(FRAMEWORKS),
        )
    for name in FRAMEWORKS:
        if name in names:
            importlib.import_module(f"{__name__}.{name}")
    from hccl_like.integrations import _guard

    _guard.install()
