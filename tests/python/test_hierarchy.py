"""Algorithms that know which ranks share a host, between hosts that are network namespaces."""

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks
from test_collectives import every_collective

CASES = {
    "allreduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "allgather": "all_gather",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "barrier": "barrier",
}
ALGORITHMS = {
    "allreduce": ["leaders_one_shot", "leaders_doubling", "rails_direct", "rails_rabenseifner", "rails_ring"],
    "reduce_scatter": ["leaders_direct", "rails_direct", "rails_ring"],
    "allgather": ["leaders_bruck", "rails_direct", "rails_ring"],
    "broadcast": ["leaders_binomial", "rails_chain", "rails_scatter_allgather"],
    "reduce": ["leaders_binomial", "rails_chain"],
    "barrier": ["leaders"],
}
# Each run takes the n-th algorithm of every collective.
ROUNDS = [
    ";".join(f"{collective}:{names[min(n, len(names) - 1)]}" for collective, names in ALGORITHMS.items())
    for n in range(max(map(len, ALGORITHMS.values())))
]


@pytest.mark.slow
@pytest.mark.parametrize("layout", [[0, 0, 1, 1], [0, 1, 0], [0, 1, 1, 1, 2]], ids=str)
@pytest.mark.parametrize("algorithms", ROUNDS, ids=range(len(ROUNDS)))
def test_every_collective_is_exact(algorithms, layout, make_hosts):
    environment = {"HCCL_LIKE_ALGO": algorithms, "HCCL_LIKE_SLICE_BYTES": "4096"}
    run_ranks(every_collective, len(layout), hosts=make_hosts(max(layout) + 1), layout=layout, environment=environment)


def all_reduced(rank, size, hosts, many, calls):
    tensor = torch.ones(many)
    dist.all_reduce(tensor)  # connects
    dist.barrier()
    before = [host.counters()["tx_bytes"] for host in hosts]
    dist.barrier()
    for _ in range(calls):
        dist.all_reduce(tensor)
    dist.barrier()
    return [host.counters()["tx_bytes"] - count for host, count in zip(hosts, before)]


@pytest.mark.parametrize("algorithm", ["", "all_reduce:rails_direct", "all_reduce:rails_ring", "all_reduce:rails_rabenseifner"])
@pytest.mark.parametrize("layout", [[0, 0, 1, 1], [0, 1, 0, 1]], ids=["neighbours", "in turns"])
def test_no_byte_leaves_a_host_that_need_not(layout, algorithm, make_hosts):
    """Of N bytes an allreduce between two hosts must move N/2 out of each in the first half, and N/2 in the second."""
    hosts = make_hosts(2, mtu=9000)
    many, calls = 4 << 20, 2
    environment = {"HCCL_LIKE_ALGO": algorithm} if algorithm else {}
    sent = run_ranks(all_reduced, 4, hosts, many, calls, hosts=hosts, layout=layout, environment=environment)[0]
    least = calls * many * 4
    for host in sent:
        assert least <= host <= 1.05 * least


def test_flat_algorithms_move_more(make_hosts):
    hosts = make_hosts(2, mtu=9000)
    many = 4 << 20
    environment = {"HCCL_LIKE_ALGO": "all_reduce:direct"}
    sent = run_ranks(all_reduced, 4, hosts, many, 1, hosts=hosts, layout=[0, 0, 1, 1], environment=environment)[0]
    assert min(sent) > 1.9 * many * 4
