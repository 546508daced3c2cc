"""Ranks that make different calls: all of them raise, with what both sides call, on one host and between hosts.

One rank of several makes another call than the others, in a group of its own for each case, so that one set of processes tries them
all. Whoever has no part left in the call hears of it in the next one, a barrier.
"""

import re
import time

import pytest
import torch
import torch.distributed as dist

import hccl_like
from conftest import slow_after_first
from ranks import run_ranks

FEW = 12  # elements: over the board, or in one message
MANY = 300_000  # of which messages are announced, or which go from memory to memory
SOON = 4.0  # seconds until everybody has been told: two where nothing else runs


class Calls:
    """Every collective, as one rank of a group makes it."""

    def __init__(self, group, device):
        self.group, self.device = group, device
        self.rank, self.size = group.rank(), group.size()

    def ones(self, count, dtype=torch.float32):
        return torch.ones(count, dtype=dtype, device=self.device)

    def parts(self, count, root):
        return [self.ones(count) for _ in range(self.size)] if self.rank == root else None

    def barrier(self):
        dist.barrier(group=self.group)

    def all_reduce(self, count=FEW, op=dist.ReduceOp.SUM, dtype=torch.float32):
        dist.all_reduce(self.ones(count, dtype), op, group=self.group)

    def broadcast(self, root, count=FEW):
        dist.broadcast(self.ones(count), group_src=root, group=self.group)

    def reduce(self, root, count=FEW):
        dist.reduce(self.ones(count), group_dst=root, group=self.group)

    def gather(self, root, count=FEW):
        dist.gather(self.ones(count), self.parts(count, root), group_dst=root, group=self.group)

    def scatter(self, root, count=FEW):
        dist.scatter(self.ones(count), self.parts(count, root), group_src=root, group=self.group)

    def all_gather(self, count=FEW):
        dist.all_gather_into_tensor(self.ones(count * self.size), self.ones(count), group=self.group)

    def reduce_scatter(self, count=FEW):
        dist.reduce_scatter_tensor(self.ones(count), self.ones(count * self.size), group=self.group)

    def more_for_others(self):
        return {rank: FEW + 1 for rank in range(self.size) if rank != self.rank}

    def nothing(self):
        return dict.fromkeys(range(self.size), 0)

    def all_to_all(self, given=None, taken=None):
        """Rows for and from each rank; FEW unless said otherwise: a dict by rank."""
        given = [(given or {}).get(rank, FEW) for rank in range(self.size)]
        taken = [(taken or {}).get(rank, FEW) for rank in range(self.size)]
        dist.all_to_all_single(self.ones(sum(taken)), self.ones(sum(given)), taken, given, group=self.group)


# What all ranks but one call, what that one calls, and words of either.
CASES = {
    "shape": (
        lambda c: c.all_reduce(FEW),
        lambda c: c.all_reduce(FEW + 1),
        "all_reduce of float32 (sum)",
        "all_reduce of float32 (sum)",
    ),
    "shape of many": (
        lambda c: c.all_reduce(MANY),
        lambda c: c.all_reduce(MANY + 4096),
        "all_reduce of float32 (sum)",
        "all_reduce of float32 (sum)",
    ),
    "few and many": (
        lambda c: c.all_gather(FEW),
        lambda c: c.all_gather(MANY),
        "all_gather of float32",
        "all_gather of float32",
    ),
    "type": (
        lambda c: c.all_reduce(),
        lambda c: c.all_reduce(dtype=torch.int32),
        "all_reduce of float32 (sum)",
        "all_reduce of int32 (sum)",
    ),
    "reduce op": (
        lambda c: c.all_reduce(),
        lambda c: c.all_reduce(op=dist.ReduceOp.MAX),
        "all_reduce of float32 (sum)",
        "all_reduce of float32 (max)",
    ),
    "reduce op of many": (
        lambda c: c.all_reduce(MANY),
        lambda c: c.all_reduce(MANY, op=dist.ReduceOp.MIN),
        "all_reduce of float32 (sum)",
        "all_reduce of float32 (min)",
    ),
    "operation": (
        lambda c: c.all_reduce(),
        lambda c: c.broadcast(0),
        "all_reduce of float32 (sum)",
        "broadcast of float32 with root 0",
    ),
    "operation with one root": (
        lambda c: c.gather(1),
        lambda c: c.scatter(1),
        "gather of float32 with root 1",
        "scatter of float32 with root 1",
    ),
    "operation of many": (
        lambda c: c.all_gather(MANY),
        lambda c: c.reduce_scatter(MANY),
        "all_gather of float32",
        "reduce_scatter of float32 (sum)",
    ),
    "no data": (
        lambda c: c.all_to_all(),
        lambda c: c.barrier(),
        "all_to_all of float32",
        "barrier",
    ),
    "elements and none": (
        lambda c: c.all_reduce(),
        lambda c: c.all_reduce(0),
        " 12 elements",
        " 0 elements",
    ),
    "many elements and none": (
        lambda c: c.all_gather(MANY),
        lambda c: c.all_gather(0),
        "all_gather of float32",
        " 0 elements",
    ),
    "rows and none": (
        lambda c: c.all_to_all(),
        lambda c: c.all_to_all(c.nothing(), c.nothing()),
        "all_to_all of float32",
        " 0 elements",
    ),
    "an operation and one without elements": (
        lambda c: c.all_reduce(),
        lambda c: c.all_to_all(c.nothing(), c.nothing()),
        "all_reduce of float32 (sum)",
        "all_to_all of float32",
    ),
    "order": (
        lambda c: (c.all_reduce(), c.broadcast(1)),
        lambda c: (c.broadcast(1), c.all_reduce()),
        "all_reduce of float32 (sum)",
        "broadcast of float32 with root 1",
    ),
    "order of sizes": (
        lambda c: (c.all_reduce(FEW), c.all_reduce(FEW + 1)),
        lambda c: (c.all_reduce(FEW + 1), c.all_reduce(FEW)),
        "all_reduce of float32 (sum)",
        "all_reduce of float32 (sum)",
    ),
    "root of broadcast": (lambda c: c.broadcast(0), lambda c: c.broadcast(1), "with root 0", "with root 1"),
    "root of reduce": (lambda c: c.reduce(0), lambda c: c.reduce(1), "with root 0", "with root 1"),
    "root of gather": (lambda c: c.gather(0), lambda c: c.gather(1), "with root 0", "with root 1"),
    "root of scatter": (lambda c: c.scatter(0), lambda c: c.scatter(1), "with root 0", "with root 1"),
    "oneself as root of broadcast": (
        lambda c: c.broadcast(0),
        lambda c: c.broadcast(c.size - 1),
        "with root 0",
        "with root ",
    ),
    "oneself as root of reduce": (
        lambda c: c.reduce(0),
        lambda c: c.reduce(c.size - 1),
        "with root 0",
        "with root ",
    ),
    "root of many": (lambda c: c.reduce(0, MANY), lambda c: c.reduce(1, MANY), "with root 0", "with root 1"),
    "split": (
        lambda c: c.all_to_all(),
        lambda c: c.all_to_all(given=c.more_for_others()),
        "all_to_all of float32",
        "all_to_all of float32",
    ),
    "split of what comes": (
        lambda c: c.all_to_all(),
        lambda c: c.all_to_all(taken=c.more_for_others()),
        "all_to_all of float32",
        "all_to_all of float32",
    ),
    "split of one's own part": (
        lambda c: c.all_to_all(),
        lambda c: c.all_to_all(given={c.rank: FEW + 1}),
        "gives itself 52 bytes",
        "expects 48 bytes from itself",
    ),
}


def disagree(rank, size, device, odd_ranks=2):
    """Of each case and each of the odd ranks: what this rank was told, and what is wrong with that."""
    wrong = []
    for name, (usual, other, *words) in CASES.items():
        if name == "no data" and device != "cpu":
            continue  # a barrier is numbered with the calls on host tensors (process_group/issue/communicators.h)
        for odd in (size - 1, 0)[:odd_ranks]:
            if odd == 0 and "oneself" in name:
                continue
            calls = Calls(dist.new_group(), device)
            begin = time.monotonic()
            try:
                calls.barrier()
                begin = time.monotonic()
                (other if rank == odd else usual)(calls)
                calls.barrier()
                text = "no error"
            except dist.DistBackendError as error:
                text = str(error)
            late = time.monotonic() - begin
            failure = hccl_like.failure(text)
            told = failure is not None and failure.number in (501, 502) and f"rank {odd} " in text
            if not told or not all(word in text for word in words):
                wrong.append(f"{name}, rank {odd} differs: {text}")
            if late > SOON:
                wrong.append(f"{name}, rank {odd} differs: told after {late:.1f} s")
            dist.barrier()  # other groups go on
    return wrong


def try_all(size, device="cpu", **how):
    answers = run_ranks(disagree, size, device, timeout=60, group_timeout=60, **how)
    wrong = [f"rank {rank}: {text}" for rank, texts in enumerate(answers) for text in texts]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", slow_after_first(["sim", "cpu"]), indirect=True)
def test_all_ranks_of_one_host_are_told(device):
    try_all(3, device)


def test_all_ranks_of_two_hosts_are_told(make_hosts):
    try_all(4, hosts=make_hosts(2))


def test_both_of_two_ranks_that_pass_messages_are_told():
    try_all(2, environment={"HCCL_LIKE_BOARD": "0"})


def told(rank, size, device):
    """The sentences that two ranks were told, without what comes before them."""
    said = []
    for usual, other in (CASES[name][:2] for name in ("shape", "shape of many", "type", "operation", "operation of many")):
        calls = Calls(dist.new_group(), device)
        try:
            (other if rank else usual)(calls)
            calls.barrier()
        except dist.DistBackendError as error:
            number, sentence = re.search(r"\[HCCL-LIKE-(50[12])\]: mismatch: (.*)", str(error)).groups()
            said.append(sentence)
        dist.barrier()
    return said


@pytest.mark.parametrize("board", ["1", "0"], ids=["in shared memory", "by messages"])
def test_both_ranks_are_told_the_same_sentence(board):
    zero, one = run_ranks(told, 2, "cpu", environment={"HCCL_LIKE_BOARD": board})
    assert zero == one and len(zero) == 5
    assert zero[0] == (
        "ranks 0 and 1 of group 1 disagree about call #1, all_reduce of float32 (sum): rank 0 passed 12 elements, rank 1 "
        "passed 13 elements. Every rank must make the same calls in the same order, with the same sizes")
