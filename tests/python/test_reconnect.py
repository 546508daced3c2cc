"""Connections that break between living processes: the call goes on over others, and no bit is wrong."""

import os
import shutil
import subprocess
import threading
import time

import pytest
import torch
import torch.distributed as dist
from hccl_like.top import _file

from ranks import run_ranks

PORTS = "41000-41010"
needs_nft = pytest.mark.skipif(shutil.which("nft") is None, reason="dropping packets takes nft (nftables)")
needs_ss = pytest.mark.skipif(shutil.which("ss") is None, reason="resetting connections takes ss (iproute2)")


def sums(rank, size, seconds, elements, sabotage=None):
    """Exact all_reduces for so long, with `sabotage` beside them on rank 0; the longest of them in seconds, and the connections replaced."""
    source = torch.arange(elements, dtype=torch.float32) % 1000
    expected = source * size + sum(range(size))
    dist.all_reduce(torch.ones(1 << 21))  # makes all rails
    dist.barrier()
    saboteur = threading.Thread(target=sabotage) if sabotage and rank == 0 else None
    if saboteur:
        saboteur.start()
    took, end = [], time.monotonic() + seconds
    going = torch.ones(1)
    while going.item() > 0:
        tensor = source + rank
        begin = time.monotonic()
        dist.all_reduce(tensor)
        took.append(time.monotonic() - begin)
        assert torch.equal(tensor, expected)
        going.fill_(time.monotonic() < end)
        dist.broadcast(going, 0)
    if saboteur:
        saboteur.join()
    counted = sum(peer.reconnected for peer in _file.of_process(os.getpid()).peers)
    return max(took), counted


def settings(log, **more):
    return lambda rank: {
        "HCCL_LIKE_PORT_RANGE": PORTS, "HCCL_LIKE_DEBUG_FILE": f"{log}.{rank}", **{name: str(value) for name, value in more.items()}
    }


def logs(log, size=2):
    texts = [open(f"{log}.{rank}").read() if os.path.exists(f"{log}.{rank}") else "" for rank in range(size)]
    return "".join(texts)


def reset_all(host):
    """Resets every connection of the ranks on this host, and none of the store."""
    first, last = PORTS.split("-")
    done = subprocess.run(
        host.command(["ss", "-K", "-t", "-n", f"( sport >= :{first} and sport <= :{last} ) or ( dport >= :{first} and dport <= :{last} )"]),
        capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr


@needs_ss
@pytest.mark.parametrize("encrypt", [0, 1], ids=["plain", "encrypted"])
def test_connections_that_are_reset_are_made_anew(encrypt, make_hosts, tmp_path):
    hosts = make_hosts(2)

    def sabotage():
        for _ in range(12):
            time.sleep(0.1)
            reset_all(hosts[0])

    more = {"HCCL_LIKE_ENCRYPT": 1, "HCCL_LIKE_SECRET": "s" * 40} if encrypt else {}
    ends = run_ranks(sums, 2, 2, 1 << 20, sabotage, hosts=hosts, environment=settings(tmp_path / "log", **more))
    text = logs(tmp_path / "log")
    for _, counted in ends:
        assert counted >= 5, text
    assert text.count("was replaced after") >= 5, text


@pytest.mark.parametrize("rail", [0, 1])
def test_a_rail_whose_cable_is_pulled_goes_over_the_other_network_and_comes_back(rail, make_hosts, tmp_path):
    """The store is at the first network: its connection outlives the time without a cable."""
    hosts = make_hosts(2, rails=2)

    def sabotage():
        time.sleep(0.3)
        hosts.cable(1, "down", rail)
        time.sleep(2)
        hosts.cable(1, "up", rail)

    ends = run_ranks(sums, 2, 11, 1 << 22, sabotage, hosts=hosts, environment=settings(tmp_path / "log", HCCL_LIKE_TCP_RAILS=2))
    text = logs(tmp_path / "log")
    replaced = [line for line in text.splitlines() if f"(rail {rail}), was replaced after" in line]
    assert any(f" ms by 10.77.{1 - rail}." in line for line in replaced), text
    assert any(f" ms by 10.77.{rail}." in line and line.endswith(": its own network works again") for line in replaced), text
    assert all(longest < 10 for longest, _ in ends)


@needs_nft
def test_a_silence_of_three_seconds_ends_no_call(make_hosts, tmp_path):
    hosts = make_hosts(2)

    def sabotage():
        time.sleep(0.3)
        hosts[0].drop(port=PORTS)
        hosts[1].drop(port=PORTS)
        time.sleep(3)
        hosts[0].heal()
        hosts[1].heal()

    ends = run_ranks(sums, 2, 5, 1 << 18, sabotage, hosts=hosts, environment=settings(tmp_path / "log"))
    assert ends[0][0] > 2, "nothing was cut"
    assert all(counted == 1 for _, counted in ends), logs(tmp_path / "log")
