"""Every patch there is. The order is that of the documentation."""

from __future__ import annotations

from hccl_like.torch_compat._apply import Patch

_C10D = "torch.distributed.distributed_c10d"
_DDP = "torch.nn.parallel.distributed"
_FSDP2 = "torch.distributed.fsdp._fully_shard._fsdp_param_group"

# The lines are those of torch 2.13.0. What ends with 2.13 is right in 2.14, unless it says something else.
PATCHES = (
    Patch(
        "default-backend", _C10D, "_groups:default_backend",
        "cpu:gloo,DEVICE:hccl-like has no default backend and init_process_group() without a name has GLOO, which is not "
        "there (distributed_c10d.py:2073-2093)",
        last=(2, 13),
    ),
    Patch(
        "unnamed-cpu", _C10D, "_groups:unnamed_cpu",
        "init_process_group() without a name and without device_id= serves the accelerator alone (distributed_c10d.py:422)",
    ),
    Patch(
        "beside-bound-device", _C10D, "_groups:beside_bound_device",
        "after init_process_group(device_id=...) new_group(backend=\"gloo\") fails, since gloo has no such device "
        "(distributed_c10d.py:2328)",
    ),
    Patch(
        "split-by-name", _C10D, "_groups:split_by_name",
        "split_group(backend=\"hccl-like\") takes the name for the accelerator's half of the group alone, which cannot be "
        "split off (distributed_c10d.py:523)",
        first=(2, 13),  # split_group takes no name before
        last=(2, 13),
    ),
    Patch(
        "shrunk-group", _C10D, "_groups:shrunk_group",
        "the group that shrink_group returns is typed GLOO and serves one device (distributed_c10d.py:6686-6692)",
    ),
    Patch(
        "subgroup-size", _C10D, "_groups:subgroup_size",
        "new_subgroups() without a size wants CUDA (distributed_c10d.py:6178)",
        last=(2, 13),
    ),
    Patch(
        "sequence-numbers", _C10D, "_groups:sequence_numbers",
        "ProcessGroup tells no sequence number of a backend that is not torch's (ProcessGroup.hpp, "
        "backendSupportsSequenceNumbers)",
        last=(2, 13),
    ),
    Patch(
        "monitored-barrier", _C10D, "_calls:monitored_barrier",
        "dist.monitored_barrier refuses every backend not called gloo (distributed_c10d.py:5418)",
        last=(2, 13),
    ),
    Patch(
        "group-timeout", _C10D, "_calls:group_timeout",
        "_set_pg_timeout, which dist.breakpoint uses, knows nccl and gloo only (distributed_c10d.py:1642-1661)",
        last=(2, 13),
    ),
    Patch(
        "bf16-hook", _DDP, "_data_parallel:bf16_hook",
        "DDP refuses bf16_compress_hook without NCCL or XCCL (nn/parallel/distributed.py:2485)",
        last=(2, 13),
    ),
    Patch(
        "ddp-logging", _DDP, "_data_parallel:logged_name",
        "DDP's logging data call every plugin custom (ProcessGroup::getBackendName)",
    ),
    Patch(
        "ddp-buckets", _DDP, "_data_parallel:buckets",
        "DDP's buckets are memory that no peer can map, unless DDP_DISABLE_COMM_MEM=0 is set (Reducer::initialize_buckets)",
    ),
    Patch(
        "fsdp-buffers", _FSDP2, "_sharding:buffers",
        "fully_shard's buffers are memory that no peer can map, unless set_allocate_memory_from_process_group_for_comm() is "
        "called for each module (_fsdp_param_group.py:201-203)",
    ),
    Patch(
        "fsdp-gathers", _FSDP2, "_sharding:gathers",
        "fully_shard gathers parameters on the host into one buffer and copies them out of it (_fsdp_collectives.py:320, :420)",
    ),
    Patch(
        "all-gather-gradient", "torch.distributed.nn.functional", "_calls:all_gather_gradient",
        "_all_gather_base has no gradient without NCCL or XCCL, all_gather's takes size times the memory "
        "(distributed/nn/functional.py:413,437)",
    ),
    Patch(
        "grad-scaler", "torch.distributed.fsdp.sharded_grad_scaler", "_devices:grad_scaler",
        "ShardedGradScaler() without a device means cuda and disables itself where there is none "
        "(fsdp/sharded_grad_scaler.py:97)",
    ),
    Patch(
        "rng-sync", "torch.distributed.collective_utils", "_devices:rng_sync",
        "generators of cpu and cuda only are compared between ranks (collective_utils.py:320)",
    ),
    Patch(
        "shared-pinning", "torch.cuda._pin_memory_utils", "_devices:shared_pinning",
        "a state dict to be both pinned and shared calls CUDA's runtime (cuda/_pin_memory_utils.py:5)",
    ),
    Patch(
        "checkpoint-copies", "torch.distributed.checkpoint.filesystem", "_devices:checkpoint_copies",
        "a checkpoint is copied to the host on a stream and into pinned memory, which not every device has, nor a module that "
        "can be asked (distributed/checkpoint/filesystem.py:401, :405)",
    ),
    Patch(
        "device-handle", "torch.distributed.device_mesh", "_devices:device_handle",
        "init_device_mesh asks the device's module for is_initialized(), which not every one has "
        "(distributed/device_mesh.py:460)",
    ),
    Patch(
        "fake-device", "torch._subclasses.fake_tensor", "_devices:fake_device",
        "DTensor asks the device's module for is_initialized(), which not every one has (_subclasses/fake_tensor.py:848)",
    ),
    Patch(
        "barrier-device", _C10D, "_devices:barrier",
        "dist.barrier() fails on a device that has not told torch that it is available (distributed_c10d.py:5327)",
    ),
    Patch(
        "dist2", "torch.distributed._dist2", "_second_api:register",
        "torch.distributed._dist2 has a registry of its own, with gloo and nccl (distributed/_dist2.py:123)",
        last=(2, 13),  # there is no such module since
    ),
)  # fmt: skip
