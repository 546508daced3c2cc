"""Ray Train: ``import hccl_like.integrations.ray`` in the program that makes the ``TorchTrainer``.

Its ``TorchConfig`` is then one that gives the workers the accelerator and a group of hccl-like,
where Ray would give them the CPU and gloo: a worker without a GPU or TPU of Ray's.
``TorchConfig(backend=...)`` with another name goes first.
"""

from __future__ import annotations

from hccl_like.integrations import _apply


def _config(module) -> None:
    from hccl_like.integrations import _ray_train

    if hasattr(module, "TorchConfig"):  # the one for which a worker of Ray's imports this package
        module.TorchConfig = _ray_train.TorchConfig


_apply.mend(
    "ray",
    "2.59 to 2.60",
    dict.fromkeys(
        (
            "ray.train.torch.config",
            "ray.train.torch",
            "ray.train.torch.torch_trainer",
            "ray.train.v2.torch.torch_trainer",
        ),
        _config,
    ),
)
