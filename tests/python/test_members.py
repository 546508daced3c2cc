"""Ranks that pass other members to new_group: all that could wait for each other raise within two seconds, with both lists."""

import contextlib
import functools
import re
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import hccl_like
from ranks import make_store, run_ranks

SOON = 2.0


def told_by(make):
    """(what a rank is told, seconds)."""
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="ranks disagree about the members of group 1: ") as caught:
        make()
    late = time.monotonic() - begin
    assert hccl_like.failure(caught.value).number == 501
    text = str(caught.value)
    return re.search(r"group 1: (.*)\. Every rank must make the same calls of new_group", text)[1], late


def passes(rank, size, lists, last, backend=None):
    """Each rank passes its list; rank `last` once the others wait."""
    store = dist.distributed_c10d._get_default_store()
    if rank == last:
        store.wait([f"waits/{other}" for other in range(size) if other != rank])
        time.sleep(0.3)  # one that waits has come further than to say so
    store.set(f"waits/{rank}", "")
    if rank not in lists[rank] and rank != last:  # it has come and gone before anybody differs, perhaps
        with contextlib.suppress(dist.DistBackendError):
            dist.new_group(lists[rank], backend=backend)
        answer = None
    else:
        answer = told_by(lambda: dist.new_group(lists[rank], backend=backend))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # the default group is well
    assert tensor.tolist() == [size] * 3
    return answer


CASES = {
    "two lists": ([[0, 1], [1, 2], [1, 2]], 2),
    "who is in the middle waits": ([[0, 1], [1, 2], [0, 1]], 1),
    "of other sizes": ([[0, 1, 2], [0, 1], [0, 1, 2]], 1),
    "one stays out": ([[0, 1], [0], [0, 1]], 1),
    "one stays out and comes first": ([[1, 2], [0], [1, 2]], 2),
    "in one list and not in the other": ([[0, 1], [0, 2], [0, 2]], 0),
}


def check(answers, lists, last):
    told = [(rank, *answer) for rank, answer in enumerate(answers) if answer]
    assert told
    for rank, text, late in told:
        named = {(int(who), members) for who, members in re.findall(r"rank (\d) passed (\[[\d, ]*\])", text)}
        assert len(named) == 2 and all(str(lists[who]) == members for who, members in named), text
        assert late < (SOON if rank == last else 2 * SOON), late  # the others have waited for the last
    assert len({members for _, text, _ in told for members in re.findall(r"\[.*?\]", text)}) == 2


@pytest.mark.parametrize("lists, last", CASES.values(), ids=CASES)
def test_ranks_that_disagree_about_members_are_told_both_lists_at_once(lists, last):
    check(run_ranks(passes, 3, lists, last, group_timeout=60), lists, last)


def beside_gloo(function, rank, size, listener, *arguments):
    """In a default group of gloo, whose ranks make groups of ours."""
    dist.init_process_group("gloo", store=make_store(rank, listener), rank=rank, world_size=size, timeout=timedelta(seconds=60))
    answer = function(rank, size, *arguments)
    dist.destroy_process_group()
    return answer


@pytest.mark.parametrize("lists, last", CASES.values(), ids=CASES)
def test_ranks_whose_default_group_is_of_another_backend_are_told_too(lists, last):
    answers = run_ranks(functools.partial(beside_gloo, passes), 3, lists, last, "hccl-like", group=False)
    check(answers, lists, last)


def agree(rank, size):
    seen = []
    for members in ([0, 1], [1, 2], [2, 0], [0, 1, 2], [1]):
        group = dist.new_group(members)
        if rank in members:
            tensor = torch.ones(1)
            dist.all_reduce(tensor, group=group)
            seen.append(tensor.item() == len(members))
    # Ranks that make groups by themselves need not make the same ones.
    group = dist.new_group([rank], use_local_synchronization=True)
    dist.barrier(group=group)
    dist.barrier()  # rank 0 serves the store
    dist.destroy_process_group()
    return seen


def test_ranks_that_agree_get_their_groups():
    assert run_ranks(agree, 3) == [[True] * 3, [True] * 4, [True] * 3]


def nested(rank, size, backend=None):
    """Ranks with different parents make groups of other ranks under one name, which new_subgroups(group=...) lets them do."""
    halves = [[0, 2], [1, 3]]
    half, _ = dist.new_subgroups_by_enumeration(halves, backend=backend)
    alone, _ = dist.new_subgroups(group_size=1, group=half, backend=backend)
    pair, _ = dist.new_subgroups(group_size=2, group=half, backend=backend)
    sums = []
    for group in (half, alone, pair):
        tensor = torch.full((3,), float(rank))
        dist.all_reduce(tensor, group=group)
        sums.append(tensor[0].item())
    dist.barrier()
    return sums


def test_groups_without_a_common_member_may_have_one_name():
    sums = [[2, 0, 2], [4, 1, 4], [2, 2, 2], [4, 3, 4]]
    assert run_ranks(nested, 4) == sums
    assert run_ranks(functools.partial(beside_gloo, nested), 4, "hccl-like", group=False) == sums


def twice(rank, size):
    """The same names again, with other members: after a failure, or a restart with the same store."""
    store = dist.distributed_c10d._get_default_store()
    sums = []
    for members in ([0, 1], [1, 2]):
        group = dist.new_group(members)
        tensor = torch.ones(1)
        if rank in members:
            dist.all_reduce(tensor, group=group)
        sums.append(tensor.item())
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size)
    return sums


def test_what_an_earlier_default_group_has_left_in_the_store_counts_no_more():
    assert run_ranks(twice, 3) == [[2, 1], [2, 2], [1, 2]]


class SlowStore(dist.Store):
    """A store in Python, with no more than it must have, that gives rank 0's answers late: its list of the ranks, and that of a
    monitored barrier."""

    def __init__(self, store):
        super().__init__()
        self.store = store

    def set(self, key, value):
        self.store.set(key, value)

    def add(self, key, amount):
        return self.store.add(key, amount)

    def wait(self, keys, timeout):
        self.store.wait(keys, timeout)

    def get(self, key):
        if key.endswith(("/all", "/go")):
            time.sleep(0.5)
        return self.store.get(key)


def leaves_at_once(rank, size, listener, last_call):
    store = make_store(rank, listener)
    if rank:
        store = SlowStore(store)
    dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size)
    last_call()
    dist.destroy_process_group()


@pytest.mark.parametrize("last_call", [lambda: None, lambda: dist.monitored_barrier()], ids=["none", "monitored_barrier"])
def test_rank_0_does_not_take_its_store_away_from_a_rank_that_still_uses_it(last_call):
    run_ranks(leaves_at_once, 2, last_call, group=False)


def leaves_a_part(rank, size):
    part = dist.split_group(split_ranks=[[0, 1]])
    dist.all_reduce(torch.ones(1, device="sim"), group=part)
    begin = time.monotonic()
    dist.destroy_process_group(part)
    return time.monotonic() - begin


def test_nobody_waits_for_ranks_that_a_split_does_not_send_to_the_store(sim):
    assert max(run_ranks(leaves_a_part, 2, device_id=torch.device("sim", 0))) < SOON


def comes_late(rank, size):
    if rank == 0:
        time.sleep(1.5)
    dist.barrier(dist.new_group([0, 1]))


def test_a_rank_that_comes_late_is_waited_for_in_silence(capfd):
    run_ranks(comes_late, 2)
    assert capfd.readouterr().err == ""
