"""What a vendor needs to write a device plugin or a transport: headers, a CMake package, the contract, a template.

``python -m hccl_like.sdk --include-dir`` and ``--cmake-dir`` print where they are; docs/plugin-guide.md says the rest. Nothing here
imports torch.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).resolve().parent

__all__ = ["cmake_dir", "include_dir"]


def include_dir() -> str:
    """For ``#include "device/plugin.h"`` and ``#include "transport/module.h"``."""
    return str(_FOLDER / "include" / "hccl_like")


def cmake_dir() -> str:
    """``find_package(hccl_like)`` finds the package there: ``cmake -Dhccl_like_DIR=$(python -m hccl_like.sdk --cmake-dir)``."""
    return str(_FOLDER / "cmake")
