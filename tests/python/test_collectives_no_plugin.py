"""A device that nobody wrote a plugin for is served through torch's own interfaces alone: the same results, on the host."""

import pytest
import torch
import torch.distributed as dist

from ranks import make_store, run_ranks
from test_collectives import CASES


def without_plugin(rank, size, listener, case):
    from hccl_like import _plugins

    _plugins.register = lambda extension: None
    dist.init_process_group("hccl-like", store=make_store(rank, listener), rank=rank, world_size=size)
    from hccl_like import _C

    assert _C.describe_device(torch.device("sim", 0)) == "memory copied to and from the host, calls wait on the host"
    case(rank, size, "sim")
    dist.destroy_process_group()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_gives_exact_results(case, size, sim):
    run_ranks(without_plugin, size, case, group=False)
