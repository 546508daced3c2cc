#!/usr/bin/env python3
"""The same fit under Ray Train: python ray_fit.py --workers 2. Needs pip install "ray[train]"."""

import argparse
import os

import hccl_like.integrations.ray  # first: workers take the accelerator, if there is one
import ray
import ray.train.torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def loop() -> None:
    """Runs on every worker; Ray has made the process group."""
    import torch.distributed as dist

    from fit import fit

    loss = fit(ray.train.torch.get_device())
    if loss > 1e-3:
        raise RuntimeError(f"the fit failed: loss {loss}")
    if dist.get_rank() == 0:
        print(f"fitted on {dist.get_world_size()} ranks over {dist.get_backend()}, largest loss {loss:.1e}", flush=True)
    ray.train.report({"loss": loss})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--storage", default=None, help="where Ray keeps its results (~/ray_results)")
    args = parser.parse_args()

    here = os.path.dirname(os.path.abspath(__file__))
    ray.init(include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": f"{here}:{os.environ.get('PYTHONPATH', '')}"}})
    trainer = TorchTrainer(
        loop,
        torch_config=TorchConfig(backend="hccl-like"),
        scaling_config=ScalingConfig(num_workers=args.workers),
        run_config=RunConfig(storage_path=args.storage),
    )
    trainer.fit()  # raises what a worker raised


if __name__ == "__main__":
    main()
