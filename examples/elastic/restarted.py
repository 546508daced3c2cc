#!/usr/bin/env python3
"""A sharded training job whose torchrun agents come and go: 2, then 4, then 3, with the loss curve of a single process.

    torchrun --nnodes=1:4 --nproc-per-node=1 --max-restarts=9 --rdzv-backend=c10d --rdzv-endpoint=HOST:29400 \\
        examples/elastic/restarted.py --folder SHARED_FOLDER

Run this line on each host at any time. torchrun starts all ranks again when the number of agents changes. Each start loads the last
checkpoint, whose shards DCP divides among the ranks there are. Without --folder each start begins at the first step.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from train import batch, make_model


class Checkpoints:
    """Checkpoints of the model and its optimizer in a folder. The file `latest` names the one that is whole."""

    def __init__(self, folder, model, optimizer):
        self.folder, self.model, self.optimizer = folder, model, optimizer

    def _state(self):
        weights, optimizer = get_state_dict(self.model, self.optimizer)
        return {"weights": weights, "optimizer": optimizer}

    def load(self):
        """Returns the losses of the steps made so far."""
        if not (self.folder / "latest").exists():
            return []
        losses = json.loads((self.folder / "latest").read_text())
        state = self._state()
        dcp.load(state, checkpoint_id=self.folder / str(len(losses)))
        set_state_dict(self.model, self.optimizer, model_state_dict=state["weights"], optim_state_dict=state["optimizer"])
        return losses

    def save(self, losses):
        dcp.save(self._state(), checkpoint_id=self.folder / str(len(losses)))
        if dist.get_rank() == 0:  # dcp.save() returns on rank 0 once all ranks have written
            (self.folder / "writing").write_text(json.dumps(losses))
            os.replace(self.folder / "writing", self.folder / "latest")
            for old in self.folder.iterdir():
                if old.is_dir() and int(old.name) < len(losses):
                    shutil.rmtree(old)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the checkpoints are; all hosts see it")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--every", type=int, default=5, help="steps between two checkpoints (5)")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between steps, so that there is something to see (0.02)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("hccl-like")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = fully_shard(make_model(), mesh=init_device_mesh("cpu", (ranks,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    checkpoints = Checkpoints(options.folder, model, optimizer) if options.folder else None
    losses = checkpoints.load() if checkpoints else []
    if rank == 0:
        print(f"{ranks} ranks go on at step {len(losses)}", flush=True)
    while len(losses) < options.steps:
        inputs, targets = (part.chunk(ranks)[rank] for part in batch(len(losses)))
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean.item())
        if checkpoints and len(losses) % options.every == 0:
            checkpoints.save(losses)
        time.sleep(options.pause)
    if rank == 0:
        print(f"{ranks} ranks have made {len(losses)} steps, loss {losses[0]:.4f} at first, {losses[-1]:.4f} at last", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
