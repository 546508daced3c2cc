"""Plugins that are built for a test, and ranks whose simulator has one that can do less: stripped_plugin.c, by the fixture `stripped`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch.distributed as dist

from ranks import make_store, run_ranks

ROOT = Path(__file__).resolve().parents[2]


def build(source, target, *flags):
    """The library made from a C file, or skips."""
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        pytest.skip(f"building a plugin takes {compiler}")
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{ROOT}", str(source), "-o", str(target), *flags], check=True)
    return str(target)


def _with_plugin(rank, size, listener, library, case, *arguments):
    from hccl_like import _plugins

    _plugins.found = lambda: {"sim": library} if library else {}
    dist.init_process_group("hccl-like", store=make_store(rank, listener), rank=rank, world_size=size)
    result = case(rank, size, *arguments)
    if dist.is_initialized():
        dist.destroy_process_group()
    return result


def run(case, size, library, without, *arguments, environment=None, timeout=60, hosts=None):
    """case(rank, size, *arguments) with the plugin `library` (None: with none), `without` what stripped_plugin.c calls so."""
    from hccl_like import _plugins

    environment = {"PLUGIN": _plugins.found()["sim"], "WITHOUT": without} | (environment or {})
    return run_ranks(
        _with_plugin, size, library, case, *arguments, group=False, environment=environment, timeout=timeout, hosts=hosts
    )
