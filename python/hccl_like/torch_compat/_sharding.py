"""fully_shard, for tensors on the host."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist

from hccl_like.torch_compat import _ours


def buffers(module) -> None:
    """torch takes fully_shard's buffers from the group only if asked to, module by module. For tensors on the host this one has
    memory that peers map, which is used again instead of being faulted in anew."""
    group_class = module.FSDPParamGroup
    original = group_class.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        group = getattr(self.mesh_info, "shard_process_group", None)  # none: replicate()
        if self.device.type == "cpu" and group is not None and "cpu" in _ours.backends(group):
            self.set_allocate_memory_from_process_group(True)

    group_class.__init__ = __init__


def gathers(module) -> None:
    """torch gathers the parameters of a module into one buffer and copies them out of it. This backend gathers each of them to where
    it belongs, in one call for all."""
    gather, copy_out, torchs_call = module.foreach_all_gather, module.foreach_all_gather_copy_out, getattr(dist, _ours.ALL_GATHER)

    default_output = getattr(module, "_default_all_gather_output_fn", None)

    class Gathered(module.AllGatherResult):
        """Nothing is to be copied out of it."""

    @functools.wraps(gather)
    @torch.no_grad()
    def foreach_all_gather(fsdp_params, group, async_op, copy_in_stream, stream, device, comm):
        # A program may have put something else in the place of torch's call, to count or to check what is gathered.
        plain = _serves(group, device) and _is_torchs(comm) and getattr(dist, _ours.ALL_GATHER) is torchs_call
        inputs = _plain_inputs(fsdp_params) if plain else None
        if inputs is None:
            return gather(fsdp_params, group, async_op, copy_in_stream, stream, device, comm)
        for param, shard in zip(fsdp_params, inputs):
            param.init_all_gather_outputs([shard.numel()], [shard.dtype], group.size(), device)
            param.alloc_all_gather_outputs()
        outputs = [param.all_gather_outputs[0] for param in fsdp_params]
        options = dist.distributed_c10d.AllgatherOptions()
        options.asyncOp = async_op
        work = group.allgather_into_tensor_coalesced(outputs, inputs, options)
        if work is not None and not async_op:
            work.wait()
        return Gathered(
            all_gather_output=inputs[0], all_gather_event=None, all_gather_work=work if async_op else None,
            param_all_gather_input_dtypes=[], param_all_gather_input_numels=[], all_gather_input_split_sizes=[],
        )  # fmt: skip

    @functools.wraps(copy_out)
    def foreach_all_gather_copy_out(result, fsdp_params, group, **named):
        if not isinstance(result, Gathered):
            copy_out(result, fsdp_params, group, **named)
        elif named.get("all_gather_output_fn", default_output) is not default_output:  # since torch 2.15
            raise RuntimeError(
                "fully_shard was given an all_gather_output_fn of the program's: set HCCL_LIKE_TORCH_COMPAT=fsdp-gathers, which "
                "leaves gathering to torch"
            )
        elif result.all_gather_work is not None:
            result.all_gather_work.wait()

    module.foreach_all_gather, module.foreach_all_gather_copy_out = foreach_all_gather, foreach_all_gather_copy_out


def _serves(group, device) -> bool:
    """Whether calls for this device go to this backend at once: not into a graph, nor through what torch's debug mode has around it."""
    if device.type != "cpu" or torch.compiler.is_compiling():
        return False
    ours = _ours.backends(group).get("cpu")
    return ours is not None and group._get_backend(device) is ours


def _is_torchs(comm) -> bool:
    """Not a program's own way to gather."""
    return type(comm).__module__ == "torch.distributed.fsdp._fully_shard._fsdp_collectives"


def _plain_inputs(fsdp_params):
    """What this rank gives of each parameter, all of one type; None where there is more to do than to gather along the first dimension.
    Alike on all ranks."""
    for param in fsdp_params:
        if param.fsdp_placement.dim != 0 or hasattr(param._sharded_local_tensor, "fsdp_pre_all_gather"):
            return None
    inputs = [shard for param in fsdp_params for shard in param.all_gather_inputs]
    return inputs if len({shard.dtype for shard in inputs}) == 1 else None
