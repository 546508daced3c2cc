"""HCCL_LIKE_VERIFY: results that must be equal are compared across ranks, beside the calls."""

import time

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks

EACH = {"HCCL_LIKE_VERIFY": "1"}


def failure_within(seconds, call):
    """The failure of the group, which the call that finds the digests of all ranks raises."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            call()
        except RuntimeError as error:
            return str(error)
    return None


def gathers_into_one_tensor(rank, size, device, wrong, before=0):
    """The ranks of `wrong` name one tensor twice for the output, so that they end with other bytes than the rest."""
    for _ in range(before):
        dist.all_reduce(torch.ones(1000, device=device))
    outputs = [torch.zeros(300, device=device) for _ in range(size)]
    if rank in wrong:
        outputs[1] = outputs[0]
    dist.all_gather(outputs, torch.full((300,), float(rank + 1), device=device))
    return failure_within(20, lambda: dist.all_reduce(torch.ones(3, device=device)))


def test_the_rank_whose_result_differs_is_named_on_all_ranks(device):
    for message in run_ranks(gathers_into_one_tensor, 3, device, [1], environment=EACH):
        assert "all_gather #1 (3600 bytes on " in message
        assert "ended with different bits: rank 1 against 2 that agree" in message


def test_of_two_ranks_neither_is_right():
    for message in run_ranks(gathers_into_one_tensor, 2, "cpu", [1], 1, environment=EACH):
        assert "all_gather #2 (2400 bytes on cpu) ended with different bits: rank 0 against rank 1" in message


def looks_at_every_third(rank, size):
    def gather(wrong):
        outputs = [torch.zeros(3) for _ in range(size)]
        if wrong:
            outputs[1] = outputs[0]
        dist.all_gather(outputs, torch.full((3,), float(rank)))

    gather(wrong=rank == 1)  # the first
    dist.reduce_scatter_tensor(torch.ones(1), torch.ones(size))  # has no number here
    gather(wrong=rank == 1)
    for _ in range(20):
        gather(wrong=False)
    gather(wrong=rank == 1)  # the 23rd
    gather(wrong=rank == 1)  # the 24th
    return failure_within(20, dist.barrier)


def test_every_nth_call_is_looked_at():
    for message in run_ranks(looks_at_every_third, 2, environment={"HCCL_LIKE_VERIFY": "1/3"}):
        assert "all_gather #25 (" in message


def right_calls(rank, size, device):
    other = (rank + 1) % size
    for count in (1, 1000, 300_000):
        tensors = [torch.arange(float(count), device=device) for _ in range(4)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        # A rank that waited for the others' digests here would never send.
        message = torch.zeros(1, device=device)
        if rank % 2 == 0:
            dist.send(torch.ones(1, device=device), other)
            dist.recv(message, (rank - 1) % size)
        else:
            dist.recv(message, rank - 1)
            dist.send(torch.ones(1, device=device), other)
        for work, tensor in zip(works, tensors, strict=True):
            work.wait()
            tensor.mul_(rank)  # at once: the result was looked at before
        gathered = torch.empty(size * count, device=device)
        dist.all_gather_into_tensor(gathered, torch.full((count,), float(rank), device=device))
        gathered.fill_(rank)
        dist.broadcast(tensors[0], 0)
        tensors[0].fill_(rank)
        strided = torch.ones(count, 2, device=device)[:, 0]
        dist.all_reduce(strided)
        strided.fill_(rank)
        with dist._coalescing_manager(device=torch.device(device), async_ops=True) as block:
            for tensor in tensors:
                dist.all_reduce(tensor)
        block.wait()
        tensors[1].fill_(rank)
        dist.all_to_all_single(torch.empty(size, device=device), torch.ones(size, device=device))
        dist.all_reduce(torch.tensor([float("nan")], device=device))
    future = dist.all_reduce(torch.ones(3, device=device), async_op=True).get_future()
    future.wait()
    dist.barrier()


@pytest.mark.parametrize("size", [2, 4])
def test_equal_results_pass_whatever_the_program_does_next(device, size):
    run_ranks(right_calls, size, device, environment=EACH)


@pytest.mark.parametrize("environment", [{"TORCH_SIM_DISCRETE": "1"}, {"TORCH_SIM_DISCRETE": "1", "HCCL_LIKE_SLICE_BYTES": "64K"}])
def test_equal_results_pass_on_a_device_that_is_staged(environment):
    run_ranks(right_calls, 2, "sim", environment=EACH | environment)


def ends_with_a_difference(rank, size):
    outputs = [torch.zeros(3) for _ in range(size)]
    if rank == 0:
        outputs[1] = outputs[0]
    dist.all_gather(outputs, torch.full((3,), float(rank)))
    with pytest.raises(RuntimeError, match=r"all_gather #1 \(24 bytes on cpu\) ended with different bits: rank 0 against rank 1"):
        dist.destroy_process_group()


def test_a_difference_in_the_last_call_is_told_when_the_group_is_destroyed():
    run_ranks(ends_with_a_difference, 2, environment=EACH)


def refused(rank, size):
    pass


def test_all_ranks_have_the_same_setting():
    with pytest.raises(Exception, match="HCCL_LIKE_VERIFY"):
        run_ranks(refused, 2, environment=lambda rank: {"HCCL_LIKE_VERIFY": f"1/{rank + 1}"})

