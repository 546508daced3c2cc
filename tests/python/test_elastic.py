"""Processes that join a running job, and that take the places of lost ones."""

import os
import random
import signal
import subprocess
import sys
import time
import traceback
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import hccl_like
import values
from conftest import slow_after_first
from ranks import make_store, run_ranks


def found(rank, size, listener):
    """The first ranks make the job; the others get its store alone."""
    store = make_store(rank, listener)
    if rank < size:
        dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=25))
    return store


def leave(store, rank, everybody):
    """Rank 0, which serves the store, is the last to go."""
    dist.destroy_process_group()
    store.set(f"left/{rank}", "")
    if rank == 0:
        store.wait([f"left/{one}" for one in everybody], timedelta(seconds=20))


def add_up(device="cpu", count=11):
    """Checks an all_reduce of all ranks, in the default group and in one that is made of it."""
    size, rank = dist.get_world_size(), dist.get_rank()
    for group in (None, dist.new_group(list(range(size)))):
        tensor = values.plain(rank, count, torch.float32).to(device)
        dist.all_reduce(tensor, group=group)
        assert values.equal(tensor, values.total([values.plain(r, count, torch.float32) for r in range(size)]))


def until_all_are_in(size):
    """The running ranks' steps."""
    while dist.get_world_size() < size:
        dist.all_reduce(torch.ones(1))
        hccl_like.grow()


def grows(rank, size, listener, device, founders):
    store = found(rank, founders, listener)
    if rank < founders:
        add_up(device)
        until_all_are_in(size)
    else:
        time.sleep(0.1 * (rank % 2))
        joined = hccl_like.join(store, timeout=20)
        assert joined.rank >= founders and joined.rank in joined.joined
        if dist.get_world_size() < size:
            until_all_are_in(size)
    assert dist.get_world_size() == size
    for count in (11, 1_000_003):
        add_up(device, count)
    number = dist.get_rank()
    leave(store, rank, range(size))
    return number


@pytest.mark.parametrize(("founders", "size"), [pytest.param(1, 2, marks=pytest.mark.slow), (2, 5)])
def test_a_job_takes_new_processes_in(founders, size, device):
    numbers = run_ranks(grows, size, device, founders, group=False)
    assert sorted(numbers) == list(range(size)) and numbers[:founders] == list(range(founders))


def test_a_job_of_two_hosts_takes_new_processes_in(make_hosts):
    numbers = run_ranks(grows, 6, "cpu", 3, hosts=make_hosts(2), layout=[0, 1, 0, 1, 0, 1], group=False)
    assert sorted(numbers) == list(range(6))


# ------------------------------------------------------------------------------------------------------------ nobody comes


def nobody(rank, size):
    before = dist.group.WORLD
    assert hccl_like.grow() is None
    begin = time.monotonic()
    assert hccl_like.grow(wait=0.3) is None
    assert 0.2 < time.monotonic() - begin < 5
    assert dist.group.WORLD is before
    add_up()


def test_without_new_processes_nothing_changes():
    run_ranks(nobody, 2)


def gone_after(what, rank, size, listener):
    """The third process dies while it joins; the fourth does not."""
    store = found(rank, 2, listener)
    if rank == 2:
        from hccl_like import elastic

        board = elastic._Board(elastic._base(store))
        if what == "its knock":
            board.knock()
            os._exit(3)
        elastic._make = lambda *_: os._exit(3)
        hccl_like.join(store, timeout=20)
    store_key = "third has gone"
    if rank < 2:
        before = dist.group.WORLD
        begin = time.monotonic()
        while hccl_like.grow(attempt=1.0) is None and time.monotonic() - begin < 2.5:
            assert dist.group.WORLD is before and dist.get_world_size() == 2
            dist.all_reduce(torch.ones(1))
        if rank == 0:
            store.set(store_key, "")
        if dist.get_world_size() == 2:
            until_all_are_in(3)
    else:
        store.wait([store_key], timedelta(seconds=20))
        hccl_like.join(store, timeout=20)
    assert dist.get_world_size() == 3
    add_up()
    leave(store, rank, (0, 1, 3))


@pytest.mark.parametrize("what", ["its knock", "its answer"])
def test_a_process_that_dies_while_it_joins_harms_nobody(what):
    assert run_ranks(_gone, 4, what, group=False) == [None, None, 3, None]


def _gone(rank, size, listener, what):
    gone_after(what, rank, size, listener)


def others_are_taken(rank, size, listener):
    """One of two that come at the same time dies on the way: the other one is in."""
    store = found(rank, 2, listener)
    if rank == 2:
        from hccl_like import elastic

        elastic._make = lambda *_: os._exit(3)
    if rank < 2:
        store.wait(["hccl-like/elastic/knock/2"], timedelta(seconds=20))
        while hccl_like.grow(attempt=1.0) is None:
            pass
    else:
        hccl_like.join(store, timeout=20)
    assert dist.get_world_size() == 3
    add_up()
    leave(store, rank, (0, 1, 3))


def test_of_two_that_come_the_one_that_lives_is_taken():
    assert run_ranks(others_are_taken, 4, group=False) == [None, None, 3, None]


# ------------------------------------------------------------------------------------------------------------ places of lost ranks


def replaced(rank, size, listener, device, how):
    store = found(rank, 3, listener)
    if rank == 3:
        joined = hccl_like.join(store, timeout=20)
        assert joined == hccl_like.elastic.Membership(rank=1, size=3, joined=(1,))
    else:
        add_up(device)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(dist.DistBackendError, match="rank 1") as caught:
            while True:
                dist.all_reduce(torch.ones(1000, device=device))
        known = {"by number": [1], "by error": caught.value, "unknown": None}[how]
        replaced = hccl_like.replace(known, timeout=20, grace=1.0)
        assert (replaced.joined, replaced.lost) == ((1,), (1,))
        assert dist.get_rank() == rank
    add_up(device, 100_003)
    leave(store, rank, (0, 2, 3))


@pytest.mark.parametrize("how", slow_after_first(["by error", "by number", "unknown"]))
def test_a_new_process_takes_the_place_of_a_lost_one(how, device):
    assert run_ranks(replaced, 4, device, how, group=False) == [None, -signal.SIGKILL, None, None]


def lost_from_a_part(rank, size):
    """Rank 2 dies in a call with rank 1, for which rank 0 waits in another group."""
    parts = [dist.new_group([0, 1]), dist.new_group([1, 2])]
    mine = parts[0] if rank == 0 else parts[1]
    dist.all_reduce(torch.ones(1))
    if rank == 2:
        os._exit(7)
    with pytest.raises(dist.DistBackendError) as caught:
        while True:
            dist.all_reduce(torch.ones(1000), group=mine)
    begin = time.monotonic()
    replaced = hccl_like.replace(caught.value, timeout=0, grace=25)
    assert replaced == hccl_like.elastic.Membership(rank=rank, size=2, joined=(), lost=(2,))
    assert time.monotonic() - begin < 10
    add_up()


def test_ranks_that_wait_in_groups_without_the_lost_one_hear_of_it():
    assert run_ranks(lost_from_a_part, 3) == [None, None, 7]


def left_alone(rank, size):
    if rank == 1:
        os._exit(7)
    with pytest.raises(dist.DistBackendError):
        while True:
            dist.all_reduce(torch.ones(1000))
    assert hccl_like.replace([1], timeout=0.2) == hccl_like.elastic.Membership(rank=rank // 2, size=2, joined=(), lost=(1,))
    add_up()


def test_without_a_new_process_the_group_is_smaller():
    assert run_ranks(left_alone, 3) == [None, 7, None]


# ------------------------------------------------------------------------------------------------------------ coming and going


class Coming:
    """Processes of one job, which come and are killed."""

    def __init__(self, founders):
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.living = {}
        for rank in range(founders):
            self.start(rank, founders)

    def start(self, rank=-1, founders=0):
        pid = os.fork()
        if pid:
            self.living[pid] = rank
            return
        status = 1
        try:
            torch.set_num_threads(1)
            store = dist.TCPStore("127.0.0.1", self.store.port, is_master=False, wait_for_workers=False)
            if rank >= 0:
                dist.init_process_group("hccl-like", store=store, rank=rank, world_size=founders, timeout=timedelta(seconds=20))
            else:
                hccl_like.join(store, timeout=20)
            stay(store)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def kill(self):
        pid = random.choice(list(self.living))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        del self.living[pid]

    def end(self):
        """Exit codes of those that live."""
        self.store.set("stop", "")
        return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.living]


def held():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def stay(store):
    """Works until the end, whoever comes and goes. Returns when all agree to end."""
    steps, sizes = 0, set()
    while True:
        try:
            flag = float(dist.get_rank() == 0 and store.check(["stop"]))
            told = torch.tensor([1.0, flag])
            dist.all_reduce(told)
            assert told[0] == dist.get_world_size(), (told, dist.get_world_size())
            if told[1]:
                break
            hccl_like.grow(attempt=2.0)
            steps += 1
            sizes.add(dist.get_world_size())
        except dist.DistBackendError as error:
            hccl_like.replace(error, timeout=0.0)
    descriptors, threads = held()
    size = dist.get_world_size()
    # The store, one end of each connection, the board and the group's files; whatever was there for ranks that are gone is not.
    assert descriptors < 60 + 8 * size, os.popen(f"ls -l /proc/{os.getpid()}/fd").read()
    assert threads < 20, threads
    dist.destroy_process_group()


@pytest.mark.slow
def test_ranks_come_and_go_at_random():
    number = random.randrange(1 << 16)
    print("seed", number)
    random.seed(number)
    job = Coming(3)
    for _ in range(30):
        time.sleep(random.uniform(0.2, 1.5))
        job.start()
        time.sleep(random.uniform(0.2, 1.5))
        job.kill()
    time.sleep(5)
    assert job.end() == [0, 0, 0]


# ------------------------------------------------------------------------------------------------------------ wrong use


def refused(rank, size):
    with pytest.raises(RuntimeError, match="in a job already"):
        hccl_like.join()


def test_a_rank_cannot_join():
    run_ranks(refused, 1)


def test_who_joins_says_where(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ValueError, match="needs the store of the job"):
        hccl_like.join()


def alone(rank, size, listener):
    store = make_store(rank, listener)
    with pytest.raises(TimeoutError, match="do its ranks call hccl_like.grow"):
        hccl_like.join(store, timeout=0.3)
    assert not store.check(["hccl-like/elastic/knock/1"])


def test_a_job_that_does_not_grow_is_not_waited_for():
    run_ranks(alone, 1, group=False)


@pytest.mark.slow
def test_the_example_has_the_loss_curve_of_one_process():
    program = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "elastic", "train.py")
    told = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=240)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "3 ranks at the end, exit codes [0, 0, -9, 0]" in told.stdout
