"""How groups end: in order, by abort, by the death of a rank, with the program, and in a forked child."""

import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import values
from conftest import slow_after_first
from ranks import make_store, run_ranks


def threads():
    """The names of this process's threads, but for those of the simulated device, which leave on their own."""
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            names.append(open(f"/proc/self/task/{task}/comm").read().strip())
        except FileNotFoundError:
            continue
    return sorted(name for name in names if not name.startswith("sim"))


def descriptors():
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue
    return sorted(one.split(":")[0] if one.startswith(("socket:", "pipe:")) else one for one in found)


def shared_mappings():
    return sorted(
        line.split(maxsplit=5)[5].strip()
        for line in open("/proc/self/maps")
        if "memfd" in line and "sim" not in line.split(maxsplit=5)[5]
    )


def everything_open():
    return Counter(threads() + descriptors() + shared_mappings())


def leaves_nothing(rank, size, listener, device):
    store = make_store(rank, listener)
    torch.ones(1, device=device).add_(1).cpu()

    def use_and_destroy():
        dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size)
        group = dist.new_group(list(range(size)))
        works = [dist.all_reduce(torch.ones(1000 * (i + 1), device=device), async_op=True) for i in range(4)]
        works += [dist.all_reduce(torch.ones(70_000, device=device), group=group, async_op=True)]
        works[1].get_future().wait()
        works[0].wait()
        kept = works[2]
        dist.destroy_process_group()
        return kept

    use_and_destroy()  # what torch and the device keep from the first time is not ours
    before = everything_open()
    kept = [use_and_destroy() for _ in range(3)]
    left = everything_open() - before
    assert not left, f"left behind: {dict(left)}"
    assert all(work.is_completed() for work in kept)


def test_destroy_leaves_no_thread_descriptor_or_mapping(device, transport):
    run_ranks(leaves_nothing, 2, device, group=False, environment=transport)


def destroys_with_work_under_way(rank, size, device):
    tensors = [torch.full((100_000,), float(rank + 1), device=device) for _ in range(8)]
    if device == "sim":
        torch.sim._sleep(100)
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    dist.destroy_process_group()
    for tensor in tensors:
        assert values.equal(tensor, torch.full((100_000,), size * (size + 1) / 2)), "destroy waits for what runs"


def test_destroy_drains(device, transport):
    run_ranks(destroys_with_work_under_way, 2, device, environment=transport)


def aborts_from_another_thread(rank, size, device):
    backend = dist.group.WORLD._get_backend(torch.device(device))
    dist.barrier()
    if rank == 1:
        # Stays away from the call, and hears of the abort all the same.
        deadline = time.monotonic() + 10
        with pytest.raises(RuntimeError, match="abort"):
            while time.monotonic() < deadline:
                dist.recv(torch.zeros(1), 0)
        return
    aborted_at = []

    def abort():
        time.sleep(0.3)
        aborted_at.append(time.monotonic())
        backend.abort()

    thread = threading.Thread(target=abort)
    thread.start()
    with pytest.raises(RuntimeError, match="abort"):
        work = dist.all_reduce(torch.ones(10, device=device), async_op=True)
        work.wait()
        if device == "sim":
            torch.sim.synchronize()
            dist.all_reduce(torch.ones(1, device=device))
    assert time.monotonic() - aborted_at[0] < 1
    thread.join()
    assert "SUCCESS" not in str(backend.get_error())


def test_abort_wakes_every_waiter(device):
    run_ranks(aborts_from_another_thread, 2, device)


def outlives_a_killed_rank(rank, size, device):
    dist.all_reduce(torch.ones(10, device=device))
    if device == "sim":
        torch.sim.synchronize()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"through {rank}", "")
    if rank == 1:
        store.wait([f"through {other}" for other in range(size)])  # or a late rank learns of the death in this call
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        for _ in range(3):
            dist.all_reduce(torch.ones(10, device=device))
            if device == "sim":
                torch.sim.synchronize()
    assert time.monotonic() - begin < 10, "a dead rank must be noticed before the time-out"
    assert "rank 1" in str(caught.value), caught.value
    return "survived"


def test_survivors_name_the_rank_that_died(device, transport):
    results = run_ranks(outlives_a_killed_rank, 3, device, environment=transport)
    assert results == ["survived", -signal.SIGKILL, "survived"]


def outlives_a_large_rank(rank, size):
    pids = torch.empty(size, dtype=torch.int64)
    dist.all_gather(list(pids.split(1)), torch.tensor([os.getpid()]))
    if rank == 1:
        memory = torch.ones(3 << 28)  # 3 GiB, which take the kernel half a second to free
        dist.barrier()
        os.kill(os.getpid(), signal.SIGKILL if memory[0] == 1 else 0)
    process = os.pidfd_open(int(pids[1]))
    dist.barrier()
    with pytest.raises(dist.DistBackendError, match="lost rank 1"):
        while True:
            dist.all_reduce(torch.ones(10))
    ended, _, _ = select.select([process], [], [], 0)
    assert not ended, "noticed before its end is over: sockets and pidfds tell only then"


def test_a_death_is_noticed_before_the_dead_ranks_memory_is_freed():
    run_ranks(outlives_a_large_rank, 3)


def forks(rank, size):
    dist.all_reduce(torch.ones(3))
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(3))
        except ValueError as error:
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert values.equal(tensor, torch.full((3,), float(size))), "the parent's group is as good as before"


def test_a_forked_child_gets_an_error_and_harms_nothing():
    run_ranks(forks, 2)


WAITS = {
    "all_reduce": lambda: dist.all_reduce(torch.ones(3)),
    "all_reduce of much": lambda: dist.all_reduce(torch.ones(1 << 20)),
    "wait": lambda: dist.all_reduce(torch.ones(3), async_op=True).wait(),
    "recv": lambda: dist.recv(torch.ones(3), 1),
    "barrier": dist.barrier,
    "all_reduce on a device": lambda: dist.all_reduce(torch.ones(3, device="sim"), async_op=True).wait(timedelta(seconds=20)),
}


ASYNCHRONOUS = ("wait", "recv", "all_reduce on a device")


def is_interrupted(rank, size, name):
    if rank == 1:
        dist.recv(torch.zeros(1), 0)
        return
    begin = []

    def interrupt():
        begin.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.3, interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        WAITS[name]()
    assert time.monotonic() - begin[0] < 1
    dist.send(torch.ones(1), 1)
    if name in ASYNCHRONOUS:  # the call goes on without anybody who waits for it, and fails when rank 1 leaves
        with pytest.raises(dist.DistBackendError, match="nobody has waited for .*lost rank 1"):
            dist.destroy_process_group()


@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c_ends_the_wait(name):
    run_ranks(is_interrupted, 2, name)


PROGRAM = """
import os, sys
import torch
import torch.distributed as dist

rank, path, device = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("hccl-like", store=dist.FileStore(path, 2), rank=rank, world_size=2)
group = dist.new_group([0, 1])
tensor = torch.ones(1000, device=device)
dist.all_reduce(tensor)
work = dist.all_reduce(tensor, group=group, async_op=True)
future = dist.all_reduce(torch.ones(5, device=device), async_op=True).get_future()
{end}
"""


# A thread that asks for the GIL while Python ends is unwound by it, and aborts the process if it is in a destructor.
CALLBACKS = """
for _ in range(20):
    future = dist.all_reduce(torch.ones(20_001, device=device), async_op=True).get_future()
    future.then(lambda done: done.value()[0].sum())
"""


@pytest.mark.parametrize(
    "end",
    [*slow_after_first(["pass", "work.wait()", "sys.exit(0)", "del group, work, future", "raise SystemExit"]), CALLBACKS],
    ids=["with calls under way", "after waiting", "by sys.exit", "after dropping everything", "by an exception",
         "with callbacks under way"],
)  # fmt: skip
@pytest.mark.parametrize("device", slow_after_first(["sim", "cpu"]), indirect=True)
def test_a_program_ends_quietly_without_destroy(device, end, tmp_path):
    program = PROGRAM.format(end=textwrap.dedent(end))
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank), str(tmp_path / "store"), device],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for rank, process in enumerate(ranks):
        output, _ = process.communicate(timeout=60)
        said = [line for line in output.splitlines() if "destroy_process_group() was not called" not in line]
        assert process.returncode == 0, f"rank {rank}: exit code {process.returncode}\n{output}"
        assert not any(word in output for word in ("Traceback", "terminate called", "Fatal")), output
        assert not said, f"rank {rank} said:\n{output}"
