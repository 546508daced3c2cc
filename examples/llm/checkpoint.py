"""Checkpoints that every layout can take up again.

Each tensor is stored under its name in the whole model, in whatever pieces the ranks held. The state of the optimiser
is flattened to one entry for each parameter, because the ranks of a pipeline have different parameters.
"""

import json
from pathlib import Path

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)

from digits.checkpoint import Checkpoints, Progress

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


class LayoutCheckpoints(Checkpoints):
    """`model` describes the model; a checkpoint of another one is refused."""

    def __init__(self, folder: str, model: dict):
        super().__init__(folder)
        self._model = model

    def save(self, model, optimizer, progress: Progress) -> None:
        name = f"step-{progress.step:06d}"
        state = self._state(model, optimizer)
        state["progress"] = json.dumps({"model": self._model, "step": progress.step, "losses": progress.losses})
        dcp.save(state, checkpoint_id=str(self._folder / name), no_dist=not dist.is_initialized())
        self._mark_latest(name)

    def load(self, model, optimizer, progress: Progress) -> None:
        """Every rank calls it; model, optimiser and progress are changed in place."""
        told = self._told()
        state = self._state(model, optimizer)
        dcp.load(state, checkpoint_id=self.latest(), no_dist=not dist.is_initialized())
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"],
                       options=FLAT)
        progress.step, progress.losses = told["step"], told["losses"]

    def load_weights(self, model) -> None:
        self._told()
        state = {"model": get_model_state_dict(model)}
        dcp.load(state, checkpoint_id=self.latest(), no_dist=not dist.is_initialized())
        model.load_state_dict(state["model"])

    def _told(self) -> dict:
        state = {"progress": ""}
        dcp.load(state, checkpoint_id=self.latest(), no_dist=not dist.is_initialized())
        told = json.loads(state["progress"])
        if told["model"] != self._model:
            raise SystemExit(f"{self.latest()} is of the model {told['model']}, not {self._model}")
        return told

    @staticmethod
    def _state(model, optimizer) -> dict:
        weights, moments = get_state_dict(model, optimizer, options=FLAT)
        return {"model": weights, "optimizer": moments}
