"""What tells the program of failures that no call and no wait would raise.

A call on a device fails after its wait has returned, so the last one of a program fails unheard. ``destroy_process_group()``
raises such a failure, as do ``torch.accelerator.synchronize()`` and the accelerator's own; at the end of the program it is a line on
standard error and the exit code. And ranks that pass other members to ``new_group`` are told, also by those that are in neither group.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback

import torch
import torch.distributed as dist

_c10d = dist.distributed_c10d


def install() -> None:
    """When torch is imported, before a program can have taken these functions for itself."""
    _c10d.destroy_process_group = dist.destroy_process_group = _telling(_c10d.destroy_process_group)
    _c10d._new_process_group_helper = _declaring(_c10d._new_process_group_helper)
    torch.accelerator.synchronize = _telling(torch.accelerator.synchronize)


def watch_accelerator(name: str | None) -> None:
    """When a group is made: the accelerator's module may have come after torch."""
    synchronize = getattr(getattr(torch, name or "", None), "synchronize", None)
    if synchronize is not None and not getattr(synchronize, "_hccl_like_tells", False):
        getattr(torch, name).synchronize = _telling(synchronize)


def _telling(original):
    """The function, which afterwards raises the failure of a call if nobody was told of it.

    Not while another exception is handled, as in a ``finally``, whose place it would take: then the program's end tells it.
    """
    if getattr(original, "_hccl_like_tells", False):
        return original

    @functools.wraps(original)
    def telling(*arguments, **named):
        result = original(*arguments, **named)
        extension = sys.modules.get("hccl_like._C")
        if extension is not None and sys.exc_info()[1] is None:
            extension._tell_untold_failure()
        return result

    telling._hccl_like_tells = True
    return telling


def parent():
    """Our backend of the default group, whose ranks make all others; None without one."""
    from hccl_like.torch_compat import _ours

    return next(iter(_ours.backends(None).values()), None) if dist.is_initialized() else None


def _declaring(original):
    """torch's function that makes a group; a rank that is not in it says so to those that may wait for it."""

    @functools.wraps(original)
    def _new_process_group_helper(group_size, group_rank, global_ranks_in_group, backend, store, group_name, *rest, **named):
        if global_ranks_in_group and (all_ranks := parent()) is not None and _c10d.get_rank() not in global_ranks_in_group:
            from hccl_like._registration import NAME

            if NAME in _c10d.BackendConfig(backend).get_device_backend_map().values():
                all_ranks._declare_members(group_name, global_ranks_in_group)
        return original(group_size, group_rank, global_ranks_in_group, backend, store, group_name, *rest, **named)

    return _new_process_group_helper


def close_all_groups() -> None:
    """At the interpreter's exit."""
    sys.modules["hccl_like._C"]._close_all_groups(_reason())


def _reason() -> str:
    """What has ended the program, if that was an exception that nobody caught."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None or hasattr(sys, "ps1") or sys.flags.interactive:  # a prompt outlives exceptions
        return ""
    said = next(iter(str(error).splitlines()), "")
    text = f"its program ended with {type(error).__name__}" + (f": {said[:200]}" if said else "")
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_torch(frame.filename)]
    if own:
        text += f" ({'/'.join(own[-1].filename.split(os.sep)[-2:])}:{own[-1].lineno})"
    return text


def _is_torch(path: str) -> bool:
    return path.startswith((os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep))
