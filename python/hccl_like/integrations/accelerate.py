"""Accelerate, and with it Transformers' Trainer: ``import hccl_like.integrations.accelerate``.

``Accelerator()`` takes the accelerator and a group of hccl-like where it would take the CPU and no
group. So does ``accelerate launch`` in a process with ``HCCL_LIKE_INTEGRATIONS=accelerate``.
Accelerate's own choice goes first: where it finds a device, or was asked for the CPU, nothing
changes.
"""

from __future__ import annotations

import functools
import os

import torch

from hccl_like import _accelerator, _registration
from hccl_like.integrations import _apply


def _state(module) -> None:
    """The type of the job, its backend and the device of each process."""
    kind = module.DistributedType

    @_apply.wrap(module.PartialState, "_prepare_backend")
    def prepare_backend(original, self, cpu=False, sagemaker_dp=False, backend=None):
        chosen, found = original(self, cpu, sagemaker_dp, backend)
        if (
            found != kind.NO
            or cpu
            or _apply.accelerator() is None
            or int(os.environ.get("LOCAL_RANK", -1)) == -1
        ):
            return chosen, found
        # Accelerate has no type for a device that it does not know. It treats this one like every
        # other device with a group.
        return backend or _registration.NAME, kind.MULTI_NPU

    @_apply.wrap(module.PartialState, "set_device")
    def set_device(original, self):
        if self.distributed_type == kind.MULTI_NPU and _apply.accelerator():
            if (
                self.device is None or self.device.index is None
            ):  # ACCELERATE_TORCH_DEVICE may name one
                self.device = _apply.take_device()
            if (
                self.device.index != self.local_process_index
            ):  # Accelerate would name the latter to DDP
                os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"
        else:
            original(self)

    original_default = module.PartialState.default_device

    def default_device(self):
        found, name = original_default.fget(self), _apply.accelerator()
        return torch.device(name) if name and found.type == "cpu" else found

    module.PartialState.default_device = property(default_device)


def _dataclasses(module) -> None:
    """FSDP1's plugin looks for a device to make parameters on, and knows some by name."""

    @_apply.wrap(module.FullyShardedDataParallelPlugin, "__post_init__")
    def post_init(original, self):
        try:
            original(self)
        except RuntimeError as error:  # raised by its last step
            if _apply.accelerator() is None or "no available devices found" not in str(error):
                raise
            self.param_init_fn = lambda part: part.to_empty(
                device=torch.accelerator.current_accelerator(), recurse=False
            )


def _launch(module) -> None:
    """``accelerate launch`` counts known devices, and starts one process if there are none."""

    @_apply.wrap(module, "_validate_launch_command")
    def validate(original, args):
        configured = args.config_file is not None or os.path.isfile(module.default_config_file)
        others = args.cpu or args.tpu or args.use_deepspeed or args.use_fsdp or args.use_megatron_lm
        if _apply.accelerator() and not configured and not others:
            if args.num_processes is None:
                args.num_processes = _accelerator.device_count()
            args.multi_gpu = args.num_processes > 1 or (args.num_machines or 1) > 1
        return original(args)


def _training_arguments(module) -> None:
    """Transformers asks devices by name for bf16, and for the device of a single process."""

    @_apply.wrap(module, "is_torch_bf16_gpu_available")
    def is_available(original):
        return (
            original() or _apply.accelerator() is not None and _apply.computes_with(torch.bfloat16)
        )

    original = module.TrainingArguments._setup_devices

    def _setup_devices(self):
        found, name = original.func(self), _apply.accelerator()
        alone = (
            self.distributed_state is not None
            and self.distributed_state.distributed_type == module.DistributedType.NO
        )
        asked = self.use_cpu or module.strtobool(os.environ.get("ACCELERATE_USE_CPU", "False"))
        return (
            torch.device(name, 0) if name and alone and found.type == "cpu" and not asked else found
        )

    module.TrainingArguments._setup_devices = functools.cached_property(_setup_devices)
    module.TrainingArguments._setup_devices.__set_name__(module.TrainingArguments, "_setup_devices")


_apply.mend(
    "accelerate",
    "1.14 to 1.15",
    {
        "accelerate.state": _state,
        "accelerate.utils.dataclasses": _dataclasses,
        "accelerate.commands.launch": _launch,
        "transformers.training_args": _training_arguments,
    },
)
