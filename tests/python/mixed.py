"""Ranks of one group on devices of several kinds: python mixed.py CASE,... KIND,... ARGUMENT... runs cases below, each rank on its kind.

A program of its own, because a process names its PrivateUse1 device once: here each rank does it after the fork.
"""

import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import hosts
import streams
import test_collectives
import values
from ranks import make_store, run_ranks


def _sim():
    from torch_sim import registration

    registration.register()
    return "sim"


def _npux():
    """As a vendor's package does it."""
    from torch_sim import registration

    registration.find_adapter(torch.__version__)
    from torch_sim import sim

    torch.utils.rename_privateuse1_backend("npux")
    torch._register_device_module("npux", sim)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    return "npux"


@dataclasses.dataclass
class Kind:
    """How a rank gets its device, and passes tensors of it unless they are the CPU's."""

    accelerator: Callable[[], str] | None = None
    plugin: bool = True
    tensors: str | None = None
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


TOLD = {"HCCL_LIKE_MIXED_DEVICES": "1"}
DISCRETE = {"TORCH_SIM_DISCRETE": "1"}
KINDS = {
    "cpu": Kind(),
    "sim": Kind(_sim),
    "bare": Kind(_sim, plugin=False),
    "discrete": Kind(_sim, environment=DISCRETE),
    "discrete-told": Kind(_sim, environment=DISCRETE | TOLD),
    "npux": Kind(_npux, environment={"NAMED": "npux"}),
    "bare-npux": Kind(_npux, plugin=False),
    "cpu-beside-sim": Kind(_sim, tensors="cpu"),
    "cpu-beside-sim-told": Kind(_sim, tensors="cpu", environment=TOLD),
}


def on_rank(rank, size, listener, kinds, cases, arguments):
    from hccl_like import _plugins

    kind = KINDS[kinds[rank]]
    accelerator = kind.accelerator() if kind.accelerator else "cpu"
    _plugins.found = lambda: {"sim": os.environ["PLUGIN"], "npux": os.environ["STRIPPED"]} if kind.plugin else {}
    timeout = timedelta(seconds=float(os.environ.get("MIXED_TIMEOUT", 60)))
    dist.init_process_group("hccl-like", store=make_store(rank, listener), rank=rank, world_size=size, timeout=timeout)
    for case in cases:
        case(rank, size, kind.tensors or accelerator, *arguments)
        dist.barrier()
    dist.destroy_process_group()


def collectives(rank, size, device):
    for case in test_collectives.CASES:
        try:
            case(rank, size, device)
        except BaseException as error:
            raise AssertionError(f"{case.__name__}: {error}") from error


def each_collective(rank, size, device, count, dtype):
    """Every call on `count` elements of each rank, one by one and several at once."""

    def mine(r, elements=count):
        return values.plain(r, elements, dtype)

    def zeros(elements=count):
        return torch.zeros(elements, dtype=dtype, device=device)

    def check(actual, expected, what):
        assert values.equal(actual, expected), f"{what} of {count} {dtype}"

    everyone, root = range(size), count % size
    total, whole = values.total([mine(r) for r in everyone]), torch.cat([mine(r) for r in everyone])
    wide = [mine(r, size * count) for r in everyone]
    part = slice(rank * count, (rank + 1) * count)

    works = []
    for _ in range(2):
        reduced, sent = mine(rank).to(device), mine(rank).to(device)
        works += [(dist.all_reduce(reduced, async_op=True), reduced, total, "all_reduce")]
        works += [(dist.broadcast(sent, root, async_op=True), sent, mine(root), "broadcast")]
    reduced = mine(rank).to(device)
    dist.reduce(reduced, root)
    if rank == root:
        check(reduced, total, "reduce")
    for work, tensor, expected, what in works:
        work.wait()
        check(tensor, expected, what)
    gathered = zeros(size * count)
    dist.all_gather_into_tensor(gathered, mine(rank).to(device))
    check(gathered, whole, "all_gather_into_tensor")
    lists = [zeros(count + r) for r in everyone]
    dist.all_gather(lists, mine(rank, count + rank).to(device))
    check(torch.cat([one.cpu() for one in lists]), torch.cat([mine(r, count + r) for r in everyone]), "all_gather of several sizes")
    scattered = zeros()
    dist.reduce_scatter_tensor(scattered, wide[rank].to(device))
    check(scattered, values.total(wide)[part], "reduce_scatter_tensor")
    dist.reduce_scatter(scattered, [one.to(device) for one in wide[rank].chunk(size)])
    check(scattered, values.total(wide)[part], "reduce_scatter")
    dist.all_to_all_single(gathered, wide[rank].to(device))
    check(gathered, torch.cat([one[part] for one in wide]), "all_to_all_single")
    splits = [[(r + p) % 3 * count // 2 for p in everyone] for r in everyone]
    exchanged = zeros(sum(splits[r][rank] for r in everyone))
    dist.all_to_all_single(exchanged, mine(rank, sum(splits[rank])).to(device), [splits[r][rank] for r in everyone], splits[rank])
    check(exchanged, torch.cat([mine(r, sum(splits[r])).split(splits[r])[rank] for r in everyone]), "all_to_all_single with splits")
    outputs = [zeros() for _ in everyone] if rank == root else None
    dist.gather(mine(rank).to(device), outputs, dst=root)
    if rank == root:
        check(torch.cat([one.cpu() for one in outputs]), whole, "gather")
    dist.scatter(scattered, [mine(r).to(device) for r in everyone] if rank == root else None, src=root)
    check(scattered, mine(rank), "scatter")
    received = zeros()
    messages = [dist.irecv(received, (rank - 1) % size), dist.isend(mine(rank).to(device), (rank + 1) % size)]
    for message in messages:
        message.wait()
    check(received, mine((rank - 1) % size), "send and recv")
    tensors = [mine(rank, count + i).to(device) for i in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(tensors):
        check(tensor, values.total([mine(r, count + i) for r in everyone]), "coalesced all_reduce")


def sizes(rank, size, device):
    """Around the sizes at which paths change, with HCCL_LIKE_SLICE_BYTES=64K."""
    each_collective(rank, size, device, 1, torch.uint8)
    for bytes in (8 << 10, 64 << 10, 512 << 10):
        for near in (-1, 0, 1):
            each_collective(rank, size, device, bytes // 4 + near, torch.float32)
    for dtype in (torch.bfloat16, torch.int64):
        each_collective(rank, size, device, (128 << 10) // dtype.itemsize + 1, dtype)


def large_sizes(rank, size, device):
    for near in (-1, 0, 1):
        each_collective(rank, size, device, (2 << 20) // 4 + near, torch.float32)
    count = (32 << 20) // 4 + 1
    tensor = torch.full((count,), rank + 1.0).to(device)
    dist.all_reduce(tensor)
    assert tensor.cpu().eq(size * (size + 1) / 2).all()
    dist.broadcast(tensor.fill_(rank), 1)
    assert tensor.cpu().eq(1).all()
    gathered = torch.empty(size * count).to(device)
    dist.all_gather_into_tensor(gathered, tensor.fill_(rank))
    assert gathered.cpu().equal(torch.arange(float(size)).repeat_interleave(count))
    dist.reduce_scatter_tensor(tensor, gathered)
    assert tensor.cpu().eq(size * rank).all()
    if rank == 0:
        dist.send(tensor.fill_(3), 1)
    elif rank == 1:
        dist.recv(tensor, 0)
        assert tensor.cpu().eq(3).all()


def data_parallel(rank, size, device, folder):
    """DDP gives each rank what one process with all the data gives."""
    import training

    wrapped = DistributedDataParallel(training.model(torch.device(device)), bucket_cap_mb=0.001)
    training.train(wrapped, torch.device(device))
    training.same_parameters(wrapped, training.train_alone(torch.device(device), size), rtol=1e-6, atol=1e-7)
    flat = torch.cat([parameter.detach().cpu().reshape(-1) for parameter in wrapped.parameters()])
    everyone = [None] * size
    dist.all_gather_object(everyone, flat)
    assert all(torch.equal(one, flat) for one in everyone), "ranks have the same bits"


def checkpointed(rank, size, device, folder):
    """Tensors that are whole on each rank and tensors that are sharded, saved by all ranks and loaded by all and by one process."""
    mesh = init_device_mesh(device, (size,))
    whole = torch.arange(600.0).reshape(30, 20)

    def state(fill):
        return {
            "whole": (whole if fill else torch.zeros(30, 20)).to(device),
            "sharded": distribute_tensor((whole + 1 if fill else torch.zeros(30, 20)).to(device), mesh, [Shard(0)]),
            "step": 7 if fill else 0,
        }

    checkpoint.save(state(True), checkpoint_id=folder)
    loaded = state(False)
    checkpoint.load(loaded, checkpoint_id=folder)
    assert torch.equal(loaded["whole"].cpu(), whole) and loaded["step"] == 7
    assert torch.equal(loaded["sharded"].full_tensor().cpu(), whole + 1)
    if rank == 0:
        alone = {"whole": torch.zeros(30, 20), "sharded": torch.zeros(30, 20), "step": 0}
        checkpoint.load(alone, checkpoint_id=folder, no_dist=True)
        assert torch.equal(alone["whole"], whole) and torch.equal(alone["sharded"], whole + 1) and alone["step"] == 7


def disagreement(rank, size, device):
    """Each rank is told that rank 1 passes another size, or another type."""
    for count, dtype in ((5 + rank % 2, torch.float32), (700_000 + rank % 2, torch.float32), (5, [torch.float32, torch.int32][rank % 2])):
        group = dist.new_group()
        try:
            dist.all_reduce(torch.ones(count, dtype=dtype).to(device), group=group)
            dist.barrier(group)
        except dist.DistBackendError as error:
            assert "disagree about call #1" in str(error) and "rank 1 passed" in str(error), error
        else:
            raise AssertionError("nothing was raised")


def overtaken(rank, size, device):
    """Calls on host tensors go on while one on a device waits for its stream, though both are numbered together.

    They are few: the slots of a board take as many calls as may overtake another.
    """
    for count in (5, 300_000):
        tensor = torch.full((count,), rank + 1.0).to(device)
        gate = streams.Gate() if device == "sim" else None
        work = dist.all_reduce(tensor, async_op=True)
        for i in range(3):
            on_host = torch.full((7,), float(rank + i))
            dist.all_reduce(on_host)
            assert on_host.eq(sum(range(size)) + size * i).all()
        if gate:
            gate.require_closed("a call on the host")
            gate.open()
        work.wait()
        assert tensor.cpu().eq(size * (size + 1) / 2).all()


def refused(rank, size, device):
    """What takes devices of one type says so, and the group goes on."""
    tensor = symm_mem.empty(16, device=device)
    try:
        symm_mem.rendezvous(tensor, dist.group.WORLD.group_name)
    except RuntimeError as error:
        assert "passed a tensor on a device of type" in str(error) and device in str(error), error
    else:
        raise AssertionError("memory of another device was mapped")
    if device == "sim" and hasattr(torch.accelerator, "Graph"):
        try:
            with torch.Stream(device="sim"), torch.accelerator.Graph():
                dist.all_reduce(torch.ones(1000, device="sim"))
        except ValueError as error:
            assert "the ranks of its group have different devices" in str(error), error
        else:
            raise AssertionError("a call was captured")
    dist.barrier()


def untold(rank, size, device):
    """The ranks cannot know that their devices differ: the error says what to set."""
    for count in (5, 300_000):
        try:
            dist.all_reduce(torch.ones(count, device=device))
            dist.barrier()
        except dist.DistBackendError as error:
            assert "HCCL_LIKE_MIXED_DEVICES=1" in str(error), error
            os._exit(0)
    raise AssertionError("nothing was raised")


def page(rank, size, listener, kinds, path, port):
    """Runs the example of a page as torchrun would."""
    listener.close()
    if KINDS[kinds[rank]].accelerator:
        KINDS[kinds[rank]].accelerator()
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    (code,) = re.findall(r"```python\n(.*?)```", Path(path).read_text(), re.DOTALL)
    exec(compile(code, path, "exec"), {"__name__": "__main__"})


def main(cases, kinds, *arguments):
    cases, kinds = cases.split(","), kinds.split(",")
    if cases == ["page"]:
        return run_ranks(page, len(kinds), kinds, *arguments, group=False)
    if "data_parallel" in cases:
        import training  # noqa: F401  # takes seconds: once here, not in every rank
    with hosts.Hosts(int(os.environ["MIXED_HOSTS"])) if "MIXED_HOSTS" in os.environ else contextlib.nullcontext() as places:
        run_ranks(
            on_rank, len(kinds), kinds, [globals()[case] for case in cases], arguments, group=False, hosts=places, timeout=300,
            environment=lambda rank: KINDS[kinds[rank]].environment,
        )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
