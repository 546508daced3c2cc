"""Several hosts: network namespaces joined by a bridge."""

import os

import pytest
import torch
import torch.distributed as dist

from hosts import Hosts
from ranks import run_ranks
from test_collectives import every_collective

LAYOUTS = {
    "even": [0, 0, 1, 1],
    "in turns": [0, 1, 0, 1],
    "uneven": [0, 0, 0, 1],
    "one each": [0, 1, 2],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_collective_is_exact(layout, device, make_hosts):
    run_ranks(every_collective, len(layout), device, hosts=make_hosts(max(layout) + 1), layout=layout)


@pytest.mark.parametrize("how", [{"ipv4": False, "ipv6": True}, {"mtu": 9000}, {"rails": 2}], ids=["IPv6 only", "MTU 9000", "two rails"])
def test_every_collective_is_exact_over_other_networks(how, make_hosts):
    run_ranks(every_collective, 4, "cpu", hosts=make_hosts(2, **how))


def across(rank, size, hosts, many):
    """One host's interface counts what it sends to the other."""
    tensor = torch.ones(many)
    before = hosts[0].counters()["tx_bytes"]
    dist.all_reduce(tensor)
    assert tensor[0] == size
    dist.barrier()
    return hosts[0].counters()["tx_bytes"] - before


def test_ranks_of_two_hosts_do_not_meet_in_memory(make_hosts):
    hosts = make_hosts(2)
    bytes_ = 4 << 20
    sent = run_ranks(across, 2, hosts, bytes_ // 4, hosts=hosts)[0]
    assert bytes_ / 2 <= sent < 1.5 * bytes_


def test_ranks_of_one_host_do(make_hosts):
    hosts = make_hosts(2)
    sent = run_ranks(across, 2, hosts, 1 << 20, hosts=hosts, layout=[0, 0])[0]
    assert sent < 1 << 16


def test_hosts_go_away_and_so_do_those_of_a_process_that_was_killed(make_hosts):
    def names():
        return [name for name in os.listdir("/run/netns") if name.startswith(f"hcl{child}x")]

    child = os.fork()
    if child == 0:
        Hosts(2)
        os._exit(0)
    os.waitpid(child, 0)
    assert names()
    hosts = make_hosts(1)
    assert not names()
    hosts.close()
    assert not any(hosts[0].name == name for name in os.listdir("/run/netns"))
