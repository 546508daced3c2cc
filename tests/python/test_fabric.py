"""The transport that goes over libfabric: every provider that needs no card, with the system's library and a package's."""

import ctypes.util
import os

import pytest
import torch
import torch.distributed as dist

import mpis
import test_collectives
from ranks import RankFailed, run_ranks

PROVIDERS = ("tcp", "shm", "udp;ofi_rxd")


@pytest.fixture(params=["system", "package"])
def library(request):
    """The settings that choose a libfabric."""
    if request.param == "system":
        return {} if ctypes.util.find_library("fabric") else pytest.skip("no libfabric of the system: install libfabric1")
    path = mpis.MPICH.libfabric() or pytest.skip("the package mpich has no libfabric here")
    return {"HCCL_LIKE_FABRIC_LIBRARY": str(path)}


def settings(library, provider, transports="fabric"):
    return {**library, "HCCL_LIKE_TRANSPORTS": transports, "HCCL_LIKE_FABRIC_PROVIDER": provider}


def every_collective(rank, size, device):
    for case in test_collectives.CASES:
        try:
            case(rank, size, device)
        except Exception as error:
            raise AssertionError(f"{case.__name__}: {error}") from error
        dist.barrier()  # a receive from anybody must not meet the next case's messages


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_collective_is_exact(provider, library):
    run_ranks(every_collective, 3, "cpu", environment=settings(library, provider))


@pytest.mark.parametrize("provider", ["tcp", "udp;ofi_rxd"])
def test_every_collective_is_exact_beside_shared_memory_between_two_hosts(provider, library, make_hosts, tmp_path):
    log = {"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": f"{tmp_path}/log"}
    hosts = make_hosts(2)
    run_ranks(every_collective, 4, "cpu", environment={**settings(library, provider, "shm,fabric"), **log}, hosts=hosts)
    assert hosts[1].counters()["tx_bytes"] > 1 << 20
    told = (tmp_path / "log").read_text()
    assert told.count(": shm (same host)") == 4
    assert told.count("of libfabric") == 8


def test_the_accelerators_tensors_go_over_it(device, library):
    run_ranks(every_collective, 2, device, environment=settings(library, "tcp"))


def large(rank, size):
    many = (8 << 20) + 13
    tensor = torch.full((many,), rank + 1, dtype=torch.int32)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((many,), size * (size + 1) // 2, dtype=torch.int32))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_large_messages_are_exact(provider, library):
    run_ranks(large, 2, environment=settings(library, provider))


def one_sum(rank, size):
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 3


def test_a_provider_of_one_host_is_not_used_between_hosts(library, make_hosts):
    with pytest.raises(RankFailed, match="no transport in common"):
        run_ranks(one_sum, 2, environment=settings(library, "shm"), hosts=make_hosts(2))


def test_without_a_setting_a_provider_that_reaches_other_hosts_is_chosen(library, make_hosts):
    run_ranks(one_sum, 2, environment=settings(library, ""), hosts=make_hosts(2))


def test_a_provider_that_does_not_exist_is_named():
    with pytest.raises(RankFailed, match="has no provider nosuch: .*fi_info"):
        run_ranks(one_sum, 1, environment=settings({}, "nosuch"))


def test_without_the_library_the_next_transport_serves(tmp_path):
    environment = {**settings({"HCCL_LIKE_FABRIC_LIBRARY": "libnothing.so"}, "", "fabric,tcp"), "HCCL_LIKE_DEBUG_FILE": f"{tmp_path}/log"}
    run_ranks(one_sum, 2, environment=environment)
    assert "no libfabric can be loaded: libnothing.so" in (tmp_path / "log").read_text()


def one_rank_dies(rank, size):
    one_sum(rank, size)
    if rank == 1:
        os._exit(0)
    try:
        for _ in range(100_000):
            dist.all_reduce(torch.ones(3))
    except RuntimeError as error:
        return str(error)
    return "nothing"


@pytest.mark.slow
def test_a_rank_that_dies_is_noticed(library):
    told, _ = run_ranks(one_rank_dies, 2, environment=settings(library, "tcp"), group_timeout=10)
    assert "rank 1" in told
