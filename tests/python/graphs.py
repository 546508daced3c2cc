"""What the tests of graphs (torch.accelerator.Graph) share."""

import contextlib

import pytest
import torch
import torch.distributed as dist

graphs = pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph came with torch 2.13")

MODES = {"mapped": {}, "discrete": {"TORCH_SIM_DISCRETE": "1"}}
DISCRETE = MODES["discrete"]


def own_stream(rank):
    torch.sim.set_device(rank)
    return torch.Stream(device=f"sim:{rank}")


@contextlib.contextmanager
def capture(graph, stream):
    with stream, graph:
        yield


def captured_sum(rank, size):
    """A stream and a graph with an all_reduce, which was replayed once."""
    stream = own_stream(rank)
    tensor = torch.ones(1000, device="sim")
    graph = torch.accelerator.Graph()
    with capture(graph, stream):
        dist.all_reduce(tensor)
    with stream:
        graph.replay()
    stream.synchronize()
    assert tensor.tolist() == [size] * 1000
    return stream, graph
