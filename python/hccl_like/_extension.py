"""Loads the C++ extension once, and says in a sentence why if it cannot be."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from types import ModuleType

import torch

# c10d's C++ interface changes between minor versions of torch, so an extension fits the one it was built for.
BUILT_FOR_TORCH = (2, 13)


def versions() -> dict[str, str]:
    """See :func:`hccl_like.version`."""
    try:
        own = importlib.metadata.version("hccl-like")
    except importlib.metadata.PackageNotFoundError:
        own = "not installed"
    return {
        "hccl-like": own,
        "built for torch": ".".join(map(str, BUILT_FOR_TORCH)),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }


def problem() -> str | None:
    """Why the extension cannot be loaded; None if it can."""
    try:
        load()
    except ImportError as error:
        return str(error)
    return None


@functools.cache
def load() -> ModuleType:
    """The extension module. Raises ImportError with a sentence that says what to do."""
    running = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if running != BUILT_FOR_TORCH:
        wanted = ".".join(map(str, BUILT_FOR_TORCH))
        raise ImportError(
            f"hccl-like was built for torch {wanted} and this is torch {torch.__version__}: "
            f"install the matching one with 'pip install \"torch=={wanted}.*\"', or build hccl-like again for this torch"
        )
    try:
        from hccl_like import _C
    except ImportError as error:
        raise ImportError(
            f"hccl-like's extension could not be loaded: {error}. "
            "Build and install it with 'pip install --no-build-isolation .' in its source folder"
        ) from error
    return _C
