"""Mends from outside what torch's Python hard-codes for its own backends and for CUDA.

Every patch is one row of :data:`_patches.PATCHES` and one function beside it. It acts for groups of this backend (or for
the PrivateUse1 accelerator, where there is no group to look at) and otherwise calls torch's own function with the same
arguments. It is applied as soon as torch has imported the module it is about, and to the versions of torch it was
written against; elsewhere torch stays as it is. What was done is listed by ``python -m hccl_like compat``; what cannot be
mended from outside is in docs/torch-compat.md with the line to write instead.

``HCCL_LIKE_TORCH_COMPAT=0`` leaves torch as it is; a list of names leaves those patches out.
"""

from __future__ import annotations

import importlib

import torch  # first, since it installs the patches while it is imported

from hccl_like.torch_compat import _apply, _patches


def listing() -> list[tuple[str, str, str, str]]:
    """Every patch as (name, state, versions of torch it is for, what is wrong without it)."""
    return [(patch.name, _apply.state(patch), patch.versions(), patch.wrong) for patch in _patches.PATCHES]


def load() -> None:
    """Imports every module that a patch waits for."""
    for patch in _patches.PATCHES:
        if patch.fits(torch.__version__):
            importlib.import_module(patch.module)
