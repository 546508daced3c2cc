"""Large calls on a device without a plugin go slice by slice through staging memory: with the results, the order and the errors
of other calls, whatever the device lacks."""

import sys
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import values
from ranks import make_store, run_ranks
from test_collectives import CASES

SLICE = 128 << 10  # bytes: two slices of the engine, below
IN_SLICES = {"HCCL_LIKE_SLICE_BYTES": str(SLICE // 2)}
IN_ONE = {"HCCL_LIKE_SLICE_BYTES": str(1 << 30)}
COUNT = 3 * (SLICE // 4) + 1237  # float32: three slices and a bit

# What a device may be, each as the simulator's switches make it.
DEVICES = {
    "protected memory": {},
    "opaque storage": {"TORCH_SIM_OPAQUE": "1"},
    "no streams, no events": {"TORCH_SIM_FLAWS": "no-streams,no-events,no-native-handles"},
    "blocking copies": {"TORCH_SIM_FLAWS": "blocking-copies"},
    "no pinned memory": {"TORCH_SIM_FLAWS": "no-pinned-memory"},
    "copies of whole blocks": {"TORCH_SIM_FLAWS": "block-copies"},
    "streams that lie": {"TORCH_SIM_FLAWS": "busy-streams,forgetful-streams"},
    "nothing but copies": {
        "TORCH_SIM_OPAQUE": "1",
        "TORCH_SIM_FLAWS": "no-streams,no-events,no-native-handles,no-pinned-memory,blocking-copies,no-resize",
    },
}


def without_plugin(rank, size, listener, function, *arguments):
    from hccl_like import _plugins

    _plugins.register = lambda extension: None
    dist.init_process_group(
        "hccl-like", store=make_store(rank, listener), rank=rank, world_size=size, timeout=timedelta(seconds=20)
    )
    result = function(rank, size, *arguments)
    if dist.is_initialized():
        dist.destroy_process_group()
    return result


def staged(function, size, *arguments, environment=IN_SLICES, **options):
    return run_ranks(without_plugin, size, function, *arguments, group=False, environment=environment, **options)


def operations(issue):
    """How many operations a call is made of."""
    group = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    issue()
    return group._get_sequence_number_for_group() - before


def mine(rank, count=COUNT, dtype=torch.float32):
    return values.plain(rank, count, dtype)


def check(actual, expected, what):
    assert values.equal(actual, expected), what


# ------------------------------------------------------------------------------------------------------------- calls


def all_reduce(rank, size):
    total = values.total([mine(r) for r in range(size)])
    tensor = mine(rank).to("sim")
    dist.all_reduce(tensor)
    check(tensor, total, "all_reduce")
    around = torch.full((COUNT + 9,), -1.0, device="sim")
    around[5:-4].copy_(mine(rank))
    dist.all_reduce(around[5:-4])
    check(around[5:-4], total, "all_reduce of a view at an offset")
    assert around[:5].eq(-1).all() and around[-4:].eq(-1).all()
    wide = mine(rank, 2 * COUNT).to("sim").view(2, -1).t()
    dist.all_reduce(wide)
    check(wide, values.total([mine(r, 2 * COUNT) for r in range(size)]).view(2, -1).t(), "all_reduce of a strided view")
    for dtype in (torch.bfloat16, torch.int64, torch.uint8, torch.complex64):
        tensor = mine(rank, dtype=dtype).to("sim")
        dist.all_reduce(tensor)
        check(tensor, values.total([mine(r, dtype=dtype) for r in range(size)]), f"all_reduce of {dtype}")
    tensor = mine(rank).to("sim")
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    torch.testing.assert_close(tensor.cpu(), total / size)


def several_at_once(rank, size):
    """Large ones, small ones between them; dropped before they are over, waited for in another order."""
    counts = [COUNT + i if i % 2 else 10 + i for i in range(8)]
    tensors = [mine(rank, count).to("sim") for count in counts]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    dropped = dist.all_reduce(mine(rank).to("sim"), async_op=True)
    for i in reversed(range(8)):
        works[i].wait()
        check(tensors[i], values.total([mine(r, counts[i]) for r in range(size)]), f"call {i}")
    futures = [dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True).get_future() for tensor in tensors]
    torch.futures.collect_all(futures).wait()
    dropped.wait(timedelta(seconds=20))  # on the host, in stream order too
    assert dropped.is_completed()


def broadcast_and_reduce(rank, size):
    for root in range(size):
        tensor = mine(rank).to("sim")
        dist.broadcast(tensor, root)
        check(tensor, mine(root), f"broadcast from {root}")
        tensor = mine(rank).to("sim")
        dist.reduce(tensor, root)
        check(tensor, values.total([mine(r) for r in range(size)]) if rank == root else mine(rank), f"reduce to {root}")


def gathering(rank, size):
    parts = [mine(r) for r in range(size)]
    outputs = [torch.zeros(COUNT, device="sim") for _ in range(size)]
    dist.all_gather(outputs, parts[rank].to("sim"))
    for r, output in enumerate(outputs):
        check(output, parts[r], f"all_gather from {r}")
    whole = torch.zeros(size * COUNT, device="sim")
    dist.all_gather_into_tensor(whole, parts[rank].to("sim"))
    check(whole, torch.cat(parts), "all_gather_into_tensor")
    whole.zero_()
    own = whole[rank * COUNT : (rank + 1) * COUNT]
    own.copy_(parts[rank])
    dist.all_gather_into_tensor(whole, own)
    check(whole, torch.cat(parts), "all_gather in place")
    whole.copy_(torch.cat(parts))
    wrong = (rank + 1) % size
    dist.all_gather_into_tensor(whole, whole[wrong * COUNT : (wrong + 1) * COUNT])
    check(whole, torch.cat([parts[(r + 1) % size] for r in range(size)]), "all_gather from another's place")
    pieces = [COUNT, 5, COUNT // 2]
    outputs = [torch.zeros(size * n, device="sim") for n in pieces]
    with dist._coalescing_manager(device=torch.device("sim")):
        for n, output in zip(pieces, outputs):
            dist.all_gather_into_tensor(output, mine(rank, n).to("sim"))
    for n, output in zip(pieces, outputs):
        check(output, torch.cat([mine(r, n) for r in range(size)]), f"coalesced, {n}")


def scattering(rank, size):
    def part_of(r, sources):
        return values.total([mine(s, size * COUNT)[r * COUNT : (r + 1) * COUNT] for s in sources])

    whole = mine(rank, size * COUNT).to("sim")
    output = torch.zeros(COUNT, device="sim")
    dist.reduce_scatter_tensor(output, whole)
    check(output, part_of(rank, range(size)), "reduce_scatter_tensor")
    output.zero_()
    dist.reduce_scatter(output, list(whole.chunk(size)))
    check(output, part_of(rank, range(size)), "reduce_scatter")
    dist.reduce_scatter_tensor(whole[rank * COUNT : (rank + 1) * COUNT], whole)
    check(whole[rank * COUNT : (rank + 1) * COUNT], part_of(rank, range(size)), "reduce_scatter in place")
    exchanged = torch.zeros(size * COUNT, device="sim")
    dist.all_to_all_single(exchanged, mine(rank, size * COUNT).to("sim"))
    expected = [mine(r, size * COUNT)[rank * COUNT : (rank + 1) * COUNT] for r in range(size)]
    check(exchanged, torch.cat(expected), "all_to_all_single")


def data_parallel(rank, size, folder):
    """A model whose gradients take several slices, trained and saved; another rank's file is loaded."""
    torch.manual_seed(3)
    model = torch.nn.Linear(300, 400)
    reference = torch.nn.Linear(300, 400)
    reference.load_state_dict(model.state_dict())
    wrapped = DistributedDataParallel(model.to("sim"))
    batches = [torch.randint(0, 3, (4, 300), generator=torch.Generator().manual_seed(r)).float() for r in range(size)]
    wrapped(batches[rank].to("sim")).sum().backward()
    torch.stack([reference(batch).sum() for batch in batches]).mean().backward()
    torch.testing.assert_close(wrapped.module.weight.grad.cpu(), reference.weight.grad)
    state = wrapped.module.state_dict()
    checkpoint.save({"model": state}, checkpoint_id=folder)
    loaded = {"model": {name: torch.zeros_like(value) for name, value in state.items()}}
    checkpoint.load(loaded, checkpoint_id=folder)
    for name, value in wrapped.module.state_dict().items():
        assert torch.equal(loaded["model"][name].cpu(), value.cpu()), name


STAGED = [all_reduce, several_at_once, broadcast_and_reduce, gathering, scattering]


class Bare:
    """A Python module of a device that answers nothing of what torch asks."""


def untold():
    """What torch answers for a device whose hooks have no isAvailable()."""
    raise NotImplementedError("isAvailable")


def meets(rank, size):
    """What asks torch, not the backend, about the device first."""
    dist.barrier()
    assert dist.barrier(async_op=True).wait(timedelta(seconds=20))
    assert init_device_mesh("sim", (size,)).get_local_rank() == rank


def everything(rank, size, folder, bare=False):
    if bare:
        torch.sim = sys.modules["torch.sim"] = Bare
        torch._C._get_accelerator = untold
    for case in CASES:
        case(rank, size, "sim")
    for case in STAGED:
        case(rank, size)
    meets(rank, size)
    data_parallel(rank, size, folder)


@pytest.mark.parametrize("kind", DEVICES)
def test_every_call_on(kind, sim, tmp_path):
    staged(everything, 2, str(tmp_path), "nothing" in kind, environment=IN_SLICES | DEVICES[kind])


@pytest.mark.parametrize("case", STAGED, ids=lambda case: case.__name__)
def test_gives_exact_results_on_three_ranks(case, sim):
    staged(case, 3)


def cut_up(rank, size):
    large, small = torch.ones(COUNT, device="sim"), torch.ones(100, device="sim")
    whole = torch.ones(size * COUNT, device="sim")
    return [
        operations(lambda: dist.all_reduce(large)),
        operations(lambda: dist.all_reduce(small)),
        operations(lambda: dist.all_gather_into_tensor(whole, large)),
        operations(lambda: dist.all_reduce(torch.ones(COUNT))),
    ]


def test_what_is_large_and_on_a_device_goes_in_slices(sim):
    first, second = staged(cut_up, 2)
    assert first == second == [4, 1, 7, 1]
    assert staged(cut_up, 2, environment=IN_ONE) == [[1, 1, 1, 1]] * 2


def random_sums(rank, size):
    generator = torch.Generator().manual_seed(rank)
    tensor = torch.randn(COUNT, generator=generator).to("sim")
    part = torch.zeros(COUNT // size, device="sim")
    dist.reduce_scatter_tensor(part, tensor[: COUNT // size * size])
    dist.all_reduce(tensor)
    return tensor.cpu().numpy().tobytes(), part.cpu().numpy().tobytes()


def test_results_are_bit_for_bit_those_of_one_slice(sim):
    assert staged(random_sums, 3) == staged(random_sums, 3, environment=IN_ONE)


# ------------------------------------------------------------------------------------------------------------- errors


def without_the_other(rank, size):
    dist.all_reduce(mine(rank).to("sim"))
    if rank == 1:
        return
    began = time.monotonic()
    work = dist.group.WORLD.allreduce([mine(rank).to("sim")], timeout_of(1.0))
    # The program's call, and which slice of it: not the operation that a slice is.
    with pytest.raises(dist.DistBackendError, match=rf"all_reduce #2 \(float32, sum, {COUNT * 4} bytes\), slice 1 of 4 through the host, "):
        work.wait()
    assert time.monotonic() - began < 15
    dist.group.WORLD.abort()
    dist.destroy_process_group()


def timeout_of(seconds):
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=seconds)
    options.asyncOp = True
    return options


def test_a_call_that_the_others_do_not_make_times_out(sim):
    staged(without_the_other, 2)


def of_two_sizes(rank, size):
    tensor = mine(rank, COUNT + rank).to("sim")
    with pytest.raises(dist.DistBackendError, match=f"call #1, .*: rank 0 passed {COUNT} elements, rank 1 passed {COUNT + 1} elements"):
        dist.all_reduce(tensor)
    dist.destroy_process_group()


def test_ranks_that_disagree_about_the_size_are_told(sim):
    staged(of_two_sizes, 2)


def of_one_call_and_of_two(rank, size):
    """The second slice of one rank's call is as large as the other rank's second call."""
    half = SLICE // 4
    with pytest.raises(dist.DistBackendError, match="disagree about call #1"):
        for count in (2 * half,) if rank == 0 else (half, half):
            dist.all_reduce(mine(rank, count).to("sim"))
    dist.destroy_process_group()


def test_a_slice_is_not_taken_for_a_call(sim):
    staged(of_one_call_and_of_two, 2)


def aborted(rank, size):
    if rank == 0:
        work = dist.all_reduce(mine(rank).to("sim"), async_op=True)
        dist.group.WORLD._get_backend(torch.device("sim")).abort()
        with pytest.raises(dist.DistBackendError, match="abort"):
            work.wait()
    else:
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(mine(rank).to("sim"))
    dist.destroy_process_group()


def test_abort_ends_a_call(sim):
    staged(aborted, 2)
