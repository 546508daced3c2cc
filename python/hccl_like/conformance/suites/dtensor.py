"""DTensor: placements and the collectives between them, operators through `DTensorConverter`, meshes, random numbers."""

from __future__ import annotations

import io
import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    empty,
    full,
    ones,
    rand,
    randn,
    zeros,
)
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import implicit_replication, local_map
from torch.testing._internal.distributed._tensor.common_dtensor import MLPModule, with_comms

from . import _base
from ._base import DTensorTest, needs, on_accelerator
from ._dtensor_operators import Operators

# Fewer rows than ranks, as many, uneven, even.
SIZES = ((3, 5), (4, 4), (7, 10), (8, 12), (1, 9))


class Placements(DTensorTest):
    def whole(self, shape, dtype=torch.float32):
        count = torch.Size(shape).numel()
        return torch.arange(count, device=self.device).to(dtype).reshape(shape)

    @with_comms
    def test_what_is_distributed_comes_back_whole(self):
        mesh = self.mesh()
        for shape, dtype in itertools.product(SIZES, (torch.float32, torch.bfloat16, torch.int64, torch.complex64)):
            tensor = self.whole(shape, dtype)
            for placement in (Shard(0), Shard(1), Shard(-1), Replicate()):
                self.assertEqual(distribute_tensor(tensor, mesh, [placement]).full_tensor(), tensor)

    @with_comms
    def test_a_shard_is_a_slice(self):
        mesh = self.mesh()
        tensor = self.whole((7, 10))
        for side in (0, 1):
            pieces = tensor.chunk(self.world_size, side)
            local = distribute_tensor(tensor, mesh, [Shard(side)]).to_local()
            self.assertEqual(local, pieces[self.rank] if self.rank < len(pieces) else tensor.narrow(side, 0, 0))

    @with_comms
    def test_rank_0_s_values_are_everybody_s(self):
        tensor = self.whole((5, 6)) + 100 * self.rank
        for placement in (Shard(0), Shard(1), Replicate()):
            self.assertEqual(distribute_tensor(tensor, self.mesh(), [placement]).full_tensor(), self.whole((5, 6)))
        mine = distribute_tensor(tensor, self.mesh(), [Replicate()], src_data_rank=None)
        self.assertEqual(mine.to_local(), tensor)

    @with_comms
    def test_every_placement_becomes_every_other(self):
        mesh = self.mesh()
        placements = [Shard(0), Shard(1), Replicate()]
        for shape in SIZES:
            tensor = self.whole(shape)
            for before, after in itertools.product(placements, placements):
                moved = distribute_tensor(tensor, mesh, [before]).redistribute(mesh, [after])
                self.assertEqual(moved.placements, (after,))
                self.assertEqual(moved.to_local().contiguous(), distribute_tensor(tensor, mesh, [after]).to_local())

    @with_comms
    def test_partial_sums_become_every_placement(self):
        mesh = self.mesh()
        for shape, (kind, expected) in itertools.product(SIZES, self.partials().items()):
            mine = self.whole(shape) + self.rank
            for after in (Shard(0), Shard(1), Replicate()):
                got = DTensor.from_local(mine, mesh, [Partial(kind)]).redistribute(mesh, [after])
                self.assertEqual(got.full_tensor(), expected(self.whole(shape)))

    def partials(self):
        n = self.world_size
        everybody = range(n)
        return {
            "sum": lambda t: n * t + sum(everybody),
            "avg": lambda t: t + sum(everybody) / n,
            "max": lambda t: t + n - 1,
            "min": lambda t: t,
            "product": lambda t: torch.stack([t + rank for rank in everybody]).prod(0),
        }

    @with_comms
    def test_two_dimensions(self):
        mesh = self.square()
        tensor = self.whole((7, 9))
        choices = list(itertools.product([Shard(0), Shard(1), Replicate()], repeat=2))
        for before, after in itertools.product(choices, choices):
            moved = distribute_tensor(tensor, mesh, before).redistribute(mesh, after)
            self.assertEqual(moved.full_tensor(), tensor, msg=f"{before} to {after}")
            self.assertEqual(moved.to_local().contiguous(), distribute_tensor(tensor, mesh, after).to_local().contiguous())

    @with_comms
    def test_partial_in_two_dimensions(self):
        mesh = self.square()
        mine = torch.ones(6, 5, device=self.device) * (self.rank + 1)
        total = torch.full_like(mine, sum(range(1, self.world_size + 1)))
        parts = DTensor.from_local(mine, mesh, [Partial(), Partial()])
        for after in ([Replicate(), Replicate()], [Shard(0), Replicate()], [Replicate(), Shard(1)], [Shard(0), Shard(0)]):
            self.assertEqual(parts.redistribute(mesh, after).full_tensor(), total)

    @with_comms
    def test_three_dimensions_of_one_and_more(self):
        mesh = self.mesh(1, 2, self.world_size // 2)
        tensor = self.whole((6, 5, 7))
        for placements in itertools.permutations([Shard(0), Shard(1), Shard(2)]):
            self.assertEqual(distribute_tensor(tensor, mesh, placements).full_tensor(), tensor)

    @with_comms
    def test_local_parts_of_different_sizes(self):
        mesh = self.mesh()
        mine = torch.full((self.rank + 1, 3), float(self.rank), device=self.device)
        rows = sum(range(1, self.world_size + 1))
        with_shape = DTensor.from_local(mine, mesh, [Shard(0)], shape=torch.Size((rows, 3)), stride=(3, 1))
        self.assertEqual(tuple(with_shape.shape), (rows, 3))
        self.assertEqual(with_shape.to_local(), mine)

    @with_comms
    def test_ranks_are_made_alike_if_asked(self):
        mesh = self.mesh()
        mine = torch.full((4,), float(self.rank), device=self.device)
        self.assertEqual(DTensor.from_local(mine, mesh, [Replicate()], run_check=True).to_local(), torch.zeros_like(mine))

    @with_comms
    def test_gradients_go_back_through_a_change_of_placement(self):
        mesh = self.mesh()
        for before, after in itertools.product([Shard(0), Shard(1), Replicate()], repeat=2):
            tensor = self.whole((5, 6)).requires_grad_()
            moved = distribute_tensor(tensor, mesh, [before]).detach().requires_grad_()
            moved.redistribute(mesh, [after]).square().sum().backward()
            self.assertEqual(moved.grad.full_tensor(), 2 * tensor.detach())

    @with_comms
    def test_gradients_go_back_to_local_tensors(self):
        mesh = self.mesh()
        mine = torch.ones(3, 4, device=self.device, requires_grad=True)
        (DTensor.from_local(mine, mesh, [Shard(0)]).full_tensor() * 2).sum().backward()
        self.assertEqual(mine.grad, torch.full_like(mine, 2.0))
        mine.grad = None
        everybody = DTensor.from_local(mine, mesh, [Shard(0)]).full_tensor(grad_placements=[Partial()])
        (everybody * (self.rank + 1)).sum().backward()
        self.assertEqual(mine.grad, torch.full_like(mine, float(sum(range(1, self.world_size + 1)))))
        mine.grad = None
        DTensor.from_local(mine, mesh, [Shard(0)]).to_local(grad_placements=[Shard(0)]).sum().backward()
        self.assertEqual(mine.grad, torch.ones_like(mine))

    @with_comms
    def test_redistribution_in_the_background(self):
        mesh = self.mesh()
        tensor = self.whole((7, 5))
        moved = distribute_tensor(tensor, mesh, [Shard(0)]).redistribute(mesh, [Replicate()], async_op=True)
        self.assertEqual(moved.to_local() + 1, tensor + 1)

    @with_comms
    def test_sharding_along_another_side_is_one_exchange(self):
        mesh = self.mesh()
        moved = distribute_tensor(self.whole((8, 8)), mesh, [Shard(0)])
        with CommDebugMode() as seen:
            moved.redistribute(mesh, [Shard(1)])
        self.assertEqual(seen.get_total_counts(), 1)

    @with_comms
    def test_saved_and_loaded(self):
        file = io.BytesIO()
        one = distribute_tensor(self.whole((5, 4)), self.mesh(), [Shard(0)])
        torch.save(one, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
        self.assertEqual(other.to_local(), one.to_local())
        self.assertEqual(other.placements, one.placements)


class Modules(DTensorTest):
    @with_comms
    def test_a_module_replicated(self):
        plain = MLPModule(self.device)
        spread = distribute_module(MLPModule(self.device), self.mesh())
        x = torch.ones(3, 10, device=self.device)
        with implicit_replication():
            self.assertEqual(spread(x).full_tensor(), plain(x))

    @with_comms
    def test_a_module_sharded_by_hand(self):
        def shard(name, module, mesh):
            if isinstance(module, nn.Linear):
                for key, parameter in list(module.named_parameters(recurse=False)):
                    module.register_parameter(key, nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)])))

        mesh = self.mesh()
        plain = MLPModule(self.device)
        spread = distribute_module(
            MLPModule(self.device),
            mesh,
            shard,
            input_fn=lambda module, inputs, mesh: distribute_tensor(inputs[0], mesh, [Shard(0)]),
            output_fn=lambda module, output, mesh: output.full_tensor(),
        )
        x = torch.randn(6, 10, device=self.device)
        dist.broadcast(x, 0)
        for model in (plain, spread):
            model(x).square().sum().backward()
        for ours, theirs in zip(spread.parameters(), plain.parameters()):
            self.assertEqual(ours.grad.full_tensor(), theirs.grad, rtol=1e-4, atol=1e-5)

    @with_comms
    def test_local_code_between_distributed_tensors(self):
        mesh = self.mesh()
        x, weight = torch.randn(8, 4, device=self.device), torch.randn(4, 6, device=self.device)
        for tensor in (x, weight):
            dist.broadcast(tensor, 0)
        multiply = local_map(torch.mm, out_placements=[Partial()], in_placements=([Shard(1)], [Shard(0)]), device_mesh=mesh)
        product = multiply(distribute_tensor(x, mesh, [Shard(1)]), distribute_tensor(weight, mesh, [Shard(0)]))
        self.assertEqual(product.full_tensor(), x @ weight, rtol=1e-4, atol=1e-5)


class Factories(DTensorTest):
    @with_comms
    def test_constants(self):
        mesh = self.mesh()
        for placement in (Shard(0), Shard(1), Replicate()):
            for make, value in ((zeros, 0.0), (ones, 1.0)):
                self.assertEqual(make(7, 6, device_mesh=mesh, placements=[placement]).full_tensor(),
                                 torch.full((7, 6), value, device=self.device))  # fmt: skip
            filled = full((7, 6), 2.5, device_mesh=mesh, placements=[placement])
            self.assertEqual(filled.full_tensor(), torch.full((7, 6), 2.5, device=self.device))
            self.assertEqual(tuple(empty(7, 6, device_mesh=mesh, placements=[placement]).shape), (7, 6))

    @with_comms
    @needs(on_accelerator, "torch has no random numbers for DTensor on a mesh of CPUs")
    def test_random_numbers_do_not_depend_on_the_sharding(self):
        mesh = self.mesh()
        for make in (rand, randn):
            got = []
            for placement in (Replicate(), Shard(0), Shard(1)):
                torch.manual_seed(7)
                got.append(make(8, 12, device_mesh=mesh, placements=[placement]).full_tensor())
            everybody = [torch.empty_like(got[0]) for _ in range(self.world_size)]
            dist.all_gather(everybody, got[0])
            self.assertEqual(everybody, [got[0]] * self.world_size)
            self.assertGreater(got[1].unique().numel(), 80)  # no two ranks drew the same numbers

    @with_comms
    @needs(on_accelerator, "torch has no random numbers for DTensor on a mesh of CPUs")
    def test_random_operators_on_shards(self):
        mesh = self.mesh()
        torch.manual_seed(11)
        one = distribute_tensor(torch.empty(16, 16, device=self.device), mesh, [Shard(0)])
        for draw in (lambda t: t.uniform_(), lambda t: t.normal_(), lambda t: t.bernoulli_(0.5), torch.rand_like, torch.randn_like,
                     lambda t: torch.nn.functional.dropout(torch.ones_like(t), 0.5)):  # fmt: skip
            rows = draw(one).full_tensor().reshape(self.world_size, -1)
            for a, b in itertools.combinations(rows, 2):
                self.assertNotEqual(a, b)
        two = distribute_tensor(torch.empty(16, 16, device=self.device), mesh, [Replicate()]).uniform_().to_local()
        everybody = [torch.empty_like(two) for _ in range(self.world_size)]
        dist.all_gather(everybody, two)
        self.assertEqual(everybody, [two] * self.world_size)


class Meshes(DTensorTest):
    bound = False

    def init_pg(self, eager_init=False, backend=None):
        super().init_pg(eager_init or self.bound, backend)

    @with_comms
    def test_a_slice_is_a_group_of_its_own(self):
        mesh = self.square("row", "column")
        half = self.world_size // 2
        for name, expected in (("row", [self.rank % half, self.rank % half + half]), ("column", [self.rank // half * half + i for
                               i in range(half)])):  # fmt: skip
            group = mesh[name].get_group()
            self.assertEqual(dist.get_process_group_ranks(group), expected)
            total = torch.tensor([float(self.rank)], device=self.device)
            dist.all_reduce(total, group=group)
            self.assertEqual(total.item(), float(sum(expected)))
        self.assertEqual(mesh.get_coordinate(), [self.rank // half, self.rank % half])

    @with_comms
    def test_two_dimensions_flattened(self):
        mesh = self.mesh(2, 1, self.world_size // 2, names=("a", "b", "c"))
        flat = mesh["a", "c"]._flatten("ac")
        total = torch.ones(3, device=self.device)
        dist.all_reduce(total, group=flat.get_group())
        self.assertEqual(total, torch.full_like(total, float(self.world_size)))
        self.assertEqual(mesh["ac"].size(), self.world_size)

    @with_comms
    def test_a_mesh_of_some_ranks(self):
        mesh = DeviceMesh(self.device_type, [0, 2])
        local = distribute_tensor(torch.arange(4.0, device=self.device), mesh, [Shard(0)])
        if self.rank in (0, 2):
            self.assertEqual(local.to_local(), torch.arange(4.0, device=self.device).chunk(2)[self.rank // 2])
            self.assertEqual(local.full_tensor(), torch.arange(4.0, device=self.device))
        else:
            self.assertEqual(local.to_local().numel(), 0)

    @with_comms
    def test_a_mesh_over_a_group_that_exists(self):
        rows, _ = dist.new_subgroups(group_size=2)
        mesh = DeviceMesh.from_group(rows, self.device_type)
        base = 2 * (self.rank // 2)
        mine = torch.tensor([float(self.rank)], device=self.device)
        whole = DTensor.from_local(mine, mesh, [Shard(0)]).full_tensor()
        self.assertEqual(whole, torch.tensor([base, base + 1.0], device=self.device))

    @with_comms
    def test_a_mesh_over_groups_of_two_dimensions(self):
        half = self.world_size // 2
        grid = torch.arange(self.world_size).view(2, half)
        column, _ = dist.new_subgroups_by_enumeration(grid.tolist())
        row, _ = dist.new_subgroups_by_enumeration(grid.t().tolist())
        mesh = DeviceMesh.from_group([row, column], self.device_type, grid, mesh_dim_names=("row", "column"))
        tensor = torch.arange(35.0, device=self.device).reshape(5, 7)
        self.assertEqual(distribute_tensor(tensor, mesh, [Shard(0), Shard(1)]).full_tensor(), tensor)

    @with_comms
    def test_a_backend_named_for_one_dimension(self):
        backend = dist.get_backend()
        mesh = init_device_mesh(self.device_type, (2, self.world_size // 2), mesh_dim_names=("a", "b"),
                                backend_override={"b": backend})  # fmt: skip
        total = torch.ones(2, device=self.device)
        for name in ("a", "b"):
            dist.all_reduce(total, group=mesh.get_group(name))
        self.assertEqual(total, torch.full_like(total, float(self.world_size)))

    @with_comms
    def test_meshes_that_are_alike_share_their_groups(self):
        one, other = self.square("a", "b"), self.square("a", "b")
        self.assertEqual(one, other)
        self.assertEqual(hash(one), hash(other))
        tensor = torch.arange(6.0, device=self.device)
        for mesh in (one, other):
            self.assertEqual(distribute_tensor(tensor, mesh["b"], [Shard(0)]).full_tensor(), tensor)

    @with_comms
    def test_parts_concatenated_into_one_mesh(self):
        mesh = self.mesh(2, self.world_size // 2, names=("a", "b"))
        again = DeviceMesh._concatenate([mesh["a"], mesh["b"]])
        tensor = torch.arange(12.0, device=self.device).reshape(4, 3)
        self.assertEqual(distribute_tensor(tensor, again, [Replicate(), Shard(0)]).full_tensor(), tensor)


class BoundMeshes(Meshes):
    """The same where torch knows the rank's device from the start, so that meshes split the default group."""

    bound = True


def load(backend: str, device: str, world_size: int) -> list[type]:
    _base.aim(backend, device, world_size)
    return _base.tests_for(Placements, Modules, Factories, Meshes, BoundMeshes, Operators)
