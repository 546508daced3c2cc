"""A process closes all that its groups have opened, and opens it again later, perhaps on another host. See docs/elastic.md.

How ranks agree. Each rank stops its calls and writes a *report* into the store of each group: what keeps it from suspending, and how many calls
and messages it has made. Rank 0 of a group reads the reports of all and writes the *verdict*: yes, or why not. Nothing is closed before the
verdicts of all groups of a process are yes, so all ranks go on as before if one of them cannot be suspended or does not come.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from hccl_like import _extension

if TYPE_CHECKING:
    from hccl_like._C import ProcessGroupHcclLike

_GRACE = 1.0  # seconds after the deadline that rank 0 waits for refusals, and the others as long again for its verdict
_YES = "yes"


def suspend(*, timeout: float = 60.0) -> None:
    """Closes every descriptor, mapping and thread of hccl-like in this process. A call of all ranks of all groups, between two other calls.

    The groups stay: ranks, sizes, options. Their calls raise until :func:`resume`. In between the process may fork, be moved to another host,
    be written to a snapshot, or reset its device. The store is the program's and stays open.

    Waits at most `timeout` seconds for calls in flight and for the other ranks. Raises on all ranks, and closes nothing, if a rank does not
    call it in time or if something is in use that cannot be closed: symmetric memory, captured graphs, messages that nobody has received.
    Tensors of :func:`hccl_like.empty` keep their content; no thread may write to them during this call and during :func:`resume`.
    """
    extension = _extension.load()
    deadline = time.monotonic() + timeout
    groups = extension._open_groups()
    refusal = ""
    try:
        extension._hold_groups(groups, timedelta(seconds=max(timeout, 0.0)))
    except (ValueError, dist.DistError) as error:  # the other ranks are told
        refusal = str(error)
    try:
        _agree(groups, refusal, deadline, timeout)
    except BaseException:
        extension._release_groups(groups)
        raise
    extension._leave_groups(groups)


def resume(*, store: dist.Store | None = None, timeout: float = 300.0) -> None:
    """Opens the groups again that :func:`suspend` has closed. A call of all their ranks; returns when all have met.

    store: a new one, on all ranks, where the old one cannot be reached any more: the groups use it from now on.
    Raises an error that names the missing ranks if they do not come within `timeout` seconds; then the groups are suspended as before, and
    the call may be made again.
    """
    extension = _extension.load()
    deadline = time.monotonic() + timeout
    groups = extension._suspended_groups()
    try:
        for group in groups:
            group._rejoin(store, timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
    except BaseException:
        extension._leave_groups(groups)
        raise
    extension._groups_resumed(groups)
    if store is not None:
        _replace_stores(groups, store)


def _agree(groups: list[ProcessGroupHcclLike], refusal: str, deadline: float, timeout: float) -> None:
    meetings = [_Meeting(group, deadline, timeout) for group in groups]
    for meeting in meetings:  # all first, so that no group waits for the verdict of another one
        meeting.report(refusal)
    if refusal and not meetings:
        raise dist.DistBackendError(refusal)
    for meeting in meetings:
        meeting.verdict()


class _Meeting:
    """Of the ranks of one group, through its store."""

    def __init__(self, group: ProcessGroupHcclLike, deadline: float, timeout: float) -> None:
        self._group, self._deadline, self._timeout = group, deadline, timeout
        self._rank, self._size = group.rank(), group.size()
        self._name = f"group '{group.options.group_name or 0}'"
        base = dist.PrefixStore(f"hccl-like/suspend/{group._id}", group._store)
        attempt = 0
        while base.add(f"{attempt}/decided", 0) > 0:  # the others have given up an attempt before this rank came
            attempt += 1
        self._store = dist.PrefixStore(str(attempt), base)

    def report(self, refusal: str) -> None:
        self._store.set(f"report/{self._rank}", json.dumps({"refusal": refusal, **self._group._calls_made()}))

    def verdict(self) -> None:
        """Raises unless all ranks suspend."""
        if self._rank == 0:
            said = self._decide(self._judge())
        elif not self._wait(["verdict"], self._deadline + 2 * _GRACE):
            said = self._decide(f"rank 0 of {self._name} did not call suspend() within {self._timeout:g} s")
        else:
            said = self._store.get("verdict").decode()
        if said != _YES:
            raise dist.DistBackendError(f"hccl-like suspend: {said}; nothing was closed, and the groups can be used as before")

    def _decide(self, verdict: str) -> str:
        """The first verdict counts, so that all ranks do the same."""
        if self._store.add("decided", 1) == 1:
            self._store.set("verdict", verdict)
        return self._store.get("verdict").decode()

    def _judge(self) -> str:
        keys = [f"report/{rank}" for rank in range(self._size)]
        if not self._wait(keys, self._deadline + _GRACE):
            missing = [rank for rank, key in enumerate(keys) if not self._store.check([key])]
            return f"{_ranks(missing)} of {self._name} did not call suspend() within {self._timeout:g} s"
        reports = [json.loads(self._store.get(key)) for key in keys]
        refusals = [f"rank {rank} cannot suspend: {report['refusal']}" for rank, report in enumerate(reports) if report["refusal"]]
        return refusals[0] if refusals else _difference(reports, self._name) or _YES

    def _wait(self, keys: list[str], until: float) -> bool:
        pause = 0.0005
        while not self._store.check(keys):
            if time.monotonic() > until:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return True


def _difference(reports: list[dict], name: str) -> str:
    """What ranks have made differently, such as a message that nobody has received; empty if nothing."""
    for rank, report in enumerate(reports):
        for kind, (calls, first) in enumerate(zip(report["calls"], reports[0]["calls"])):
            if calls != first:
                tensors = ("host", "device")[kind]
                return (f"rank {rank} of {name} has made {calls} collective calls on {tensors} tensors, rank 0 {first}; "
                        "make the missing calls before suspend()")
    received = [dict(report["received"]) for report in reports]
    for rank, report in enumerate(reports):
        for peer, count in report["sent"]:
            if (taken := received[peer].get(rank, 0)) != count:
                return (f"rank {rank} of {name} has sent {count} messages to rank {peer}, which has received {taken} of them; "
                        "receive all before suspend()")
    return ""


def _ranks(numbers: list[int]) -> str:
    return f"rank {numbers[0]}" if len(numbers) == 1 else "ranks " + ", ".join(map(str, numbers))


def _replace_stores(groups: list[ProcessGroupHcclLike], store: dist.Store) -> None:
    """torch makes later groups through the store of the default group."""
    for group, (backend, _) in list(c10d._world.pg_map.items()):
        if any(group._get_backend(device) in groups for device in group._device_types):
            c10d._world.pg_map[group] = (backend, dist.PrefixStore(f"{group.group_name}/", store))
