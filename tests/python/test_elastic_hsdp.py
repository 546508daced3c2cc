"""examples/elastic/hsdp.py: sharded training whose lost shards come from another replica."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch.distributed as dist

import hccl_like
from conftest import slow_after_first
from ranks import run_ranks
from test_elastic import found, leave

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "elastic" / "hsdp.py"


def meets_in_vain(rank, size, listener):
    """Rank 3 dies after a meeting of which rank 1 alone does not learn that all came to it."""
    sys.path.insert(0, str(EXAMPLE.parent))
    import hsdp

    def in_vain(tensor):
        dist.all_reduce(tensor)
        raise dist.DistBackendError("rank 3 is gone")

    store = found(rank, size, listener)
    training = hsdp.Training("cpu", place=rank)
    training.settle()
    for _ in range(3):
        training.step()
    if rank == 1:
        hsdp.dist = types.SimpleNamespace(**{**vars(dist), "all_reduce": in_vain})
        with pytest.raises(dist.DistBackendError, match="rank 3 is gone"):
            training.step()
        hsdp.dist = dist
    else:
        training.step()
    if rank == 3:
        os._exit(7)
    assert (training.done, training.gradients, len(training.losses)) == ((3, 4, 3) if rank == 1 else (4, 4, 4))
    hccl_like.replace([3], timeout=0)
    training.settle()
    assert training.trainers == [0, 1] and training.done == 4
    training.step()
    assert training.done == (4 if rank == 2 else 5)
    alone = hsdp.train_alone(5)
    assert max(abs(one - other) for one, other in zip(training.losses, alone, strict=True)) < 1e-6
    leave(store, rank, (0, 1, 2))


def test_a_rank_makes_the_step_that_others_have_made_before_the_loss():
    assert run_ranks(meets_in_vain, 4, group=False) == [None, None, None, 7]


def example(*arguments):
    """What the example says, which ends with an error unless its losses are those of one process."""
    run = subprocess.run([sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.parametrize("device", slow_after_first(["cpu", "sim"]), indirect=True)
def test_a_shard_that_is_lost_comes_from_the_other_replica(device):
    told = example("--steps", "30", "--pause", "0", "--device", device)
    assert "rank 0 of 3, replicas that train: 1;" in told and "rank 3 of 4, replicas that train: 2;" in told
    assert "the replicas' shards are equal, exit codes [0, 0, 0, -9, 0]" in told


@pytest.mark.slow
@pytest.mark.parametrize("lost", [(0,), (2, 3), (0, 3)])
def test_any_shards_may_be_lost_that_are_in_another_replica(lost):
    told = example(*(word for rank in lost for word in ("--kill", str(rank))))
    codes = [-9 if rank in lost else 0 for rank in range(4)] + [0] * len(lost)
    assert f"the replicas' shards are equal, exit codes {codes}" in told


@pytest.mark.slow
def test_a_shard_that_is_lost_in_all_replicas_ends_the_job():
    with pytest.raises(AssertionError, match="shard 1 is lost in all replicas: begin again with a checkpoint"):
        example("--kill", "1", "--kill", "3")
