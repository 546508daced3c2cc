"""suspend() and resume(): a process closes all that its groups have opened, and opens it again, perhaps on another host."""

import os
import time
from collections import Counter
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import hccl_like
import values
from conftest import slow_after_first
from plugins import run
from ranks import make_store, run_ranks
from test_fabric import PROVIDERS, chosen, settings
from test_staged_calls import IN_SLICES


def descriptors():
    """Each with its number, so that none is taken for another one."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append((number, os.readlink(f"/proc/self/fd/{number}")))
        except FileNotFoundError:  # of this listing
            continue
    return found


def mappings():
    """Of files and shared memory; the memory of malloc and of threads that have ended has no name."""
    fields = [line.split(maxsplit=5) for line in open("/proc/self/maps")]
    return [(line[1], line[5].strip()) for line in fields if len(line) == 6 and not line[5].startswith("[")]


def threads():
    """But for those of the simulated device, which has one for each stream."""
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            found.append((task, open(f"/proc/self/task/{task}/comm").read().strip()))
        except FileNotFoundError:
            continue
    return [(task, name) for task, name in found if not name.startswith("sim")]


def of_ours():
    """What hccl-like has open in this process."""
    return {line for line in open("/proc/self/maps") if "hccl-like" in line} | {
        one for one in descriptors() + threads() if "hccl-like" in one[1]}


def everything_open():
    return {"descriptors": Counter(descriptors()), "mappings": Counter(mappings()), "threads": Counter(threads())}


def differences(before, now):
    return {kind: (now[kind] - before[kind], before[kind] - now[kind]) for kind in before if now[kind] != before[kind]}


def add_up(group=None, device="cpu", counts=(11, 100_003)):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    for count in counts:
        tensor = values.plain(rank, count, torch.float32).to(device)
        dist.all_reduce(tensor, group=group)
        assert values.equal(tensor, values.total([values.plain(r, count, torch.float32) for r in range(size)]))


def pass_on(device="cpu"):
    """A message to each rank's neighbour."""
    size, rank = dist.get_world_size(), dist.get_rank()
    taken = torch.zeros(5, device=device)
    request = dist.irecv(taken, (rank - 1) % size)
    dist.send(torch.full((5,), float(rank), device=device), (rank + 1) % size)
    request.wait()
    assert (taken == (rank - 1) % size).all()


def init(rank, size, store, seconds=30):
    dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=seconds))


def leave_store(store, rank, size):
    """Rank 0, which serves the store, is the last to go."""
    store.set(f"left/{rank}", "")
    if rank == 0:
        store.wait([f"left/{one}" for one in range(size)], timedelta(seconds=20))


def leaves_nothing(rank, size, listener, device):
    store = make_store(rank, listener)
    torch.ones(1, device=device).add_(1).cpu()
    add_up_once = torch.ones(100_003, device=device) * 2  # torch starts what it keeps, such as its own threads
    del add_up_once
    init(rank, size, store)  # and so do torch and the device for the first group
    add_up(device=device)
    pass_on(device)
    dist.destroy_process_group()
    before = everything_open()
    init(rank, size, dist.PrefixStore("again", store))
    part = dist.new_group(list(range(size - 1)))
    groups = [None, part] if rank < size - 1 else [None]
    for number in range(3):
        for group in groups:
            add_up(group, device)
        pass_on(device)
        work = dist.all_reduce(torch.ones(7, device=device), async_op=True)
        work.get_future().then(lambda future: None)
        hccl_like.suspend(timeout=20)
        deadline = time.monotonic() + 5  # a thread that waits for the store ends on its own
        while (more := differences(before, everything_open())) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not more, more
        assert work.is_completed()
        for group in groups:
            with pytest.raises(ValueError, match=r"suspended; call hccl_like.resume\(\)"):
                dist.all_reduce(torch.ones(1, device=device), group=group)
        with pytest.raises(ValueError, match=r"suspended; call hccl_like.resume\(\)"):
            dist.new_group([0, 1])
        if number == 1:
            child = os.fork()
            if child == 0:
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        hccl_like.resume(timeout=20)
    for group in groups:
        add_up(group, device)
    dist.destroy_process_group()
    leave_store(store, rank, size)


def test_nothing_is_open_between(device, transport):
    run_ranks(leaves_nothing, 3, device, group=False, environment=transport)


@pytest.mark.parametrize("provider", slow_after_first(PROVIDERS))
def test_nothing_of_libfabric_is_open_between(provider, device):
    run_ranks(leaves_nothing, 3, device, group=False, environment=settings(chosen("system"), provider))


def stages(rank, size, count, inherited):
    """Calls whose tensors go through staging buffers. The process that forks the ranks may have memory of earlier tests."""
    for _ in range(2):
        add_up(device="sim", counts=[count])
        hccl_like.suspend(timeout=20)
        assert of_ours() <= inherited
        hccl_like.resume(timeout=20)
    add_up(device="sim", counts=[count])


@pytest.mark.parametrize("without", ["map", "map, host functions", "map, export"])
def test_staging_buffers_are_closed(without, sim, stripped):
    run(stages, 2, stripped, without, 3_000_001, of_ours(), environment=IN_SLICES)


# -------------------------------------------------------------------------------------------------------- another host


def moves(rank, size, listener, hosts, device, renews_store):
    """Rank 1 goes from host 1 to host 2."""
    store = make_store(rank, listener)
    init(rank, size, store)
    part = dist.new_group([0, 1])
    add_up(device=device)
    hccl_like.suspend(timeout=20)
    if rank == 1:
        hosts[2].enter()
    new = None
    if renews_store:
        port = 29_777
        new = dist.TCPStore(hosts[0].address(), port, is_master=rank == 0, wait_for_workers=False, timeout=timedelta(seconds=20))
        if rank == 1:
            hosts.cable(1, "down")  # under the old store's connection
    hccl_like.resume(store=new, timeout=20)
    for count in (11, 1_000_003):
        add_up(device=device, counts=[count])
    pass_on(device)
    if rank < 2:
        add_up(part, device)
    other = dist.new_group([0, 1])  # through the new store
    if rank < 2:
        add_up(other, device)
    members = dist.group.WORLD._get_backend(torch.device(device))._info()
    dist.destroy_process_group()
    leave_store(new or store, rank, size)
    return members["layout"], [name for name, _ in members["members"]]


@pytest.mark.parametrize("renews_store", [False, True], ids=["same store", "new store"])
def test_a_rank_is_moved_to_another_host(renews_store, device, make_hosts):
    hosts = make_hosts(3)
    found = run_ranks(moves, 3, hosts, device, renews_store, hosts=hosts, layout=[0, 1, 0], group=False)
    for layout, names in found:
        assert layout[0] == layout[2] != layout[1] and names == ["host0", "host2", "host0"]


def separates(rank, size, listener, hosts):
    """Ranks of one host, which share memory, are on two afterwards, and then together on another one."""
    store = make_store(rank, listener)
    init(rank, size, store)
    add_up()
    for there in ([0, 1], [2, 2]):
        hccl_like.suspend(timeout=20)
        hosts[there[rank]].enter()
        hccl_like.resume(timeout=20)
        add_up()
        pass_on()
    dist.destroy_process_group()
    leave_store(store, rank, size)


def test_ranks_part_and_come_together(make_hosts):
    hosts = make_hosts(3)
    run_ranks(separates, 2, hosts, hosts=hosts, layout=[0, 0], group=False)


# ------------------------------------------------------------------------------------------------------------- the rest


def in_child(rank, size):
    """A child goes on in the place of its parent."""
    add_up()
    hccl_like.suspend(timeout=20)
    child = os.fork() if rank == 0 else 1
    if child == 0:
        status = 1
        try:
            hccl_like.resume(timeout=20)
            add_up()
            dist.barrier()
            status = 0
        finally:
            os._exit(status)
    if rank == 0:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    hccl_like.resume(timeout=20)
    add_up()
    dist.barrier()
    return 0


def test_a_child_can_resume_in_place_of_its_parent():
    assert run_ranks(in_child, 2) == [0, 0]


def keeps_what_was_set(rank, size, log):
    seen = []
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    dist.group.WORLD._register_on_completion_hook(lambda info: seen.append(info.seq))
    add_up()
    backend._set_default_timeout(timedelta(seconds=17))
    before = backend._get_sequence_number_for_group()
    hccl_like.suspend(timeout=20)
    assert not any(log in target for _, target in descriptors())
    hccl_like.suspend(timeout=20)  # nothing is left to do
    hccl_like.resume(timeout=20)
    hccl_like.resume(timeout=20)
    assert any(log in target for _, target in descriptors())
    assert backend._get_sequence_number_for_group() == before
    assert backend.options._timeout == timedelta(seconds=17)
    dist.barrier()
    dist.group.WORLD._wait_for_pending_works()
    assert seen == [1, 2, 3], seen
    assert backend._get_sequence_number_for_group() == before + 1


def test_options_hooks_and_numbers_stay(tmp_path):
    log = str(tmp_path / "log")
    run_ranks(keeps_what_was_set, 2, log, environment={"HCCL_LIKE_DEBUG_FILE": log, "HCCL_LIKE_DEBUG": "INFO"})


def keeps_mappable_tensors(rank, size, inherited):
    """A tensor of hccl_like.empty() keeps its place and its content, but peers cannot map it in between."""
    add_up()
    kept, freed = hccl_like.empty(3_000_000), hccl_like.empty(5_000_000)
    kept.copy_(values.plain(rank, len(kept), torch.float32))
    at = kept.data_ptr()
    hccl_like.suspend(timeout=20)
    assert of_ours() <= inherited
    assert not hccl_like.is_mappable(kept)
    del freed
    kept[:1000] += 1
    hccl_like.resume(timeout=20)
    assert hccl_like.is_mappable(kept) and kept.data_ptr() == at
    dist.all_reduce(kept)
    expected = values.total([values.plain(r, len(kept), torch.float32) for r in range(size)])
    expected[:1000] += size
    assert values.equal(kept, expected)


def test_mappable_tensors_stay():
    run_ranks(keeps_mappable_tensors, 2, of_ours(), environment={"HCCL_LIKE_TRANSPORTS": "shm"})


def trains(rank, size, device):
    """The losses of a model whose job is suspended after every second step, or not."""
    losses = {}
    for suspends in (False, True):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.ReLU(), torch.nn.Linear(300, 4)).to(device)
        model = torch.nn.parallel.DistributedDataParallel(module)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses[suspends] = []
        for step in range(6):
            loss = model(torch.full((8, 300), float(rank + step) / 10, device=device)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[suspends].append(loss.item())
            if suspends and step % 2 == 1:
                hccl_like.suspend(timeout=20)
                hccl_like.resume(timeout=20)
    assert losses[True] == losses[False]


def test_training_goes_on(device):
    run_ranks(trains, 2, device)


def many_times(rank, size, device):
    add_up(device=device)
    hccl_like.suspend(timeout=20)
    before = everything_open()
    for _ in range(20):
        hccl_like.resume(timeout=20)
        add_up(device=device)
        hccl_like.suspend(timeout=20)
        assert not differences(before, everything_open())
    hccl_like.resume(timeout=20)


@pytest.mark.parametrize("size", slow_after_first([2, 5]))
def test_it_can_be_repeated(size, device):
    run_ranks(many_times, size, device)
