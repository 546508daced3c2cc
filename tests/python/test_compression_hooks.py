"""hccl_like.hooks: DistributedDataParallel that sends gradients between hosts in fewer bytes."""

import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from hccl_like import hooks
from ranks import run_ranks

SIDE, STEPS = 200, 64
SMALL = 0.03  # beside 1, mx4 rounds it to 0


def gradients(rank):
    """A large number in each block of 32, and small ones."""
    numbers = torch.full((SIDE * SIDE,), SMALL) * (1 + rank / 4)
    numbers[::32] = 1
    return numbers.view(SIDE, SIDE)


def model_of(device, state):
    model = torch.nn.Linear(SIDE, SIDE, bias=False, device=device)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    parallel.register_comm_hook(state, hooks.compression_hook)
    return parallel


def step(parallel, wanted):
    """The averaged gradient, where each rank's own is `wanted`."""
    parallel.zero_grad()
    (parallel(torch.eye(SIDE, device=wanted.device)) * wanted.T).sum().backward()
    return parallel.module.weight.grad


def mean_of_steps(rank, size, device, compression, error_feedback):
    parallel = model_of(device, hooks.CompressionState(compression, error_feedback=error_feedback))
    wanted = gradients(rank).to(device)
    total = sum(step(parallel, wanted).cpu() for _ in range(STEPS))
    everyones = [torch.empty_like(total) for _ in range(size)]
    dist.all_gather(everyones, total)
    assert all(torch.equal(total, one) for one in everyones)
    return total / STEPS


def exact(size):
    return sum(gradients(rank) for rank in range(size)) / size


# What is late at the end is at most what the last two roundings took away.
LATE = {"mx8": 3 / 127, "mx4": 3 / 5}


@pytest.mark.parametrize("layout", [[0, 1], [0, 1, 2]], ids=["two hosts", "three hosts"])
@pytest.mark.parametrize("compression", LATE)
def test_with_error_feedback_no_gradient_is_lost(compression, layout, make_hosts):
    size = len(layout)
    found = run_ranks(mean_of_steps, size, "cpu", compression, True, hosts=make_hosts(size), layout=layout)[0]
    assert (found - exact(size)).abs().max() <= LATE[compression] / STEPS


def test_without_it_small_ones_are(make_hosts):
    found = run_ranks(mean_of_steps, 2, "cpu", "mx4", False, hosts=make_hosts(2))[0].flatten()
    assert (found[::32] == 1).all()
    small = torch.ones(SIDE * SIDE, dtype=torch.bool)
    small[::32] = False
    assert (found[small] == 0).all()


def several_on_a_host(rank, size):
    parallel = model_of("cpu", hooks.CompressionState("mx8"))
    found = step(parallel, gradients(rank))
    # Two roundings that are fed back, and one of the host's sum.
    assert (found - exact(size)).abs().max() <= 1.5 / 127 * 3
    return bits_of(found)


def bits_of(tensor):
    return tensor.numpy().tobytes()


def test_with_several_ranks_on_a_host(make_hosts):
    bits = run_ranks(several_on_a_host, 4, hosts=make_hosts(2))
    assert bits == [bits[0]] * 4


def on_one_host(rank, size):
    parallel = model_of("cpu", hooks.CompressionState("mx4"))
    torch.testing.assert_close(step(parallel, gradients(rank)), exact(size))


def test_on_one_host_averages_are_exact():
    run_ranks(on_one_host, 2)


def overflow(rank, size):
    parallel = model_of("cpu", hooks.CompressionState("mx4"))
    wanted = gradients(rank)
    step(parallel, wanted)
    spoilt = wanted.clone()
    if rank == 0:
        spoilt[100, 3] = float("inf")
    found = step(parallel, spoilt).flatten()
    # The product with the identity spreads it over its row of 200, which lies in seven blocks of 32.
    first = 100 * SIDE
    assert found[first : first + 7 * 32].isnan().all() and found.isnan().sum() == 7 * 32
    total = sum(step(parallel, wanted).clone() for _ in range(STEPS)) / STEPS
    assert (total - exact(size)).abs().max() <= 2 * LATE["mx4"] / STEPS


def test_an_overflow_is_seen_and_forgotten(make_hosts):
    run_ranks(overflow, 2, hosts=make_hosts(2))


def refusals(rank, size):
    state = hooks.CompressionState("mx8")
    with pytest.raises(TypeError, match="gradients of bfloat16 are not compressed; keep parameters in float32"):
        hooks.compression_hook(state, SimpleNamespace(buffer=lambda: torch.zeros(4, dtype=torch.bfloat16)))
    with pytest.raises(TypeError, match="make a new one when the job goes on"):
        pickle.dumps(state)
    with pytest.raises(RuntimeError, match="'mx5' is not a compression"):
        hooks.CompressionState("mx5")


def test_what_cannot_be_is_refused_with_a_sentence():
    run_ranks(refusals, 2)


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def digits(rank, size, listener, folder, address, compression):
    listener.close()
    sys.path.insert(0, str(EXAMPLES))
    os.chdir(folder)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR=address, MASTER_PORT="29511", OMP_NUM_THREADS="1")
    import train_digits

    # Below 97 % of the held-out digits it fails.
    return train_digits.main(["--parallel", "ddp", "--device", "cpu", "--no-amp", "--compression", compression])


@pytest.mark.slow
def test_the_digits_are_learnt_to_the_same_accuracy(tmp_path, make_hosts):
    pytest.importorskip("sklearn")
    hosts = make_hosts(2)
    assert run_ranks(digits, 2, str(tmp_path), hosts[0].address(), "mx8", hosts=hosts, group=False, timeout=400) == [0, 0]
