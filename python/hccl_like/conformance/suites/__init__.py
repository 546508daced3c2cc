"""The suites: modules with ``load(backend, device, world_size)`` that returns classes of torch's MultiProcessTestCase.

``load`` is called once in a zygote, before any test: it may patch torch's test modules, must open no device and make no
group. A class may name its tests in ``conformance_tests``; without that, every ``test_*`` of it is run.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

from hccl_like.conformance.settings import current as settings

# Run on request only: what repeats the tests of another suite, or needs more than the wheel.
ON_REQUEST = {"retarget", "checkout"}


def names() -> list[str]:
    """The suites of this package that ``--suite all`` runs, in the order of their names."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if name not in ON_REQUEST and not name.startswith("_"))


def module_of(suite: str) -> ModuleType | Any:
    """The module of a suite of this package, or, where there is none of that name, any module that can be imported; with a
    checkout, a file of it."""
    if settings.checkout is not None:
        return importlib.import_module(f"{__name__}.checkout").File(settings.checkout, suite)
    if suite in names() or suite in ON_REQUEST:
        return importlib.import_module(f"{__name__}.{suite}")
    return importlib.import_module(suite)
