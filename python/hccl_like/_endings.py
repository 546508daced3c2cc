"""What tells the program of failures that no call and no wait would raise.

A call on a device fails after its wait has returned, so the last one of a program fails unheard. ``destroy_process_group()``
raises such a failure, as do ``torch.accelerator.synchronize()`` and the accelerator's own; at the end of the program it is a line on
standard error and the exit code. And ranks that pass other members to ``new_group`` are told, also by those that are in neither group.

A rank that ends, or destroys its groups, because of an exception tells the other ranks which one.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import traceback
import unittest

import torch
import torch.distributed as dist

_c10d = dist.distributed_c10d

# Exceptions that end a loop, a generator or a test: no reason for a program that catches one to destroy its groups.
_ORDERLY = (StopIteration, StopAsyncIteration, GeneratorExit, unittest.SkipTest)
# How long a rank that leaves because of an exception lets the others finish the calls that it has completed.
_GRACE_SECONDS = 0.5


def install() -> None:
    """When torch is imported, before a program can have taken these functions for itself."""
    _c10d.destroy_process_group = dist.destroy_process_group = _explaining(_telling(_c10d.destroy_process_group))
    _c10d._new_process_group_helper = _declaring(_c10d._new_process_group_helper)
    torch.accelerator.synchronize = _telling(torch.accelerator.synchronize)


def watch_accelerator(name: str | None) -> None:
    """When a group is made: the accelerator's module may have come after torch."""
    module = getattr(torch, name or "", None)
    synchronize = getattr(module, "synchronize", None)
    if synchronize is not None and not getattr(synchronize, "_hccl_like_tells", False):
        setattr(module, "synchronize", _telling(synchronize))


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


def _explaining(original):
    """``destroy_process_group``, which tells the other ranks why, if an exception of the program is being handled.

    Only if all groups go: a program that leaves one goes on. A failure of a call has been told by the call.
    """

    @functools.wraps(original)
    def destroy_process_group(group=None):
        global _destroyed
        extension = sys.modules.get("hccl_like._C")
        whole = dist.is_initialized() and group in (None, dist.group.WORLD)
        if extension is not None and whole:
            fault = _fault(sys.exc_info()[1])
            if fault is not None and not isinstance(fault, _ORDERLY) and not _is_failure_of_a_call(fault):
                time.sleep(_GRACE_SECONDS)
                extension._close_all_groups(_reason("it left the group because of", fault))
        original(group)
        _destroyed += whole

    return destroy_process_group


_destroyed = 0  # default groups: one that gets the same store must not find the members of groups before


def membership(group_name, members):
    """What compares the members of a new group between all ranks; None for the default group."""
    from hccl_like import _extension
    from hccl_like.torch_compat import _ours

    if not members or not dist.is_initialized():
        return None
    everybody = next(iter(_ours.backends(None).values()), None)
    if everybody is not None:
        where = everybody._store, f"hccl-like/{everybody._id}/"
    else:  # of another backend
        where = dist.PrefixStore(f"hccl-like/{_destroyed}/", _c10d._get_default_store()), ""
    return _extension.load().Membership(*where, group_name, dist.get_rank(), members)


def _declaring(original):
    """torch's function that makes a group; a rank that is not in it says so to those that may wait for it."""

    @functools.wraps(original)
    def _new_process_group_helper(group_size, group_rank, global_ranks_in_group, backend, store, group_name, *rest, **named):
        if global_ranks_in_group and dist.is_initialized() and dist.get_rank() not in global_ranks_in_group:
            from hccl_like._registration import NAME

            if NAME in _c10d.BackendConfig(backend).get_device_backend_map().values():
                membership(group_name, global_ranks_in_group).declare()
        return original(group_size, group_rank, global_ranks_in_group, backend, store, group_name, *rest, **named)

    return _new_process_group_helper


def close_all_groups() -> None:
    """At the interpreter's exit."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if hasattr(sys, "ps1") or sys.flags.interactive:  # a prompt outlives exceptions
        error = None
    sys.modules["hccl_like._C"]._close_all_groups("" if error is None else _reason("its program ended with", error))


def watch_child() -> None:
    """When a group is made, in a process that multiprocessing has started: there no exception reaches the interpreter.

    multiprocessing runs its finalizers while the exception that ends the process is handled.
    """
    from multiprocessing import parent_process, util

    global _watched
    if parent_process() is not None and _watched != os.getpid():
        _watched = os.getpid()
        util.Finalize(None, _close_after_exception, exitpriority=100)


_watched = 0  # the process that has the finalizer


def _close_after_exception() -> None:
    if (fault := _fault(sys.exc_info()[1])) is not None:
        sys.modules["hccl_like._C"]._close_all_groups(_reason("its program ended with", fault))


def _reason(what: str, error: BaseException) -> str:
    """The exception, its message and its line, as the other ranks are told."""
    said = next(iter(_text(error).splitlines()), "")
    text = f"{what} {type(error).__name__}" + (f": {said[:200]}" if said else "")
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_torch(frame.filename)]
    if own:
        text += f" ({'/'.join(own[-1].filename.split(os.sep)[-2:])}:{own[-1].lineno})"
    return text


def _fault(error: BaseException | None) -> BaseException | None:
    """The exception that went wrong: for an exit code, the one that was handled when the program exited, as
    ``torch.multiprocessing.spawn`` does. None for an exit code alone, and for an exit without an error.
    """
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        return _fault(error.__context__) if error.code else None
    return error


def _is_failure_of_a_call(error: BaseException | None) -> bool:
    """Whether the exception, or one that led to it, is a failure of a group of ours."""
    from hccl_like._failures import failure

    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if failure(_text(error)):
            return True
        seen.append(error)
        error = error.__context__ if error.__cause__ is None else error.__cause__
    return False


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # of the program's class
        return ""


def _is_torch(path: str) -> bool:
    return path.startswith((os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep))
