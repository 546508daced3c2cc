"""Loads the C++ extension once, and says in a sentence why if it cannot be."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from types import ModuleType

import torch

from hccl_like import _adapters

_NAME = "hccl_like._C"


def version() -> str:
    """Of this package, with the revision of its sources."""
    try:
        from hccl_like._version import VERSION
    except ImportError:  # not built
        try:
            return importlib.metadata.version("hccl-like")
        except importlib.metadata.PackageNotFoundError:
            return "not installed"
    return VERSION


def versions() -> dict[str, str]:
    """See :func:`hccl_like.version`."""
    return {
        "hccl-like": version(),
        "built for torch": ", ".join(_adapters.built_for()) or "none",
        "adapter": _adapters.where(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }


def problem() -> str | None:
    """Why the extension cannot be loaded; None if it can, perhaps after it has been compiled for this torch."""
    try:
        if _adapters.exists():
            load()
    except ImportError as error:
        return str(error)
    return None


@functools.cache
def load() -> ModuleType:
    """The extension module. Raises ImportError with a sentence that says what to do."""
    path = _adapters.find()
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(path))
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    assert spec is not None  # a loader was given
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise ImportError(
            f"hccl-like's extension could not be loaded: {error}. "
            "Build and install it with 'pip install .' in its source folder"
        ) from error
    sys.modules[_NAME] = module
    setattr(sys.modules["hccl_like"], "_C", module)
    return module
