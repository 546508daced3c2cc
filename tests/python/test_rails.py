"""Several TCP connections between two ranks, over the networks that their hosts have in common."""

import time

import pytest
import torch
import torch.distributed as dist

from ranks import RankFailed, run_ranks
from test_collectives import every_collective
from test_network_errors import needs_nft

MANY = (32 << 20) // 4


def sums(rank, size, hosts, repeats):
    """What each network of host 0 sends meanwhile."""
    before = [host_bytes(hosts[0], rail) for rail in (0, 1)]
    for repeat in range(repeats):
        tensor = torch.arange(MANY, dtype=torch.int32) + rank
        dist.all_reduce(tensor)
        assert torch.equal(tensor, size * torch.arange(MANY, dtype=torch.int32) + size * (size - 1) // 2), repeat
    return [host_bytes(hosts[0], rail) - one for rail, one in zip((0, 1), before)]


def host_bytes(host, rail):
    return host.counters(rail)["tx_bytes"]


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_two_networks_share_the_load(make_hosts, encrypt):
    hosts = make_hosts(2, rails=2)
    sealed = {"HCCL_LIKE_ENCRYPT": "1", "HCCL_LIKE_SECRET": "a secret of the rails, long enough to be one"} if encrypt else {}
    sent = run_ranks(sums, 2, hosts, 2, hosts=hosts, environment={"HCCL_LIKE_TCP_RAILS": "2", **sealed})[0]
    # Twice 32 MiB; the first MiB of each direction goes over the first network alone.
    assert 0.9 < sent[0] / sent[1] < 1.2, sent
    assert sum(sent) > 2 * (32 << 20)


def test_one_network_is_all_that_one_connection_uses(make_hosts):
    hosts = make_hosts(2, rails=2)
    sent = run_ranks(sums, 2, hosts, 1, hosts=hosts)[0]
    assert min(sent) < 1 << 20 < max(sent)


@needs_nft
def test_a_rail_whose_network_is_cut_goes_over_another(make_hosts):
    hosts = make_hosts(2, rails=2)
    for host in hosts:
        host.drop(rail=1)
    sent = run_ranks(sums, 2, hosts, 1, hosts=hosts, environment={"HCCL_LIKE_TCP_RAILS": "3"})[0]
    assert sent[1] < 1 << 20


def test_every_collective_is_exact_over_three_rails(make_hosts):
    environment = {"HCCL_LIKE_TCP_RAILS": "3", "HCCL_LIKE_TRANSPORTS": "tcp"}
    run_ranks(every_collective, 4, "cpu", hosts=make_hosts(2, rails=2), environment=environment)


def test_ranks_must_agree_on_their_number():
    with pytest.raises(RankFailed, match=r"HCCL_LIKE_TCP_RAILS is not set on rank 0 \(.*\) and 2 on rank 1 \(.*\); set it alike"):
        run_ranks(lambda rank, size: None, 2, environment=lambda rank: {"HCCL_LIKE_TCP_RAILS": "2"} if rank else {})


def dies(rank, size):
    tensor = torch.ones(MANY)
    dist.all_reduce(tensor)
    if rank == 1:
        import os

        os._exit(7)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="rank 1.*tcp connection to .* is gone"):
        while True:
            dist.all_reduce(tensor)
    return time.monotonic() - begin


def test_a_death_is_noticed_at_once(make_hosts):
    seconds, code = run_ranks(dies, 2, hosts=make_hosts(2, rails=2), environment={"HCCL_LIKE_TCP_RAILS": "2"})
    assert code == 7 and seconds < 5
