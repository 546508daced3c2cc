"""examples/torchft: torchft's process-group wrapper around this backend, configured anew after a death."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ranks import make_store, run_ranks

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "torchft" / "train.py"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("torchft")]


@pytest.fixture
def torchft(monkeypatch):
    """Not for the whole module: in a run without slow tests nothing here is skipped for want of torchft."""
    pytest.importorskip("torchft.manager", reason="torchft is not installed: pip install torchft")
    monkeypatch.syspath_prepend(TRAIN.parent)


def summed(group, value, device):
    tensor = torch.full((1001,), float(value), device=device)
    group.allreduce([tensor], dist.AllreduceOptions()).wait()
    return tensor.cpu().unique().tolist()


def a_replica_dies(rank, size, listener, device):
    from process_group import ProcessGroupHcclLike

    port = listener.getsockname()[1]
    store = make_store(rank, listener)
    where = f"127.0.0.1:{port}"
    group = ProcessGroupHcclLike(timeout=timedelta(seconds=20))
    group.configure(f"{where}/first", f"replica{rank}", rank, size, quorum_id=1)
    assert group.getBackendName() == "torchft-hccl-like"
    assert summed(group, 2**rank, device) == [2**size - 1]
    if rank == 1:
        time.sleep(0.3)  # the others are in the call
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    work = group.allreduce([torch.ones(1001, device=device)], dist.AllreduceOptions())
    assert work.wait() is (device != "cpu")  # in the order of a stream the next call tells
    assert group.errored() is not None
    with pytest.raises(RuntimeError):
        summed(group, 1, device)
    assert time.monotonic() - start < 2
    assert "rank 1" in str(group.errored()) or device != "cpu" and group.errored() is not None
    # What the Manager does with the next quorum.
    group.configure(f"{where}/second", f"replica{rank}", [0, None, 1][rank], size - 1, quorum_id=2)
    assert group.errored() is None
    assert summed(group, 2**rank, device) == [5]
    assert time.monotonic() - start < 3
    group.broadcast([torch.ones(3, device=device)], dist.BroadcastOptions()).wait()
    group.barrier().wait()
    group.shutdown()
    store.set(f"over{rank}", "1")
    if rank == 0:  # its process has the store
        store.wait(["over2"])


def test_a_wrapper_is_configured_anew_without_the_dead(device):
    run_ranks(a_replica_dies, 3, device, group=False)


def a_call_fails_unseen(rank, size, listener, device):
    """On a device that keeps the order of streams the call fails after its wait."""
    from process_group import ProcessGroupHcclLike

    port = listener.getsockname()[1]
    store = make_store(rank, listener)
    group = ProcessGroupHcclLike(timeout=timedelta(seconds=20))
    group.configure(f"127.0.0.1:{port}/first", f"replica{rank}", rank, size, quorum_id=1)
    assert summed(group, 1, device) == [2]
    store.set(f"made{rank}", "1")
    store.wait(["made0", "made1"])
    if rank == 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    with contextlib.suppress(RuntimeError):
        group.allreduce([torch.ones(1001, device=device)], dist.AllreduceOptions()).wait()
    assert group.errored() is not None


def test_a_step_is_not_committed_before_its_calls_are_done(device):
    assert run_ranks(a_call_fails_unseen, 2, device, group=False) == [None, -signal.SIGKILL]


def aborts(rank, size, listener):
    from process_group import ProcessGroupHcclLike

    port = listener.getsockname()[1]
    store = make_store(rank, listener)
    group = ProcessGroupHcclLike(timeout=timedelta(seconds=20))
    group.configure(f"127.0.0.1:{port}/one", f"replica{rank}", rank, size, quorum_id=1)
    assert summed(group, 1, "cpu") == [2]
    start = time.monotonic()
    if rank == 0:
        group.abort()
    else:
        with contextlib.suppress(RuntimeError):  # if the abort comes before the call
            assert group.allreduce([torch.ones(1001)], dist.AllreduceOptions()).wait() is False
        assert "abort" in str(group.errored())
    assert time.monotonic() - start < 1
    group.configure(f"127.0.0.1:{port}/two", f"replica{rank}", rank, size, quorum_id=2)
    assert summed(group, 2, "cpu") == [4]
    group.shutdown()
    store.set(f"over{rank}", "1")
    if rank == 0:  # its process has the store
        store.wait(["over1"])


def test_an_abort_reaches_the_other_replicas():
    run_ranks(aborts, 2, group=False)


def a_replica_heals(rank, size, listener, device):
    """Replica 1 begins with other weights, and takes those of replica 0."""
    from process_group import ProcessGroupHcclLike, on_host
    from torchft.coordination import LighthouseServer
    from torchft.manager import Manager
    from torchft.optim import OptimizerWrapper

    store = make_store(rank, listener)
    if rank == 0:
        lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=size, join_timeout_ms=10000)
        store.set("lighthouse", lighthouse.address())
    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # a replica of one rank
    torch.manual_seed(rank)
    model = torch.nn.Linear(13, 7).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    manager = Manager(
        pg=ProcessGroupHcclLike(timeout=timedelta(seconds=30)), min_replica_size=size, rank=0, world_size=1, replica_id=f"replica{rank}",
        store_addr="127.0.0.1", store_port=own.port, lighthouse_addr=store.get("lighthouse").decode(), hostname="127.0.0.1",
        timeout=timedelta(seconds=40), load_state_dict=lambda state: model.load_state_dict(state["model"]),
        state_dict=lambda: on_host({"model": model.state_dict()}),
    )  # fmt: skip
    try:
        wrapped = OptimizerWrapper(manager, optimizer)
        while manager.current_step() < 4:
            wrapped.zero_grad()
            model(torch.full((5, 13), 0.25 * rank, device=device)).square().mean().backward()
            for work in [manager.allreduce(parameter.grad) for parameter in model.parameters()]:
                work.wait()
            wrapped.step()
        weights = [parameter.detach().cpu() for parameter in model.parameters()]
        store.set(f"over{rank}", "1")
        if rank == 0:
            store.wait([f"over{other}" for other in range(size)])
    finally:
        manager.shutdown(wait=False)
        if rank == 0:
            lighthouse.shutdown()
    return weights


@pytest.mark.quick
def test_a_replica_takes_the_state_of_another_on_the_device(device):
    first, second = run_ranks(a_replica_heals, 2, device, group=False, timeout=150)
    assert all(torch.equal(one, other) for one, other in zip(first, second))


@pytest.mark.parametrize(
    ("replicas", "device"), [pytest.param(2, "cpu", marks=pytest.mark.quick), (3, "cpu"), (2, "sim"), (3, "sim")], indirect=["device"]
)
def test_a_replica_that_is_killed_comes_back(replicas, device):
    """The example ends with an error unless weights are equal on all replicas and the losses those of one process."""
    arguments = ["--replicas", str(replicas), "--steps", "30", "--pause", "0", "--device", device]
    run = subprocess.run([sys.executable, str(TRAIN), *arguments], capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{replicas} from step 20; exit codes {[0, -9, *[0] * (replicas - 1)]}" in run.stdout
    assert "weights are equal on all replicas" in run.stdout
