"""What ranks say when the network keeps them apart: both ends, the address that was tried, and the setting to change."""

import shutil
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from ranks import make_store, run_ranks

PATIENCE = 3  # seconds to connect, as the environment of every rank says
needs_nft = pytest.mark.skipif(shutil.which("nft") is None, reason="dropping packets takes nft (nftables)")


def join(rank, size, listener):
    """What init_process_group raises, and how long it took."""
    store = make_store(rank, listener)
    begin = time.monotonic()
    try:
        dist.init_process_group(
            "hccl-like", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60)
        )
        dist.all_reduce(torch.ones(1))
        text = ""
    except Exception as error:
        text = str(error)
    took = time.monotonic() - begin
    store.set(f"left{rank}", "")
    if rank == 0:  # whose process is the store
        store.wait([f"left{other}" for other in range(size)], timedelta(seconds=30))
    return text, took


def texts(hosts, environment=None, size=2):
    def mine(rank):
        given = environment(rank) if callable(environment) else environment or {}
        return {"HCCL_LIKE_CONNECT_TIMEOUT_MS": str(PATIENCE * 1000), **given}

    answers = run_ranks(join, size, group=False, hosts=hosts, environment=mine)
    for text, took in answers:
        assert took < PATIENCE + 2, text
    return [text for text, _ in answers]


def names_both_ends(text, rank):
    return f"rank {rank} (host{rank}, process" in text and f"rank {1 - rank} (host{1 - rank}, process" in text


@needs_nft
def test_a_firewalled_port_is_named_by_both_ends(make_hosts):
    hosts = make_hosts(2)
    for host in hosts:
        host.drop(port="40000-40010")
    for rank, text in enumerate(texts(hosts, {"HCCL_LIKE_PORT_RANGE": "40000-40010"})):
        assert names_both_ends(text, rank), text
        assert "timed out connecting" in text
        assert "HCCL_LIKE_PORT_RANGE (40000-40010)" in text
        tried = f"10.77.0.{2 - rank}:400" in text and "no answer" in text
        waited = "it connects to this rank, and has not come at port 400" in text
        assert tried != waited, text
        assert tried == ("no answer (a firewall drops this port: the host answers at another one; hccl-like fwports" in text), text


@needs_nft
def test_a_host_that_cannot_be_reached_over_one_of_its_networks_is_reached_over_the_other(make_hosts):
    hosts = make_hosts(2, rails=2)
    for host in hosts:
        host.drop(rail=1)
    assert texts(hosts) == ["", ""]


def test_interfaces_that_share_no_network_are_told(make_hosts):
    """The store is reached over the first network; of the others, each host is on one."""
    hosts = make_hosts(2, rails=3)
    for host, missing in zip(hosts, (2, 1)):
        host.run(["ip", "link", "set", f"eth{missing}", "down"])
    for rank, text in enumerate(texts(hosts, lambda rank: {"HCCL_LIKE_SOCKET_IFNAME": f"=eth{rank + 1}"})):
        assert names_both_ends(text, rank), text
        assert f"offers eth{rank + 1} 10.77.{rank + 1}.{rank + 1}: HCCL_LIKE_SOCKET_IFNAME (=eth{rank + 1})" in text
        there = 1 - rank
        tried = f"10.77.{there + 1}.{there + 1}:" in text and "unreachable" in text
        assert tried or "it connects to this rank" in text, text
        assert not tried or "(no interface of this host leads there)" in text, text


@needs_nft
def test_a_host_that_does_not_answer_is_named(make_hosts):
    hosts = make_hosts(2, rails=2)
    for host in hosts:
        host.drop(rail=1)
    for rank, text in enumerate(texts(hosts, {"HCCL_LIKE_SOCKET_IFNAME": "=eth1"})):
        assert names_both_ends(text, rank), text
        assert "HCCL_LIKE_SOCKET_IFNAME (=eth1)" in text
        tried = f"10.77.1.{2 - rank}:" in text
        assert tried or "it connects to this rank" in text
        assert tried == ("no answer (nor at another port: the host is down" in text), text


def test_only_loopback_is_no_way_to_another_host(make_hosts):
    for rank, text in enumerate(texts(make_hosts(2), {"HCCL_LIKE_SOCKET_IFNAME": "=lo"})):
        assert names_both_ends(text, rank), text
        assert "offers loopback only: HCCL_LIKE_SOCKET_IFNAME (=lo)" in text
        assert "none of its addresses can be reached from here" in text or "it connects to this rank" in text


def test_an_interface_that_is_not_there_is_told_with_those_that_are(make_hosts):
    for text in texts(make_hosts(2), {"HCCL_LIKE_SOCKET_IFNAME": "=ib0"}):
        assert "HCCL_LIKE_SOCKET_IFNAME" in text and "=ib0" in text and "eth0" in text


def test_settings_that_differ_are_told_by_all_ranks(make_hosts):
    found = texts(make_hosts(2), lambda rank: {"HCCL_LIKE_SLICE_BYTES": "1M" if rank == 0 else "512K"})
    for text in found:
        assert "HCCL_LIKE_SLICE_BYTES is not set on rank 0 (host0, process" in text
        assert "524288 on rank 1 (host1, process" in text


def test_addresses_of_one_cable_only_are_not_used(make_hosts):
    """Link-local addresses of IPv6 mean another host on every cable."""
    hosts = make_hosts(2, ipv4=False, ipv6=True)
    assert texts(hosts) == ["", ""]
