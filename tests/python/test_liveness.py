"""Hosts that are gone, and networks that fail for a while."""

import shutil
import time

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks

pytestmark = pytest.mark.skipif(shutil.which("nft") is None, reason="dropping packets takes nft (nftables)")


def cut_off(rank, size, hosts, waits):
    """Two seconds without a network change nothing; longer ones end the calls. With `waits`, one end has nothing under way."""
    small, large = torch.ones(1), torch.ones(1 << 20)
    dist.all_reduce(large)
    assert large[-1] == size

    def lose():
        hosts[rank].drop()
        time.sleep(0.05)

    def call():
        if waits and rank == 0:
            dist.recv(small, src=1)
        elif waits:
            dist.send(small, dst=0)
        else:
            large.fill_(1)
            dist.all_reduce(large)

    dist.barrier()
    lose()
    begin = time.monotonic()
    if not (waits and rank == 1):
        healed = call_meanwhile(call, lambda: (time.sleep(2), hosts[rank].heal()))
    else:
        time.sleep(2)
        hosts[rank].heal()
        call()
    assert large[-1] == size and small == 1
    assert time.monotonic() - begin < 6
    dist.barrier()
    lose()
    begin = time.monotonic()
    try:
        if waits and rank == 1:
            dist.recv(small, src=0)
        else:
            call()
        return None, "no error"
    except Exception as error:
        return time.monotonic() - begin, str(error)
    finally:
        hosts[rank].heal()  # the end of the test goes over the store


def call_meanwhile(call, other):
    import threading

    thread = threading.Thread(target=other)
    thread.start()
    call()
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("waits", [False, True], ids=["bytes under way", "nothing under way"])
def test_a_network_that_fails_for_two_seconds_is_waited_for_and_one_that_is_gone_is_not(waits, make_hosts):
    hosts = make_hosts(2)
    # It is noticed within 5 s; the rest is for the flight recorder's dump, and for a busy machine.
    for rank, (late, text) in enumerate(run_ranks(cut_off, 2, hosts, waits, hosts=hosts)):
        assert late is not None and 2.5 < late < 5.5, (rank, late, text)
        assert f"lost rank {1 - rank} (host{1 - rank})" in text, text
        assert f"the tcp connection to 10.77.0.{2 - rank}:" in text and "is gone" in text, text
