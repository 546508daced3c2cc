"""Distributed checkpoints: saving and loading with other placements and other numbers of ranks, and the state-dict API."""

from __future__ import annotations

import importlib.util
import os
from copy import deepcopy
from functools import partial

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, zeros
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.testing._internal.common_fsdp import MLPStack
from torch.testing._internal.distributed._tensor.common_dtensor import with_comms
from torch.testing._internal.distributed.checkpoint_utils import Rot13Example, get_test_extension_registry, with_temp_dir
from torch.testing._internal.distributed.common_state_dict import VerifyStateDictMixin

from . import _base
from ._base import DTensorTest, FsdpTest, needs

adam = partial(torch.optim.AdamW, lr=0.01)
ROW, COLUMN, ALL = Shard(0), Shard(1), Replicate()


class Counter(Stateful):
    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


class Tensors(DTensorTest):
    def whole(self, rows=11, columns=7):
        return torch.arange(float(rows * columns), device=self.device).view(rows, columns)

    @with_comms
    @with_temp_dir
    def test_what_is_saved_is_loaded(self):
        mine = {"plain": self.whole(), "spread": distribute_tensor(self.whole(), self.mesh(), [ROW]), "number": 5,
                "nested": {"list": [torch.ones(3, device=self.device), "text"]}}  # fmt: skip
        dcp.save(mine, checkpoint_id=self.temp_dir)
        other = {"plain": torch.zeros_like(self.whole()), "spread": zeros(11, 7, device_mesh=self.mesh(), placements=[ROW]),
                 "number": 0, "nested": {"list": [torch.zeros(3, device=self.device), ""]}}  # fmt: skip
        dcp.load(other, checkpoint_id=self.temp_dir)
        self.assertEqual(other["spread"].to_local(), mine["spread"].to_local())
        self.assertEqual((other["plain"], other["number"], other["nested"]), (mine["plain"], 5, mine["nested"]))

    @with_comms
    @with_temp_dir
    def test_loaded_with_other_placements(self):
        line, square = self.mesh(), self.square()
        layouts = [(line, [ROW]), (line, [COLUMN]), (line, [ALL]), (square, [ROW, COLUMN]), (square, [ALL, ROW]), (square, [ROW, ALL])]
        for number, (mesh, placements) in enumerate(layouts):
            folder = os.path.join(self.temp_dir, str(number))
            dcp.save({"t": distribute_tensor(self.whole(), mesh, placements)}, checkpoint_id=folder)
            for other_mesh, other_placements in layouts:
                into = zeros(11, 7, device_mesh=other_mesh, placements=other_placements)
                dcp.load({"t": into}, checkpoint_id=folder)
                self.assertEqual(into.full_tensor(), self.whole())

    @with_comms
    @with_temp_dir
    def test_saved_by_all_ranks_and_loaded_by_half(self):
        dcp.save({"t": distribute_tensor(self.whole(), self.mesh(), [ROW])}, checkpoint_id=self.temp_dir)
        half = list(range(self.world_size // 2))
        mesh, group = DeviceMesh(self.device_type, half), dist.new_group(half)
        if self.rank in half:
            into = zeros(11, 7, device_mesh=mesh, placements=[ROW])
            dcp.load({"t": into}, checkpoint_id=self.temp_dir, process_group=group)
            self.assertEqual(into.to_local(), self.whole().chunk(len(half))[self.rank])
        dist.barrier()

    @with_comms
    @with_temp_dir
    def test_saved_by_half_and_loaded_by_all_ranks(self):
        half = list(range(self.world_size // 2))
        mesh, group = DeviceMesh(self.device_type, half), dist.new_group(half)
        if self.rank in half:
            state = {"t": distribute_tensor(self.whole(), mesh, [COLUMN])}
            dcp.save(state, checkpoint_id=self.temp_dir, process_group=group)
        else:
            distribute_tensor(self.whole(), mesh, [COLUMN])
        dist.barrier()
        into = zeros(11, 7, device_mesh=self.mesh(), placements=[ROW])
        dcp.load({"t": into}, checkpoint_id=self.temp_dir)
        self.assertEqual(into.full_tensor(), self.whole())

    @with_comms
    @with_temp_dir
    def test_one_rank_reads_without_the_others(self):
        dcp.save({"t": distribute_tensor(self.whole(), self.mesh(), [ROW])}, checkpoint_id=self.temp_dir)
        if self.rank == 1:
            into = torch.zeros(11, 7, device=self.device)
            dcp.load({"t": into}, checkpoint_id=self.temp_dir, no_dist=True)
            self.assertEqual(into, self.whole())
        dist.barrier()

    @with_comms
    @with_temp_dir
    def test_saved_in_the_background(self):
        into = zeros(11, 7, device_mesh=self.mesh(), placements=[ROW])
        group = dist.new_group()
        kept = distribute_tensor(self.whole(), self.mesh(), [ROW])
        for step in range(2):
            folder = os.path.join(self.temp_dir, str(step))
            future = dcp.async_save({"t": kept}, checkpoint_id=folder, process_group=group)
            kept = kept + 1  # the checkpoint holds what was there when it was asked for
            future.result()
            dcp.load({"t": into}, checkpoint_id=folder)
            self.assertEqual(into.full_tensor(), self.whole() + step)

    @with_comms
    @with_temp_dir
    def test_objects_that_know_their_state(self):
        dcp.save({"counter": Counter(3 + self.rank * 0)}, checkpoint_id=self.temp_dir)
        other = Counter(0)
        dcp.load({"counter": other}, checkpoint_id=self.temp_dir)
        self.assertEqual(other.value, 3)

    @with_comms
    @with_temp_dir
    def test_states_of_single_ranks(self):
        mine = {f"rank{self.rank}": torch.full((3,), float(self.rank), device=self.device)}
        dcp.save(mine, checkpoint_id=self.temp_dir)
        peer = (self.rank + 1) % self.world_size
        other = {f"rank{peer}": torch.zeros(3, device=self.device)}
        dcp.load(other, checkpoint_id=self.temp_dir)
        self.assertEqual(other[f"rank{peer}"], torch.full((3,), float(peer), device=self.device))

    @with_comms
    @with_temp_dir
    def test_one_rank_s_failure_is_everybody_s(self):
        class Breaks(dcp.FileSystemWriter):
            def write_data(self, plan, planner):
                raise OSError("no space")

        kind = Breaks if self.rank == 1 else dcp.FileSystemWriter
        with self.assertRaises(CheckpointException) as seen:
            dcp.save({"t": distribute_tensor(self.whole(), self.mesh(), [ROW])}, storage_writer=kind(self.temp_dir))
        self.assertEqual(list(seen.exception.failures), [1])

    @with_comms
    @with_temp_dir
    def test_files_transformed_on_their_way(self):
        writer = dcp.FileSystemWriter(self.temp_dir, thread_count=2, _extensions=[Rot13Example()])
        dcp.save({"t": distribute_tensor(self.whole(), self.mesh(), [ROW])}, storage_writer=writer)
        into = zeros(11, 7, device_mesh=self.mesh(), placements=[COLUMN])
        reader = dcp.FileSystemReader(self.temp_dir, _extension_registry=get_test_extension_registry())
        dcp.load({"t": into}, storage_reader=reader)
        self.assertEqual(into.full_tensor(), self.whole())

    @with_comms
    @with_temp_dir
    def test_converted_to_a_plain_file_and_back(self):
        folder, file, again = (os.path.join(self.temp_dir, name) for name in ("dcp", "plain.pt", "again"))
        dcp.save({"t": distribute_tensor(self.whole(), self.mesh(), [ROW])}, checkpoint_id=folder)
        if self.rank == 0:
            dcp_to_torch_save(folder, file)
            self.assertEqual(torch.load(file, map_location=self.device)["t"], self.whole())
            torch_save_to_dcp(file, again)
        dist.barrier()
        into = zeros(11, 7, device_mesh=self.mesh(), placements=[ROW])
        dcp.load({"t": into}, checkpoint_id=again)
        self.assertEqual(into.full_tensor(), self.whole())

    @with_comms
    @with_temp_dir
    @needs(lambda: importlib.util.find_spec("safetensors") is not None, "the package safetensors is not installed")
    def test_safetensors(self):
        layout = {"t": 1}
        writer = dcp.HuggingFaceStorageWriter(self.temp_dir, fqn_to_index_mapping=layout, save_distributed=True)
        dcp.save({"t": distribute_tensor(self.whole(), self.mesh(), [ROW])}, storage_writer=writer)
        into = zeros(11, 7, device_mesh=self.mesh(), placements=[COLUMN])
        dcp.load({"t": into}, storage_reader=dcp.HuggingFaceStorageReader(self.temp_dir))
        self.assertEqual(into.full_tensor(), self.whole())


class Models(VerifyStateDictMixin, FsdpTest):
    """State dicts of parallel models are those of the plain model, with torch's own comparison."""

    def plain(self):
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)).to(self.device)

    def by_layer(self, model, mesh):
        for part in model:
            if isinstance(part, nn.Linear):
                fully_shard(part, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def kinds(self):
        wrap = {"use_orig_params": True, "auto_wrap_policy": ModuleWrapPolicy({nn.Linear}), **_base.on_host()}
        return {
            "copies": lambda model: DDP(model),
            "shards": lambda model: self.by_layer(model, self.mesh()),
            "shards and copies": lambda model: self.by_layer(model, self.square("replicate", "shard")),
            "flat shards": lambda model: FSDP(model, device_mesh=self.mesh(), **wrap),
        }

    def step(self, model, optimiser):
        optimiser.zero_grad()
        x = torch.randn(5, 6, generator=torch.Generator().manual_seed(9)).to(self.device)  # alike on all ranks
        model(x).square().mean().backward()
        optimiser.step()

    def trained(self, wrap):
        plain = self.plain()
        model = wrap(deepcopy(plain))
        one, other = adam(plain.parameters()), adam(model.parameters())
        for _ in range(2):
            self.step(plain, one)
            self.step(model, other)
        return plain, one, model, other

    def test_states_are_the_plain_model_s(self):
        for wrap in self.kinds().values():
            plain, one, model, other = self.trained(wrap)
            state, optimiser_state = get_state_dict(model, other)
            self._verify_msd(plain.state_dict(), state)
            self._verify_osd(plain, one, one.state_dict(), optimiser_state)
            self._verify_osd_by_load(plain, one, adam(plain.parameters()), optimiser_state)

    def test_full_states_on_the_host(self):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        for name, wrap in self.kinds().items():
            if name == "flat shards" and not _base.on_accelerator():
                continue  # torch frees the memory of a state dict that it offloads to where it already is
            plain, one, model, other = self.trained(wrap)
            state = get_model_state_dict(model, options=options)
            if self.rank == 0:
                self._verify_msd(plain.state_dict(), state, offload_to_cpu=True)
            else:
                self.assertEqual(state, {})

    def test_part_of_a_model(self):
        for name, wrap in self.kinds().items():
            if name == "flat shards":
                continue  # torch asks for the whole of such a model
            plain, _, model, _ = self.trained(wrap)
            part = (model.module if isinstance(model, DDP) else model)[0]
            state = get_model_state_dict(model, submodules={part})
            self.assertEqual(sorted(state), ["0.bias", "0.weight"])

    def saved_and_loaded(self, save, load, folder):
        _, _, model, optimiser = self.trained(save)
        state = dict(zip(("model", "optimiser"), get_state_dict(model, optimiser)))
        dcp.save(state, checkpoint_id=folder)
        torch.manual_seed(99)
        other = load(nn.Sequential(*(deepcopy(part) for part in self.plain())))
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        second = adam(other.parameters())
        into = dict(zip(("model", "optimiser"), get_state_dict(other, second)))
        dcp.load(into, checkpoint_id=folder)
        set_state_dict(other, second, model_state_dict=into["model"], optim_state_dict=into["optimiser"])
        whole = StateDictOptions(full_state_dict=True)
        self.step(model, optimiser)
        self.step(other, second)
        for one, two in zip(get_model_state_dict(model, options=whole).values(), get_model_state_dict(other, options=whole).values()):
            self.assertEqual(two, one, rtol=1e-4, atol=1e-5)

    @with_temp_dir
    def test_saved_as_one_kind_and_loaded_as_another(self):
        kinds = self.kinds()
        pairs = [("shards", "shards and copies"), ("shards and copies", "copies"), ("copies", "shards"), ("shards", "flat shards"),
                 ("flat shards", "shards")]  # fmt: skip
        for number, (before, after) in enumerate(pairs):
            with self.subTest(before=before, after=after):
                self.saved_and_loaded(kinds[before], kinds[after], os.path.join(self.temp_dir, str(number)))

    @with_temp_dir
    def test_two_dimensions_loaded_as_one(self):
        mesh = self.square("data", "parts")
        torch.manual_seed(42)
        plain = MLPStack(8).to(self.device)
        both = deepcopy(plain).parallelize(mesh["parts"], mesh["data"], False)
        dcp.save(get_model_state_dict(both), checkpoint_id=self.temp_dir)
        other = MLPStack(8).to(self.device)
        for part in other:
            fully_shard(part, mesh=self.mesh())
        fully_shard(other, mesh=self.mesh())
        state = get_model_state_dict(other)
        dcp.load(state, checkpoint_id=self.temp_dir)
        set_model_state_dict(other, state)
        self.assertEqual([p.full_tensor() for p in other.parameters()], list(plain.parameters()))

    def test_rank_0_s_state_reaches_all(self):
        whole = {name: value + 1 for name, value in self.plain().state_dict().items()}
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        for name in ("shards", "shards and copies", "copies"):
            model = self.kinds()[name](self.plain())
            set_model_state_dict(model, dict(whole) if self.rank == 0 else {}, options=options)  # torch changes the dict
            self._verify_msd(whole, get_model_state_dict(model))

    def test_optimiser_states_flattened_by_name(self):
        _, _, model, optimiser = self.trained(self.kinds()["shards"])
        state = get_optimizer_state_dict(model, optimiser, options=StateDictOptions(flatten_optimizer_state_dict=True))
        self.assertIn("state.0.weight.exp_avg", state)
        self.assertIsInstance(state["state.0.weight.exp_avg"], DTensor)


class BoundModels(Models):
    """The same where torch knows the rank's device from the start."""

    bound = True


def load(backend: str, device: str, world_size: int) -> list[type]:
    _base.aim(backend, device, world_size)
    return _base.tests_for(Tensors, Models, BoundModels)
