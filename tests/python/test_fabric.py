"""The transport that goes over libfabric: every provider that needs no card, with the system's library and a package's."""

import ctypes.util
import os
import shutil
import signal
import subprocess
import time

import pytest
import torch
import torch.distributed as dist

import mpis
from conftest import slow_after_first
from ranks import RankFailed, run_ranks
from test_collectives import every_collective
from test_reconnect import needs_ss, sums

PROVIDERS = ("tcp", "shm", "udp;ofi_rxd")
BETWEEN_HOSTS = ("tcp", "udp;ofi_rxd")


@pytest.fixture(params=["system", "package"])
def library(request):
    return chosen(request.param)


def chosen(library):
    """The settings that choose a libfabric."""
    if library == "system":
        return {} if ctypes.util.find_library("fabric") else pytest.skip("no libfabric of the system: install libfabric1")
    path = mpis.MPICH.libfabric() or pytest.skip("the package mpich has no libfabric here")
    return {"HCCL_LIKE_FABRIC_LIBRARY": str(path)}


def settings(library, provider, transports="fabric"):
    return {**library, "HCCL_LIKE_TRANSPORTS": transports, "HCCL_LIKE_FABRIC_PROVIDER": provider}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_collective_is_exact(provider, library):
    run_ranks(every_collective, 3, "cpu", environment=settings(library, provider))


@pytest.mark.parametrize("provider", BETWEEN_HOSTS)
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


def sends_and_turns_to_other_things(rank, size):
    """A rank that has what it wants waits where nobody looks after the network; what it sent arrives all the same."""
    store = dist.distributed_c10d._get_default_store()
    sizes = [8 << 10] * 60 + [4 << 20] * 10
    for turn, elements in enumerate(sizes):
        for _ in range(5 if elements < 1 << 20 else 1):
            tensor = torch.full((elements,), rank + 1.0)
            dist.all_reduce(tensor)
            assert tensor.eq(3).all()
        store.set(f"{turn} of {rank}", "over")
        store.wait([f"{turn} of {1 - rank}"])
    dist.barrier()  # rank 0 has the store


@pytest.mark.parametrize("provider", ("tcp", "shm"))
def test_what_a_rank_has_sent_arrives_while_it_does_other_things(provider, library):
    run_ranks(sends_and_turns_to_other_things, 2, environment=settings(library, provider), timeout=100)


READING = ("tcp", "shm")


@pytest.mark.parametrize("provider", READING)
def test_long_messages_are_read_from_the_peers_memory(provider, library, tmp_path):
    log = {"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": f"{tmp_path}/log"}
    run_ranks(large, 2, environment={**settings(library, provider), **log})
    assert (tmp_path / "log").read_text().count("reading long messages from the peer's memory") == 2


def given_up(rank, size):
    """Rank 1 gives a large call up in its middle. Both go on with another group, and with the memory."""
    other = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(1), group=other)
    tensor = torch.full((16 << 20,), rank + 1, dtype=torch.int32)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 1:
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    with pytest.raises(RuntimeError):
        work.wait()
        dist.all_reduce(tensor)
    # What is written now is nobody's business any more.
    tensor.fill_(-1)
    for _ in range(3):
        sums = torch.full(((1 << 20) + 5,), rank + 1, dtype=torch.int32)
        dist.all_reduce(sums, group=other)
        assert torch.equal(sums, torch.full_like(sums, 3))
    assert bool((tensor == -1).all())


@pytest.mark.parametrize("provider", READING)
def test_a_large_call_that_is_given_up_leaves_memory_and_other_groups_alone(provider, library):
    run_ranks(given_up, 2, environment=settings(library, provider))


def sums_over(rank, size, hosts):
    """What each network of host 0 sends meanwhile."""
    one_sum(rank, size)
    before = [hosts[0].counters(rail)["tx_bytes"] for rail in (0, 1)]
    for _ in range(2):
        large(rank, size)
    dist.barrier()
    return [hosts[0].counters(rail)["tx_bytes"] - one for rail, one in zip((0, 1), before)]


def test_two_networks_share_long_messages(library, make_hosts):
    hosts = make_hosts(2, rails=2)
    environment = settings(library, "tcp") | {"HCCL_LIKE_FABRIC_RAILS": "2"}
    sent = run_ranks(sums_over, 2, hosts, environment=environment, hosts=hosts)[0]
    assert sum(sent) > 2 * (32 << 20)
    # How much of it goes in blocks, which take one network, depends on how the ranks meet.
    assert 0.5 < sent[0] / sent[1] < 2, sent


def test_one_network_is_used_without_a_setting(library, make_hosts):
    hosts = make_hosts(2, rails=2)
    sent = run_ranks(sums_over, 2, hosts, environment=settings(library, "tcp"), hosts=hosts)[0]
    assert min(sent) < 1 << 20 < 2 * (32 << 20) < max(sent)


def pulled(rank, size, hosts, rail, seconds):
    """The cable of one card is out for so long, and in again for 7 s; the longest sum, and what the card carries afterwards."""

    def sabotage():
        time.sleep(0.3)
        hosts.cable(1, "down", rail)
        time.sleep(seconds)
        hosts.cable(1, "up", rail)

    longest, counted = sums(rank, size, seconds + 7, 4 << 20, sabotage)
    before = hosts[0].counters(rail)["tx_bytes"]
    large(rank, size)
    dist.barrier()
    return longest, hosts[0].counters(rail)["tx_bytes"] - before, counted


@pytest.mark.parametrize("rail, seconds", [(1, 2), pytest.param(0, 8, marks=pytest.mark.slow)])
def test_a_card_whose_cable_is_pulled_is_replaced_by_another_one_and_comes_back(rail, seconds, make_hosts, tmp_path):
    """The connection that watches the peer goes over card 0, and breaks after 4 s."""
    hosts = make_hosts(2, rails=2)
    environment = settings(chosen("package"), "tcp") | {"HCCL_LIKE_FABRIC_RAILS": "2", "HCCL_LIKE_DEBUG_FILE": f"{tmp_path}/log"}
    answers = run_ranks(pulled, 2, hosts, rail, seconds, environment=environment, hosts=hosts)
    for longest, carried, _ in answers:
        assert longest < 5
        assert carried > 1 << 20
    # Blocks go over card 0 while it works. One end notices, or both.
    assert any(counted for _, _, counted in answers) == (rail == 0)
    told = (tmp_path / "log").read_text()
    assert f"lost card {rail} (eth{rail}): the peer answers" in told
    assert f": card {rail} (eth{rail}) works again" in told
    assert ("the TCP connection that watches the peer on host" in told) == (rail == 0)  # at the end that notices


def reset_again_and_again(rank, size, hosts):
    store = dist.distributed_c10d._get_default_store()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store

    def sabotage():
        for _ in range(5):
            time.sleep(0.3)
            command = ["ss", "-K", "-t", "-n", f"dst {hosts[1].address()} and sport != :{store.port}"]
            subprocess.run(command, capture_output=True, check=True)

    sums(rank, size, 2, 4 << 20, sabotage)


@needs_ss
def test_an_only_card_whose_connections_are_reset_goes_on(make_hosts, tmp_path):
    hosts = make_hosts(2)
    environment = settings(chosen("package"), "tcp") | {"HCCL_LIKE_DEBUG_FILE": f"{tmp_path}/log"}
    run_ranks(reset_again_and_again, 2, hosts, environment=environment, hosts=hosts)
    assert "the TCP connection that watches the peer on host" in (tmp_path / "log").read_text()


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


def killed(rank, size, note):
    """Rank 0 waits for a message of rank 1, which is killed instead. What rank 0 is told, and how long after."""
    one_sum(rank, size)
    if rank == 1:
        note.write_text(repr(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError) as told:
        dist.recv(torch.ones(3), src=1)
    return time.monotonic() - float(note.read_text()), str(told.value)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_rank_that_is_killed_is_noticed_by_one_that_waits(provider, library, tmp_path):
    (_, told), code = run_ranks(killed, 2, tmp_path / "note", environment=settings(library, provider), group_timeout=60)
    assert "lost rank 1 (" in told and "the fabric connection to " in told, told
    assert code == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("provider", BETWEEN_HOSTS)
def test_a_rank_that_is_killed_on_another_host_is_noticed_within_a_second(provider, library, make_hosts, tmp_path):
    hosts = make_hosts(2)
    (late, told), _ = run_ranks(killed, 2, tmp_path / "note", environment=settings(library, provider), hosts=hosts)
    assert "lost rank 1 (host1" in told and "the fabric connection to host1 is gone" in told, told
    assert late < 1, told


def cut_off(rank, size, hosts):
    """Both ranks wait for a message when the network goes. What each is told, and how long after."""
    one_sum(rank, size)
    dist.barrier()
    hosts[rank].drop()
    begin = time.monotonic()
    with pytest.raises(RuntimeError) as told:
        dist.recv(torch.ones(3), src=1 - rank)
    late = time.monotonic() - begin
    hosts[rank].heal()  # the end of the test goes over the store
    return late, str(told.value)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nft") is None, reason="dropping packets takes nft (nftables)")
@pytest.mark.parametrize("provider", BETWEEN_HOSTS)
def test_a_network_that_is_gone_is_noticed_within_six_seconds(provider, library, make_hosts):
    hosts = make_hosts(2)
    for rank, (late, told) in enumerate(run_ranks(cut_off, 2, hosts, environment=settings(library, provider), hosts=hosts)):
        assert f"lost rank {1 - rank} (host{1 - rank}" in told, told
        assert 2.5 < late < 6, told


def stopped(rank, size, note):
    """Rank 1 is stopped, as by a debugger, for longer than any limit on silence."""
    one_sum(rank, size)
    if rank == 1:
        note.write_text(str(os.getpid()))
    dist.barrier()
    if rank == 0:
        pid = int(note.read_text())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(6)
        os.kill(pid, signal.SIGCONT)
    one_sum(rank, size)


@pytest.mark.slow
@pytest.mark.parametrize("provider", BETWEEN_HOSTS)
def test_a_rank_that_is_stopped_for_a_while_is_not_taken_for_gone(provider, library, make_hosts, tmp_path):
    run_ranks(stopped, 2, tmp_path / "note", environment=settings(library, provider), hosts=make_hosts(2))


@pytest.mark.parametrize("library", slow_after_first(["package", "system"]), indirect=True)
def test_a_peer_without_a_lifeline_is_used_all_the_same(library, make_hosts, tmp_path):
    """No connection of TCP comes about on the ports that the ranks listen on."""
    hosts = make_hosts(2)
    for host in hosts:
        host.drop(port="47100-47101")
    environment = settings(library, "udp;ofi_rxd") | {
        "HCCL_LIKE_PORT_RANGE": "47100-47101", "HCCL_LIKE_CONNECT_TIMEOUT_MS": "1000", "HCCL_LIKE_DEBUG_FILE": f"{tmp_path}/log"
    }  # fmt: skip
    run_ranks(sums_for_a_while, 2, environment=environment, hosts=hosts)
    assert "will be noticed only if fabric notices it: no TCP connection beside it" in (tmp_path / "log").read_text()


def sums_for_a_while(rank, size):
    begin = time.monotonic()
    while time.monotonic() - begin < 3:
        one_sum(rank, size)
        dist.barrier()
        go_on = torch.tensor([time.monotonic() - begin < 2.5], dtype=torch.int32)
        dist.all_reduce(go_on, dist.ReduceOp.MIN)
        if not go_on:
            return
