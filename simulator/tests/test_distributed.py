"""What DDP, FSDP, DTensor and checkpoints ask of a device, with one rank and a group that moves nothing. Real groups are
tested where a backend for the device is."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore


@pytest.fixture
def group():
    dist.init_process_group("cpu:fake,sim:fake", store=FakeStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture
def mesh(group):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("sim", (1,))


def model(device="sim"):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)).to(device)


def train(wrapped, parameters=None, steps=3, device="sim"):
    optimiser = torch.optim.AdamW(parameters or wrapped.parameters(), lr=0.05)
    for step in range(steps):
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step)).to(device)
        optimiser.zero_grad()
        loss = wrapped(x).square().mean()
        loss.backward()
        optimiser.step()
    return loss.item()


@pytest.fixture
def expected():
    return train(model())


def leave_alone(state, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


@pytest.mark.parametrize("kwargs", [{}, {"find_unused_parameters": True}, {"static_graph": True}, {"gradient_as_bucket_view": True}])
def test_ddp(group, expected, kwargs):
    wrapped = nn.parallel.DistributedDataParallel(model(), **kwargs)
    wrapped.register_comm_hook(None, leave_alone)  # the group's own futures have no value
    assert train(wrapped) == expected
    times = wrapped._get_ddp_logging_data()
    assert times["avg_backward_compute_time"] > 0


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
@pytest.mark.parametrize("original", [True, False])
def test_fsdp1(group, expected, strategy, original):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    wrapped = FullyShardedDataParallel(
        model("cpu"), device_id=torch.device("sim:0"), sharding_strategy=ShardingStrategy[strategy], use_orig_params=original
    )
    assert train(wrapped) == pytest.approx(expected, rel=1e-6)
    assert all(value.is_sim for value in wrapped.state_dict().values())


def test_fsdp1_offload(group, expected):
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel

    wrapped = FullyShardedDataParallel(model("cpu"), device_id=0, cpu_offload=CPUOffload(True), use_orig_params=True)
    assert train(wrapped) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("options", ["plain", "offload", "bfloat16"])
def test_fsdp2(mesh, expected, options):
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    net = model()
    kwargs = {
        "plain": {},
        "offload": {"offload_policy": CPUOffloadPolicy()},
        "bfloat16": {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
    }[options]
    for layer in (net[0], net[2]):
        fully_shard(layer, mesh=mesh, **kwargs)
    fully_shard(net, mesh=mesh, **kwargs)
    assert train(net) == pytest.approx(expected, rel=1e-6 if options != "bfloat16" else 0.05)


def test_dtensor(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, randn

    x = distribute_tensor(torch.arange(12.0, device="sim").view(4, 3), mesh, [Shard(0)])
    assert (x + 1).sum().full_tensor().item() == 78
    torch.manual_seed(3)
    a = randn(4, 4, device_mesh=mesh, placements=[Shard(1)]).to_local()
    b = randn(4, 4, device_mesh=mesh, placements=[Shard(1)]).to_local()
    torch.manual_seed(3)
    assert torch.equal(randn(4, 4, device_mesh=mesh, placements=[Replicate()]).to_local(), a)
    assert not torch.equal(a, b)
    dropped = nn.functional.dropout(distribute_tensor(torch.ones(100, device="sim"), mesh, [Shard(0)]))
    assert set(dropped.to_local().tolist()) == {0.0, 2.0}


def test_tensor_parallel(mesh, expected):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert train(net) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_checkpoints(mesh, tmp_path, asynchronous):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    net = fully_shard(model(), mesh=mesh)
    optimiser = torch.optim.AdamW(net.parameters())
    net(torch.ones(1, 5, device="sim")).sum().backward()
    optimiser.step()
    weights, moments = get_state_dict(net, optimiser)
    state = {"model": weights, "optimiser": moments}
    if asynchronous:
        dcp.async_save(state, checkpoint_id=tmp_path / "c").result()
    else:
        dcp.save(state, checkpoint_id=tmp_path / "c")
    saved = [p.full_tensor().clone() for p in net.parameters()]
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    dcp.load(state, checkpoint_id=tmp_path / "c")
    set_state_dict(net, optimiser, model_state_dict=state["model"], optim_state_dict=state["optimiser"])
    assert all(torch.equal(p.full_tensor(), s) for p, s in zip(net.parameters(), saved))
