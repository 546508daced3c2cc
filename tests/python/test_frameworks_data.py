"""torch's DataLoader beside a running group: its workers are forked from a rank, and hand over memory that ranks share."""

import gc
import os
import re
import signal
import time

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import training
from conftest import slow_after_first
from training import on_ranks

EXAMPLES = 48
BATCH = 8


class Examples(Dataset):
    """Each is made from its number, and says which process made it."""

    def __len__(self):
        return EXAMPLES

    def __getitem__(self, number):
        generator = torch.Generator().manual_seed(number)
        return number, os.getpid(), torch.randn(13, generator=generator), torch.randn(5, generator=generator)


def loader_of(device, workers, **options):
    sampler = DistributedSampler(Examples(), shuffle=True, seed=3)
    return DataLoader(Examples(), BATCH, sampler=sampler, num_workers=workers, pin_memory=device.type != "cpu", **options)


def summed(tensor):
    """Checks a sum of all ranks in memory that a worker wrote against one in memory of this process alone."""
    own = tensor.clone()
    dist.all_reduce(tensor)
    dist.all_reduce(own)
    assert tensor.equal(own)


def epoch(wrapped, optimiser, loader, device, number):
    """Trains on this rank's examples; their numbers, and the processes that made them."""
    loader.sampler.set_epoch(number)
    seen, makers = [], set()
    for numbers, processes, x, target in loader:
        seen += numbers.tolist()
        makers |= set(processes.tolist())
        optimiser.zero_grad()
        training.loss_of(wrapped(x.to(device, non_blocking=True)), target.to(device, non_blocking=True)).backward()
        optimiser.step()
        if device.type != "cpu":
            assert x.is_pinned() and target.is_pinned()
        elif loader.num_workers:
            assert x.is_shared()
        summed(x)
    return seen, makers


def opened():
    """How many files this process has open."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def lives(process):
    """Whether there is such a process; one that has ended and was not waited for is none."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def shared_by(processes):
    """Files in shared memory that torch or this library named after one of these processes; others reuse their numbers."""
    names = (name for name in os.listdir("/dev/shm") if name.startswith(("torch_", "hccl")))
    return [name for name in names if {int(number) for number in re.findall(r"\d+", name)} & set(processes)]


def within(seconds, condition):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def train(device, workers, persistent, strategy):
    torch.multiprocessing.set_sharing_strategy(strategy)
    wrapped = DistributedDataParallel(training.model(device))
    optimiser = training.descent(wrapped.parameters())
    seen, before, ended = [], 0, set()
    for number in range(3):
        loader = loader_of(device, workers, persistent_workers=persistent)
        for _ in range(2):
            numbers, makers = epoch(wrapped, optimiser, loader, device, number)
            seen.append(numbers)
            ended |= makers
        del loader
        before = before or opened()  # the first loader opens what torch then keeps, for example its manager of shared memory
    if workers:
        assert len(ended) == 3 * workers * (1 if persistent else 2) and os.getpid() not in ended
        assert within(10, lambda: opened() <= before), (before, opened())
        assert within(10, lambda: not any(map(lives, ended)))
    return seen, ended | {os.getpid()}, [parameter.tolist() for parameter in wrapped.parameters()]


@pytest.mark.parametrize("strategy", slow_after_first(["file_descriptor", "file_system"]))
@pytest.mark.parametrize("persistent", slow_after_first([True, False]), ids=["persistent", "for one epoch"])
def test_workers_change_nothing_and_leave_nothing_behind(device, persistent, strategy):
    results = on_ranks(train, 2, device, 2, persistent, strategy)
    for one, other in zip(results[0][0], results[1][0], strict=True):
        assert sorted(one + other) == list(range(EXAMPLES))
    alone = on_ranks(train, 2, device, 0, False, strategy)
    assert [weights for _, _, weights in results] == [alone[0][2]] * 2
    assert not shared_by(set.union(*(processes for _, processes, _ in results)))


class Held(Examples):
    """Makes one batch, and the next once there is a file."""

    def __init__(self, path):
        self.path, self.made = path, 0

    def __getitem__(self, number):
        self.made += 1
        assert self.made <= BATCH or within(60, lambda: os.path.exists(self.path))
        return super().__getitem__(number)


def killed(device, path):
    loader = iter(DataLoader(Held(path), BATCH, num_workers=1))
    _, _, x, _ = next(loader)
    summed(x)
    mine = torch.tensor([loader._workers[0].pid, os.getpid()])
    every = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(every, mine)
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match="lost rank 1"):
        dist.barrier()
    assert lives(every[1][0].item()), "the worker that was to live on has ended"
    open(path, "w").close()
    return torch.cat(every).tolist()


@pytest.mark.parametrize("transports", slow_after_first(["shm", "tcp"]))
def test_a_rank_that_is_killed_is_noticed_while_its_worker_lives(device, transports, tmp_path):
    """The worker has copies of the connections."""
    environment = {"HCCL_LIKE_TRANSPORTS": transports}
    processes, code = on_ranks(killed, 2, device, str(tmp_path / "go"), environment=environment)
    assert code == -signal.SIGKILL
    assert within(30, lambda: not any(map(lives, processes)))
    assert not shared_by(processes)
