"""torch.distributed.checkpoint: what some ranks saved, any number of ranks load."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
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
