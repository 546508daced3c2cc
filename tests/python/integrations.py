"""What the tests of integrations share: ranks as torchrun starts them, in which a framework makes
the group.
"""

import importlib.util
import os
import warnings
from collections import Counter

import pytest
import torch
import torch.distributed as dist

import hccl_like
from ranks import make_store, run_ranks
from training import model, same_parameters, train_alone

TOLERANCE = {"rtol": 0, "atol": 1e-6}
RANKS = 2


def needs(framework, package=None):
    """Skips the test where the framework is not installed. Does not import it: ranks are forked
    from this process.
    """
    if importlib.util.find_spec(framework) is None:
        pytest.skip(
            f"{framework} is not installed: pip install 'hccl-like[{package or framework}]'"
        )


def launched(function, *arguments, ranks=RANKS, timeout=120, environment=None):
    """Calls the function on every rank, as a program under torchrun: without a group. The results
    by rank, with warnings of ours.
    """
    return run_ranks(
        _launched, ranks, function, arguments, group=False, timeout=timeout, environment=environment
    )


def _launched(rank, size, listener, function, arguments):
    port = listener.getsockname()[1]
    store = make_store(rank, listener)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RUN_ID="test",
        TORCHELASTIC_RESTART_COUNT="0",
        GROUP_RANK="0",
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*arguments)
    if dist.is_initialized():
        dist.destroy_process_group()
    store.set(f"over/{rank}", "")
    if rank == 0:
        store.wait([f"over/{other}" for other in range(size)])
    return result, [
        str(one.message) for one in caught if "HCCL_LIKE_INTEGRATIONS" in str(one.message)
    ]


def calls():
    """How often each collective ran over hccl-like in this process, by its name."""
    entries = (
        hccl_like.dump_flight_recorder(stacks=False)["entries"] if dist.is_initialized() else []
    )
    return Counter(entry["profiling_name"].removeprefix("hccl:") for entry in entries)


def weights(module):
    return [parameter.detach().cpu().clone() for parameter in module.parameters()]


def alone(ranks):
    """The weights that one process has after the training of all ranks; in a process of its own,
    since ranks cannot be forked after a backward pass.
    """
    return run_ranks(_alone, 1, ranks, group=False)[0]


def _alone(rank, size, listener, ranks):
    return weights(train_alone(torch.device("cpu"), ranks))


def are_as_of_one_process(results, used="all_reduce", kind="sim"):
    """Each result is (weights, device, calls): the same on all ranks and as of one process, and
    communicated by hccl-like.
    """
    expected = alone(len(results))
    for rank, ((got, device, made), told) in enumerate(results):
        assert device == f"{kind}:{rank}" and made[used] > 0 and told == [], (device, made, told)
        same_parameters(got, results[0][0][0])
        same_parameters(got, expected, **TOLERANCE)


def are_separate(results, framework):
    """Without the integration: each rank's weights are its own, and rank 0 is warned."""
    (first, _), (second, _) = results
    assert any(not torch.equal(one, other) for one, other in zip(first[0], second[0]))
    is_warned_of(results, framework)


def is_warned_of(results, framework):
    (_, told), (_, others) = results
    assert (
        len(told) == 1
        and f"import hccl_like.integrations.{framework}'" in told[0]
        and "'sim'" in told[0]
    ), told
    assert others == []


def begun():
    """The model that every rank and the single process start from."""
    return model("cpu")
