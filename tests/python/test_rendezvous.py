"""slurm://, with what srun would set and with srun; mpi:// is in test_mpi.py."""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from hccl_like import _rendezvous
from ranks import RankFailed, run_ranks
from slurm import Slurm


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("one", ["one"]),
        ("a,b", ["a", "b"]),
        ("gpu[01-03,7],login", ["gpu01", "gpu02", "gpu03", "gpu7", "login"]),
        ("r[1-2]n[08-09]", ["r1n08", "r1n09", "r2n08", "r2n09"]),
        ("n[099-101]x", ["n099x", "n100x", "n101x"]),
    ],
)
def test_a_node_list_is_read(text, names):
    assert list(_rendezvous.hosts(text)) == names


def join(rank, size, listener, url, **environment):
    listener.close()
    os.environ.update(
        SLURM_PROCID=str(rank), SLURM_NTASKS=str(size), SLURM_STEP_NODELIST="here[1-2],there", SLURMD_NODENAME="here1",
        SLURM_JOB_ID=str(os.getppid()), SLURM_STEP_ID="3",
    )  # fmt: skip
    os.environ.update(environment)
    dist.init_process_group("hccl-like", init_method=url, timeout=timedelta(seconds=20))
    tensor = torch.full((3,), dist.get_rank() + 1)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return dist.get_rank() if dist.is_initialized() else tensor.tolist()


@pytest.mark.parametrize("size", [1, 3])
def test_ranks_of_a_step_meet(size):
    assert run_ranks(join, size, "slurm://", group=False) == [[size * (size + 1) // 2] * 3] * size


@pytest.mark.parametrize(
    ("host", "nodes", "own"),
    [
        ("localhost", "here", ["127.0.0.1"]),
        ("127.0.0.2", "here", ["127.0.0.2"]),
        ("::1", "here", ["::1"]),
        (None, "here", ["127.0.0.1"]),
        (None, "here,there", []),  # who knows at which of them the others arrive
        (None, "there", []),
        ("192.0.2.1", "here", []),  # another host's
        ("no.such.host.invalid", "here", []),
    ],
)
def test_the_store_listens_where_the_others_look_for_it(monkeypatch, host, nodes, own):
    monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
    monkeypatch.setenv("SLURMD_NODENAME", "here")
    assert _rendezvous._own_addresses(host) == own
    with _rendezvous._listen(own, 0) as listener:
        assert listener.getsockname()[0] in (own or ("::", "0.0.0.0"))


def test_a_store_at_one_address_is_not_reached_at_another():
    store = _rendezvous._serve(["127.0.0.1"], 0, "a token", timedelta(seconds=20))
    assert _rendezvous._join(["127.0.0.1"], store.port, "a token", timedelta(seconds=20)).get("hccl_like/rendezvous") == b"a token"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", store.port), timeout=20)


@pytest.mark.parametrize("reached_at", ["127.0.0.1", "127.0.0.2", "::1"])
def test_a_store_at_all_addresses_is_reached_at_each(reached_at):
    store = _rendezvous._serve([], 0, "a token", timedelta(seconds=20))
    assert _rendezvous._join([reached_at], store.port, "a token", timedelta(seconds=20)).port == store.port


ENDS_AT_ONCE = """
import sys, time
import torch.distributed as dist
from hccl_like import _registration

class Slow(dist.Store):
    def __init__(self, store):
        super().__init__()
        self.store = store
    def get(self, key):
        time.sleep(1)
        return self.store.get(key)
    def set(self, *all): return self.store.set(*all)
    def add(self, *all): return self.store.add(*all)
    def check(self, *all): return self.store.check(*all)
    def wait(self, *all): return self.store.wait(*all)

make = _registration.make_backend
_registration.make_backend = lambda store, rank, *more: make(Slow(store) if rank else store, rank, *more)
dist.init_process_group("hccl-like", init_method=sys.argv[1])
dist.destroy_process_group()
"""


def test_rank_0_that_ends_at_once_leaves_the_store_to_those_who_come_late():
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"slurm://localhost:{free.getsockname()[1]}"
    step = {**os.environ, "SLURM_NTASKS": "2", "SLURM_JOB_ID": "9"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", ENDS_AT_ONCE, url], env={**step, "SLURM_PROCID": str(rank)}) for rank in (0, 1)
    ]
    assert [rank.wait(60) for rank in ranks] == [0, 0]


def test_a_host_and_a_port_can_be_named():
    assert run_ranks(join, 2, "slurm://localhost:29731", group=False) == [[3] * 3] * 2


def test_the_launcher_must_agree_with_the_program():
    with pytest.raises(RankFailed, match="was told world_size=5, and the launcher says 2"):
        run_ranks(join, 2, "slurm://?world_size=5", group=False)


def test_without_a_launcher_it_says_so(monkeypatch):
    for name in ("SLURM_PROCID", "PMIX_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match="srun"):
        next(_rendezvous.slurm("slurm://"))


def test_another_jobs_store_is_not_joined():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set("hccl_like/rendezvous", "7.0")
    with pytest.raises(TimeoutError, match="another job's store answers"):
        _rendezvous._join(["127.0.0.1"], store.port, "8.0", timedelta(seconds=1))


@pytest.fixture
def slurm(make_hosts):
    with tempfile.TemporaryDirectory(prefix="slurm") as folder:
        cluster = Slurm(make_hosts(1)[0], pathlib.Path(folder))
        yield cluster
        cluster.close()


PROGRAM = """
import torch
import torch.distributed as dist

dist.init_process_group("hccl-like", init_method="slurm://")
tensor = torch.ones(3)
dist.all_reduce(tensor)
print("rank", dist.get_rank(), "of", dist.get_world_size(), tensor.tolist())
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_srun_starts_ranks_that_meet(slurm):
    told = slurm.srun(3, sys.executable, "-c", PROGRAM)
    assert sorted(told.splitlines()) == [f"rank {rank} of 3 [3.0, 3.0, 3.0]" for rank in range(3)]
