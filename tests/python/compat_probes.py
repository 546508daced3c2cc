"""What torch's own Python does with a group: one short answer for each thing that a patch is about.

A program too: `python compat_probes.py FILE KIND...` pickles the answers of these kinds of groups into FILE. The tests run
it with the patches switched off, to see what torch does without them.
"""

import os
import pickle
import sys
import tempfile
import warnings
from datetime import timedelta

import torch
import torch._dynamo  # DistributedDataParallel imports it, which takes seconds: once here, not in every rank
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import torch.distributed.nn.functional as functional
from torch.distributed import distributed_c10d as c10d
from torch.distributed._state_dict_utils import _create_cpu_state_dict
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook, bf16_compress_wrapper
from torch.distributed.collective_utils import _check_rng_sync_internal
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.debug import CommDebugMode

import hccl_like
from hccl_like.torch_compat import _ours
from ranks import make_store, run_ranks

RANKS = 2
HALF_A_MINUTE = timedelta(seconds=30)
# Name to (backend's name for torch, whether it is bound to a device). With "in detail", torch's debug mode is on.
KINDS = {
    "ours": ("hccl-like", False),
    "ours bound": ("hccl-like", True),
    "ours in detail": ("hccl-like", False),
    "unnamed": (None, False),
    "device only": ("sim:hccl-like", False),
    "composite bound": ("cpu:gloo,sim:hccl-like", True),
    "composite in detail": ("cpu:gloo,sim:hccl-like", False),
    "gloo": ("gloo", False),
    "gloo twice": ("cpu:gloo,cuda:gloo", False),
}
OURS = tuple(kind for kind in KINDS if not kind.startswith("gloo"))


def devices():
    """The types of devices that are the world's to compute on."""
    return [device.type for device in dist.group.WORLD._device_types if device.type != "cuda"]


def device():
    return "sim" if "sim" in devices() else "cpu"


def default_type():
    return dist.group.WORLD.name()


def host_tensor():
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return tensor.tolist()


def part_of_the_devices():
    group = dist.split_group(split_ranks=[[0, 1]], backend="sim:hccl-like")
    tensor = torch.ones(3, device="sim")
    dist.all_reduce(tensor, group=group)
    return [str(one) for one in group._device_types], tensor.tolist()


def part_of_its_name():
    group = dist.split_group(split_ranks=[[0, 1]], backend="hccl-like")
    return sorted(one.type for one in group._device_types)


def gloo_beside_it():
    """As torch's DataLoader makes it for an IterDataPipe."""
    group = dist.new_group(backend="gloo")
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    dist.barrier(group)
    return tensor.tolist()


def shrunk():
    """torch's own second half of shrink_group, given the world's backend as the new one."""
    world = dist.group.WORLD
    metadata = {**c10d._extract_group_metadata(world), "new_group_name": "what is left"}
    group = c10d._create_shrunk_process_group(world._get_backend(torch.device(device())), [0, 1], metadata, False)
    return group.name(), sorted(one.type for one in group._device_types)


def subgroups():
    torch.accelerator.device_count = lambda: 1  # as if each host had one
    mine, every = dist.new_subgroups()
    return mine.size(), len(every)


def sequence_number():
    world = dist.group.WORLD
    world._set_sequence_number_for_group()
    before = world._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1, device=device()))
    return world._get_sequence_number_for_group() - before


def monitored():
    dist.monitored_barrier(timeout=HALF_A_MINUTE)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        dist.monitored_barrier(None, 30.0)
    return len(warned)


def monitored_by_a_group():
    return dist.monitored_barrier(dist.new_group([0, 1]), HALF_A_MINUTE, wait_all_ranks=True)


def timeouts():
    """What each backend has after it was set; None for one that does not tell."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c10d._set_pg_timeout(timedelta(seconds=17))
    found = {}
    for kind in devices():
        backend = dist.group.WORLD._get_backend(torch.device(kind))
        backend = getattr(backend, "wrapped_pg", backend)
        found[kind] = backend.options._timeout.total_seconds()
    return found


def model():
    torch.manual_seed(0)
    return torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2, bias=False).to(device()))


def compressed():
    wrapped = model()
    wrapped.register_comm_hook(None, bf16_compress_hook)
    wrapped(torch.full((1, 3), float(dist.get_rank()), device=device())).sum().backward()
    return wrapped.module.weight.grad.tolist()


def compressed_twice():
    model().register_comm_hook(None, bf16_compress_wrapper(allreduce_hook))


def no_hook():
    model().register_comm_hook(None, "a name")


def logged_backend():
    return model()._get_ddp_logging_data()["backend_name"]


def mappable_buckets():
    """Whether peers can map what DistributedDataParallel reduces, in each bucket of two steps: they are made anew after the first."""
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    seen = []

    def look(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        seen.append(hccl_like.is_mappable(bucket.buffer()))
        reduced = torch.futures.Future()
        reduced.set_result(bucket.buffer())
        return reduced

    wrapped.register_comm_hook(None, look)
    for _ in range(2):
        wrapped(torch.ones(1, 64)).sum().backward()
    return seen


def mappable_shards():
    """The same of what fully_shard gathers and of what it reduces into; as it is, and as its own setting switches it."""
    model = torch.nn.Linear(64, 64)
    fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))
    group = model._get_fsdp_state()._fsdp_param_group

    def of_both():
        where = {"dtype": torch.float32, "device": torch.device("cpu")}
        communications = (group._all_gather_comm, group._reduce_scatter_comm)
        return [hccl_like.is_mappable(communication.allocate((64, 64), **where)) for communication in communications]

    seen = [of_both()]
    for switch in (True, False):
        model.set_allocate_memory_from_process_group_for_comm(switch)
        seen.append(of_both())
    model(torch.ones(1, 64)).sum().backward()
    return seen


def calls_of_shards():
    """What fully_shard calls to gather parameters; as it is, and where a program has a look at what is gathered."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 3), torch.nn.Linear(3, 8))
    fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))
    torchs = getattr(dist, _ours.ALL_GATHER)

    def watched(*arguments, **keywords):
        return torchs(*arguments, **keywords)

    seen = []
    for gather in (torchs, watched):
        setattr(dist, _ours.ALL_GATHER, gather)
        with CommDebugMode() as calls:
            model(torch.ones(1, 8))
        seen += [call.__name__.split(".")[0] for call in calls.get_comm_counts()]
        model.reshard()
    setattr(dist, _ours.ALL_GATHER, torchs)
    return seen


def gathered_base_gradient():
    mine = torch.full((3, 2), dist.get_rank() + 1.0, device=device(), requires_grad=True)
    everybody = functional._all_gather_base(torch.empty(6, 2, device=device()), mine)
    (everybody * torch.arange(12.0, device=device()).view(6, 2)).sum().backward()
    return mine.grad.tolist()


def gathered_gradient():
    mine = torch.full((3,), dist.get_rank() + 1.0, device=device(), requires_grad=True)
    parts = functional.all_gather(mine)
    sum(part * (i + 1) for i, part in enumerate(parts)).sum().backward()
    return mine.grad.tolist()


def reduce_scatters_of_a_gradient():
    """How many collectives of the kind that halves the memory the gradient of an all-gather takes."""
    calls = []
    original = functional._Reduce_Scatter.apply
    functional._Reduce_Scatter.apply = lambda *arguments: calls.append(arguments) or original(*arguments)
    gathered_gradient()
    return len(calls)


def scaler():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = ShardedGradScaler()
    return one.is_enabled(), one._device, ShardedGradScaler("cpu")._device, ShardedGradScaler(device="cpu")._device


def generators():
    """Whether ranks whose generators differ are told, of the CPU's and of the device's."""
    answers = []
    for kind in ("cpu", "sim"):
        generator = torch.Generator(device=kind).manual_seed(5)
        same = len(_check_rng_sync_internal(generator, dist.group.WORLD)[0])
        generator.manual_seed(dist.get_rank())
        answers.append((same, len(_check_rng_sync_internal(generator, dist.group.WORLD)[0])))
    return answers


def pinned_and_shared():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        copy = _create_cpu_state_dict({"weight": torch.ones(3, device="sim")}, pin_memory=True, share_memory=True)
    return copy["weight"].is_shared(), copy["weight"].device.type, copy["weight"].shape[0]


class Bare:
    """A device's module as bare as they come."""


def saved_without_streams():
    module, torch.sim = torch.sim, Bare
    try:
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.save({"weight": torch.ones(3, device="sim")}, checkpoint_id=folder, no_dist=True)
            loaded = {"weight": torch.zeros(3)}
            checkpoint.load(loaded, checkpoint_id=folder, no_dist=True)
            return loaded["weight"].tolist()
    except checkpoint.CheckpointException as error:  # not an Exception
        raise RuntimeError("not saved") from error
    finally:
        torch.sim = module


def mesh_of_a_bare_module():
    module, torch.sim = torch.sim, Bare
    try:
        return init_device_mesh("sim", (dist.get_world_size(),)).size()
    finally:
        torch.sim = module


def sharded_on_a_bare_module():
    """A DTensor of a mesh that was made while the module could be asked."""
    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    module, torch.sim = torch.sim, Bare
    try:
        ones = DTensor.from_local(torch.ones(3, device="sim"), mesh, [Shard(0)])
        return (ones + 1).full_tensor().tolist()
    finally:
        torch.sim = module


def met_untold():
    """A barrier while torch cannot name the accelerator; how many ranks have come."""

    def untold():
        raise NotImplementedError("no isAvailable")

    told, torch._C._get_accelerator = torch._C._get_accelerator, untold
    try:
        dist.barrier()
        dist.barrier(async_op=True).wait()
        return dist.get_world_size()
    finally:
        torch._C._get_accelerator = told


def second_api():
    from torch.distributed import _dist2

    groups = [_dist2.new_group("hccl-like", HALF_A_MINUTE, kind, group_desc="a second one") for kind in ("sim", "cpu")]
    results = []
    for group, kind in zip(groups, ("sim", "cpu")):
        with _dist2.process_group(group):
            for where in (kind, "cpu"):
                tensor = torch.full((3,), float(group.rank()), device=where)
                _dist2.current_process_group().allreduce([tensor]).wait()
                results.append(tensor.tolist())
    dist.barrier()  # torch's store goes with the first rank's group
    for group in groups:
        group.shutdown()
    return results


def second_api_with_a_wrong_option():
    from torch.distributed import _dist2

    return _dist2._BACKENDS["hccl-like"](dist.HashStore(), 0, 1, HALF_A_MINUTE, torch.device("cpu"), colour="red")


PROBES = (
    mesh_of_a_bare_module, sharded_on_a_bare_module, mappable_shards, calls_of_shards, default_type, host_tensor, part_of_the_devices, part_of_its_name,
    gloo_beside_it, shrunk, subgroups, sequence_number, monitored, monitored_by_a_group, timeouts, compressed,
    compressed_twice, no_hook, logged_backend, mappable_buckets,
    gathered_base_gradient, gathered_gradient, reduce_scatters_of_a_gradient, scaler, generators,
    pinned_and_shared, saved_without_streams, met_untold, second_api, second_api_with_a_wrong_option,
)  # fmt: skip


def ask(probe):
    """Its answer, or the error that it ends with."""
    try:
        return probe()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def ask_all(rank, size, listener, kind, probes):
    backend, bound = KINDS[kind]
    if kind.endswith("in detail"):
        dist.set_debug_level(dist.DebugLevel.DETAIL)
    store = make_store(rank, listener)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1")
    free = port(store, rank)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=HALF_A_MINUTE,
        device_id=torch.device("sim", rank) if bound else None,
    )  # fmt: skip
    os.environ["MASTER_PORT"] = free
    answers = {probe.__name__: ask(probe) for probe in probes}
    dist.destroy_process_group()
    return answers


def port(store, rank):
    """One that nobody listens on, for a store of its own."""
    if rank == 0:
        import socket

        with socket.create_server(("127.0.0.1", 0)) as listener:
            store.set("port", str(listener.getsockname()[1]))
    return store.get("port").decode()


def answers_of(kind, probes=PROBES):
    """By name of the probe, what both ranks answer, or each."""
    mine, other = run_ranks(ask_all, RANKS, kind, probes, group=False, timeout=100)
    return {name: mine[name] if mine[name] == other[name] else [mine[name], other[name]] for name in mine}


if __name__ == "__main__":
    with open(sys.argv[1], "wb") as out:
        pickle.dump({kind: answers_of(kind) for kind in sys.argv[2:]}, out)
