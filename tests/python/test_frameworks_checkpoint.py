"""torch.distributed.checkpoint: what some ranks saved, any number of ranks load."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import training
from conftest import slow_after_first
from training import on_ranks


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def sharded(device, seed=7):
    """A model that is sharded over all ranks, and its optimiser."""
    wrapped = training.model(device)
    if seed != 7:
        with torch.no_grad():
            for parameter in wrapped.parameters():
                parameter.fill_(seed)
    fully_shard(wrapped, mesh=init_device_mesh(device.type, (dist.get_world_size(),)))
    return wrapped, adam(wrapped.parameters())


def everything(wrapped, optimiser):
    """All parameters and moments, whole and on the host, so that any number of ranks can be compared."""
    model, moments = get_state_dict(wrapped, optimiser, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    flat = {f"model.{name}": value for name, value in model.items()}
    for parameter, state in moments.get("state", {}).items():
        flat |= {f"{parameter}.{name}": value for name, value in state.items()}
    return {name: value.tolist() for name, value in flat.items()}  # lists can be sent to the test's process


def train_and_save(device, folder, asynchronous):
    wrapped, optimiser = sharded(device)
    training.train(wrapped, device, optimiser)
    model, moments = get_state_dict(wrapped, optimiser)
    state = {"model": model, "optimiser": moments, "step": torch.tensor(training.STEPS)}
    if asynchronous:
        # A thread of torch's calls collectives on host tensors while the training goes on. Those of an accelerator are
        # numbered apart, but training on the host needs another group: the calls on one must come in the same order on
        # all ranks.
        group = dist.new_group() if device.type == "cpu" else None
        saving = checkpoint.async_save(state, checkpoint_id=folder, process_group=group)
        training.train(wrapped, device, optimiser, steps=1)  # goes on meanwhile, and is not saved
        saving.result()
        return None
    checkpoint.save(state, checkpoint_id=folder)
    return everything(wrapped, optimiser)


def load(device, folder):
    wrapped, optimiser = sharded(device, seed=3)
    model, moments = get_state_dict(wrapped, optimiser)
    state = {"model": model, "optimiser": moments, "step": torch.tensor(0)}
    checkpoint.load(state, checkpoint_id=folder)
    assert state["step"] == training.STEPS
    set_state_dict(wrapped, optimiser, model_state_dict=model, optim_state_dict=moments)
    return everything(wrapped, optimiser)


def test_two_ranks_save_and_any_number_load(device, tmp_path):
    saved = on_ranks(train_and_save, 2, device, str(tmp_path), False)[0]
    assert len(saved) == 6 + 3 * 6  # step and two moments of each parameter
    for ranks in (1, 2, 3):
        assert on_ranks(load, ranks, device, str(tmp_path))[0] == saved, f"{ranks} ranks"


@pytest.mark.slow
def test_three_ranks_save_and_four_load(device, tmp_path):
    saved = on_ranks(train_and_save, 3, device, str(tmp_path), False)[0]
    assert on_ranks(load, 4, device, str(tmp_path))[0] == saved


def test_what_is_saved_in_the_background_is_what_was_there_when_it_began(device, tmp_path):
    on_ranks(train_and_save, 2, device, str(tmp_path / "background"), True)
    saved = on_ranks(train_and_save, 2, device, str(tmp_path / "foreground"), False)[0]
    assert on_ranks(load, 2, device, str(tmp_path / "background"))[0] == saved


# The writer has a stager of its own, which pins what it keeps. DefaultStager pins with CUDA only.
STAGING = {
    "the writer into pinned memory": None,
    "a thread into shared memory": {"use_async_staging": True, "use_shared_memory": True},
    "a thread": {"use_async_staging": True, "use_shared_memory": False},
    "the caller": {"use_async_staging": False, "use_shared_memory": False, "use_non_blocking_copy": False},
}


class Late(checkpoint.FileSystemWriter):
    """Writes after the training has gone on."""

    trained = threading.Event()

    def write_data(self, plan, planner):
        assert self.trained.wait(30)
        return super().write_data(plan, planner)


def in_the_background(device, folder, options):
    """Two checkpoints, copied by the same means, each of what the parameters are when the copy is asked for."""
    wrapped, optimiser = sharded(device)
    writer = Late(folder, cache_staged_state_dict=options is None)
    stager = DefaultStager(StagingOptions(use_pinned_memory=False, **options)) if options else None
    for number in range(2):
        training.train(wrapped, device, optimiser)
        model, moments = get_state_dict(wrapped, optimiser)
        state = {"model": model, "optimiser": moments}
        then = {name: value.to_local().clone() for name, value in model.items()}
        step = f"{folder}/{number}"
        writer.trained.clear()
        saving = checkpoint.async_save(state, checkpoint_id=step, storage_writer=writer, async_stager=stager)
        if options and options["use_async_staging"]:
            saving.staging_completion.result()  # before that the parameters must stay as they are
            saving = saving.upload_completion
        training.train(wrapped, device, optimiser, steps=2)
        writer.trained.set()
        saving.result()
        blank = {name: torch.zeros_like(value) for name, value in model.items()}
        checkpoint.load({"model": blank}, checkpoint_id=step)
        for name, value in blank.items():
            assert value.to_local().equal(then[name]) and not value.to_local().equal(model[name].to_local()), f"{number}: {name}"
    if stager:
        stager.close()
    else:
        assert all(value.to_local().is_pinned() for value in writer.state_dict_cache["model"].values())


@pytest.mark.parametrize("copied_by", slow_after_first(STAGING))
def test_training_goes_on_while_a_copy_is_saved(sim, copied_by, tmp_path):
    on_ranks(in_the_background, 2, sim, str(tmp_path), STAGING[copied_by])


def write_safetensors(device, folder):
    wrapped, _ = sharded(device)
    training.train(wrapped, device)
    files = {name: 1 + (name > "2") for name, _ in wrapped.named_parameters()}
    writer = HuggingFaceStorageWriter(folder, fqn_to_index_mapping=files, save_distributed=True, enable_consolidation=True)
    checkpoint.save(get_model_state_dict(wrapped), storage_writer=writer)
    whole = get_model_state_dict(wrapped, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return {name: value.tolist() for name, value in whole.items()}


def read_safetensors(device, folder):
    wrapped, _ = sharded(device, seed=3)
    model = get_model_state_dict(wrapped)
    checkpoint.load(model, storage_reader=HuggingFaceStorageReader(folder))
    checkpoint.state_dict.set_model_state_dict(wrapped, model)
    whole = get_model_state_dict(wrapped, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return {name: value.tolist() for name, value in whole.items()}


def test_safetensors_are_written_and_read(device, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed: pip install safetensors")
    saved = on_ranks(write_safetensors, 2, device, str(tmp_path))[0]
    where = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(where.values())) == 2 and where.keys() == saved.keys()
    for file in set(where.values()):
        for name, value in safetensors.load_file(tmp_path / file).items():
            assert where[name] == file and value.tolist() == saved[name]
    for ranks in (1, 3):
        assert on_ranks(read_safetensors, ranks, device, str(tmp_path))[0] == saved, f"{ranks} ranks"


class Dying(checkpoint.FileSystemWriter):
    """Kills its process when half of the data is written, or when the metadata is written and not named yet."""

    def __init__(self, folder, when):
        super().__init__(folder, thread_count=1)
        self.when = when

    def write_data(self, plan, planner):
        written = super().write_data(plan, planner)
        if self.when == "data":
            written.wait()
            for file in Path(self.path).glob(f"__{dist.get_rank()}_*"):
                os.truncate(file, file.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    def finish(self, metadata, results):
        if self.when == "metadata":
            self.fs.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        super().finish(metadata, results)


def killed(device, folder, when, dying, asynchronous):
    """Saves, trains and saves again, into a folder of its own, and is killed; ranks that live on get an error."""
    wrapped, optimiser = sharded(device)
    for step in range(2):
        training.train(wrapped, device, optimiser)
        model, moments = get_state_dict(wrapped, optimiser)
        state = {"model": model, "optimiser": moments, "step": torch.tensor(training.STEPS)}
        if step == 0:
            checkpoint.save(state, checkpoint_id=f"{folder}/0")
            saved = everything(wrapped, optimiser)
            if dist.get_rank() == 0:
                Path(f"{folder}/saved").write_text(json.dumps(saved))
    writer = Dying(f"{folder}/1", when if dist.get_rank() in dying else None)
    with pytest.raises((dist.DistBackendError, checkpoint.api.CheckpointException), match="lost rank|peer lost"):
        if asynchronous:
            checkpoint.async_save(state, checkpoint_id=f"{folder}/1", storage_writer=writer).result()
        else:
            checkpoint.save(state, checkpoint_id=f"{folder}/1", storage_writer=writer)
    os._exit(7)


DEATHS = {
    "one rank": ("data", [1], False),
    "the coordinator at the end": ("metadata", [0], False),
    "all ranks": ("data", [0, 1, 2], False),
    "one rank in the background": ("data", [2], True),
}


@pytest.mark.parametrize("death", slow_after_first(DEATHS))
def test_a_save_that_is_killed_leaves_the_one_before(device, death, tmp_path):
    when, dying, asynchronous = DEATHS[death]
    codes = on_ranks(killed, 3, device, str(tmp_path), when, dying, asynchronous)
    assert codes == [-signal.SIGKILL if rank in dying else 7 for rank in range(3)]
    assert (tmp_path / "0" / ".metadata").exists() and (tmp_path / "1").exists()
    assert not (tmp_path / "1" / ".metadata").exists()  # by which a program tells which is whole
    assert on_ranks(load, 2, device, str(tmp_path / "0"))[0] == json.loads((tmp_path / "saved").read_text())


def on_the_cpu_and_the_device(device, folder):
    """One checkpoint with tensors of both, sharded and not, of several types."""
    mesh, rank = init_device_mesh(device.type, (2,)), dist.get_rank()

    def state(fill):
        return {
            "rows": distribute_tensor(torch.arange(15.0).view(5, 3).to(device) * fill, mesh, [Shard(0)]),
            "half": torch.full((7,), 2.5 * fill, dtype=torch.bfloat16, device=device),
            "host": torch.full((3,), 4 * fill, dtype=torch.int64),
            "scalar": 17 * fill,
            f"own of {rank}": torch.full((2,), float(rank) * fill, device=device),
        }

    checkpoint.save(state(1), checkpoint_id=folder)
    loaded = state(0)
    checkpoint.load(loaded, checkpoint_id=folder)
    for name, value in state(1).items():
        got = loaded[name]
        if isinstance(value, DTensor):
            got, value = got.to_local(), value.to_local()
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(got, value, rtol=0, atol=0)
        else:
            assert got == value


def test_tensors_of_both_kinds_lie_in_one_checkpoint(device, tmp_path):
    on_ranks(on_the_cpu_and_the_device, 2, device, str(tmp_path))


def broadcast_from_rank_0(device):
    wrapped, _ = sharded(device, seed=3)
    whole = training.model("cpu").state_dict() if dist.get_rank() == 0 else {}
    checkpoint.state_dict.set_model_state_dict(
        wrapped, whole, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    )
    got = get_model_state_dict(wrapped, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        training.same_parameters(got.values(), training.model("cpu").state_dict().values())


def test_rank_0_gives_the_others_what_it_alone_has(device):
    on_ranks(broadcast_from_rank_0, 2, device)
