"""Checkpoints that any number of ranks, and either kind of parallelism, can take up again.

torch.distributed.checkpoint stores every tensor under its name in the plain model, in whatever pieces the ranks held;
a reader with another number of ranks collects the pieces it needs.
"""

import json
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

# One process without a process group is a way to train here, not a mistake.
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")


@dataclass
class Progress:
    """What a run needs besides model and optimiser to go on as if it had never stopped."""

    step: int = 0
    losses: list[float] = field(default_factory=list)
    accuracies: dict[int, float] = field(default_factory=dict)  # on the held-out images, by step
    rng: torch.Generator = field(default_factory=torch.Generator)


class Checkpoints:
    """The folder of one run: `step-000070/` for each checkpoint and `latest`, the name of the newest complete one."""

    def __init__(self, folder: str, asynchronous: bool = False):
        self._folder = Path(folder)
        self._asynchronous = asynchronous
        self._pending = None  # (future, name) of the save that still runs
        # A save that runs beside the training talks to its peers at any time, so it must not share a group with it:
        # ranks issue the operations of one group in the same order.
        self._group = dist.new_group() if asynchronous and not _alone() else None

    def save(self, model, optimizer, progress: Progress) -> None:
        """Every rank calls it. Asynchronous: returns when the state is copied aside."""
        self.finish()
        name = f"step-{progress.step:06d}"
        state = _state(model, optimizer, progress)
        target = str(self._folder / name)
        if self._asynchronous:
            future = dcp.async_save(state, checkpoint_id=target, process_group=self._group, no_dist=_alone())
            self._pending = (future, name)
            return
        dcp.save(state, checkpoint_id=target, no_dist=_alone())
        self._mark_latest(name)

    def finish(self) -> None:
        """Waits for the save that still runs."""
        if self._pending is None:
            return
        future, name = self._pending
        self._pending = None
        future.result()
        self._mark_latest(name)

    def latest(self) -> str:
        """The newest complete checkpoint; refuses clearly when there is none."""
        mark = self._folder / "latest"
        if not mark.is_file():
            raise SystemExit(f"nothing to resume: {mark} does not exist. Train with --checkpoint {self._folder} first.")
        return str(self._folder / mark.read_text().strip())

    def load(self, model, optimizer, progress: Progress) -> None:
        """Every rank calls it; model, optimiser and progress are changed in place."""
        state = _state(model, optimizer, progress)
        dcp.load(state, checkpoint_id=self.latest(), no_dist=_alone())
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        told = json.loads(state["progress"])
        progress.step, progress.losses = told["step"], told["losses"]
        progress.accuracies = {int(step): value for step, value in told["accuracies"].items()}
        progress.rng.set_state(state["rng"])

    def _mark_latest(self, name: str) -> None:
        if not _alone() and dist.get_rank() != 0:
            return
        fresh = self._folder / "latest.new"
        fresh.write_text(name + "\n")
        os.replace(fresh, self._folder / "latest")  # whole or not at all


def _alone() -> bool:
    return not dist.is_initialized()


def _state(model, optimizer, progress: Progress) -> dict:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    told = {"step": progress.step, "losses": progress.losses, "accuracies": progress.accuracies}
    return {
        "model": model_state,
        "optimizer": optimizer_state,
        "progress": json.dumps(told),
        "rng": progress.rng.get_state(),
    }
