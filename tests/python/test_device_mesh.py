"""DeviceMesh in one to three dimensions: slices, flattened meshes, backends and options of their own, bound devices."""

import itertools

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from training import on_ranks


def total(group, device):
    """What the ranks of a group add up to, as that group says, by both kinds of collectives."""
    tensor = torch.full((5,), float(2 ** dist.get_rank()), device=device)
    other = functional.wait_tensor(functional.all_reduce(tensor, "sum", group))
    dist.all_reduce(tensor, group=group if isinstance(group, dist.ProcessGroup) else group.get_group())
    assert tensor.equal(other)
    return int(tensor[0].item())


def bits(ranks):
    return sum(2**rank for rank in ranks)


def backend_of(group, device):
    return group._get_backend(torch.device(device.type))


SHAPES = {1: (4,), 2: (2, 2), 3: (2, 1, 2)}


def every_dimension(device, dimensions):
    shape, names = SHAPES[dimensions], ("pp", "dp", "tp")[:dimensions]
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
    ranks = torch.arange(4).view(shape)
    mine = mesh.get_coordinate()
    for i, name in enumerate(names):
        row = ranks[tuple(slice(None) if j == i else mine[j] for j in range(dimensions))]
        assert mesh[name].mesh.tolist() == row.tolist()
        assert total(mesh[name], device) == bits(row.tolist())
        assert total(mesh.get_group(name), device) == bits(row.tolist())
        assert mesh.get_local_rank(name) == mine[i]
        assert backend_of(mesh.get_group(name), device).name() == "hccl-like"
    for pair in itertools.combinations(names, 2):
        slice_ = mesh[pair]
        flat = slice_._flatten("_".join(pair))
        assert total(flat, device) == bits(flat.mesh.tolist())
        assert flat.mesh.tolist() == slice_.mesh.flatten().tolist()
        assert mesh["_".join(pair)].mesh.tolist() == flat.mesh.tolist()
        if dimensions == 3:  # a slice of a slice
            assert total(slice_[pair[0]], device) == total(mesh[pair[0]], device)
    dist.barrier()  # rank 0 serves the store, which making groups needs


@pytest.mark.parametrize("bind", [False, True], ids=["", "bound"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_every_dimension_has_its_group(dimensions, bind, device):
    if bind and device == "cpu":
        pytest.skip("a group is bound to accelerators only")
    on_ranks(every_dimension, 4, device, dimensions, bind=bind)


def options_by_dimension(device):
    import hccl_like

    options = hccl_like.Options()
    options._timeout = torch.distributed.constants.default_pg_timeout
    overrides = [
        {"tp": "hccl-like"},
        {"dp": ("hccl-like", options)},
        {0: "hccl-like", 1: ("hccl-like", hccl_like.Options())},
        {"tp": hccl_like.Options()},
    ]
    for override in overrides:
        mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("dp", "tp"), backend_override=override)
        rank = dist.get_rank()
        assert total(mesh["dp"], device) == bits([rank % 2, rank % 2 + 2])
        assert total(mesh["tp"], device) == bits([rank // 2 * 2, rank // 2 * 2 + 1])
        for name in ("dp", "tp"):
            assert backend_of(mesh.get_group(name), device).name() == "hccl-like"
    dist.barrier()


def test_a_dimension_may_have_a_backend_and_options_of_its_own(device):
    on_ranks(options_by_dimension, 4, device)


def beside_gloo(device):
    """A dimension for host tensors by another backend, on the same mesh."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"), backend_override={"dp": "gloo"})
    rank = dist.get_rank()
    assert mesh.get_group("dp")._get_backend(torch.device("cpu")).name() == "gloo"
    assert mesh.get_group("tp")._get_backend(torch.device("cpu")).name() == "hccl-like"
    assert total(mesh["dp"], torch.device("cpu")) == bits([rank % 2, rank % 2 + 2])
    assert total(mesh["tp"], torch.device("cpu")) == bits([rank // 2 * 2, rank // 2 * 2 + 1])
    dist.barrier()


def test_dimensions_of_several_backends(device):
    if device != "cpu":
        pytest.skip("gloo serves host tensors")
    on_ranks(beside_gloo, 4, device)


def from_groups(device):
    """Meshes made of groups that exist, and of a list of ranks in another order."""
    rank = dist.get_rank()
    rows = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    columns = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    mesh = DeviceMesh.from_group(
        [columns[rank % 2], rows[rank // 2]], device.type, mesh=torch.arange(4).view(2, 2), mesh_dim_names=("dp", "tp")
    )
    assert total(mesh["tp"], device) == bits([rank // 2 * 2, rank // 2 * 2 + 1])
    assert total(mesh["dp"], device) == bits([rank % 2, rank % 2 + 2])
    backwards = DeviceMesh(device.type, [[3, 1], [2, 0]])
    # A group is ordered by rank, whatever the mesh says: torch.distributed's own rule for new_group().
    group = backwards.get_group(1)
    assert total(group, device) == bits([1, 3] if rank % 2 else [0, 2])
    with pytest.raises((RuntimeError, KeyError)):
        mesh["nothing"]
    dist.barrier()


def test_meshes_of_groups_that_exist(device):
    on_ranks(from_groups, 4, device)
