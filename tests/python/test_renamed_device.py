"""A device under a name of its vendor's, with real tensors: the simulator's library, brought by a package that calls it npux."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import slow_after_first
from test_autoload import install

# As a vendor's package does it; torch_sim.sim stands for its module of functions about devices and streams.
VENDOR = """
import torch

def autoload():
    from torch_sim import registration
    registration.find_adapter(torch.__version__)
    from torch_sim import _C, sim
    torch.utils.rename_privateuse1_backend("npux")
    torch._register_device_module("npux", sim)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)

def library_path():
    import os
    return os.environ["NPUX_PLUGIN"]
"""
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch
import torch.distributed as dist
from hccl_like import _C
from ranks import run_ranks
from test_collectives import CASES

def case_of(rank, size, case, expected):
    assert {device.type for device in dist.group.WORLD._device_types} == {"cpu", "npux"}
    assert _C.describe_device(torch.device("npux", 0)) == expected
    tensor = torch.ones(5).npux()
    assert tensor.is_npux and str(tensor.device) == "npux:0" and torch._C._get_privateuse1_backend_name() == "npux"
    dist.all_reduce(tensor)
    assert tensor.cpu().eq(size).all() and tensor.untyped_storage().is_npux
    case(rank, size, "npux")

assert not hasattr(torch, "sim")
for case in CASES:
    run_ranks(case_of, 2, case, sys.argv[2])
    print(case.__name__, flush=True)  # ranks are forked, and would say it again
"""
WAYS = {
    "with a plugin": "memory mapped by its plugin, calls in stream order",
    "without one": "memory copied to and from the host, calls wait on the host",
}


@pytest.mark.parametrize("way", slow_after_first(WAYS))
def test_collectives_are_exact_on_a_device_of_any_name(way, stripped, sim, tmp_path):
    from hccl_like import _plugins
    from test_collectives import CASES

    # The simulator's table, with nothing taken from it, under the vendor's name.
    plugin = {"NPUX_PLUGIN": stripped, "PLUGIN": _plugins.found()["sim"], "WITHOUT": "", "NAMED": "npux"}
    folder = install(tmp_path, "npux_device", VENDOR)
    if way == "with a plugin":
        entries = folder / "npux_device-1.0.dist-info" / "entry_points.txt"
        entries.write_text(entries.read_text() + "\n[hccl_like.devices]\nnpux = npux_device:library_path\n")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), WAYS[way]],
        env={**os.environ, **plugin, "TORCH_SIM": "0", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [case.__name__ for case in CASES]
