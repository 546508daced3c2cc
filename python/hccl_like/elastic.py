"""Processes join a running job, and others take the place of lost ones; the ranks that run go on in their processes.

The job's default group is made anew, larger, while the old one still exists: ranks that knew each other keep their connections and what
they have mapped of each other's memory. See docs/elastic.md.

How ranks agree. A new process writes a *knock* into the job's store and waits. ``grow()`` is a call of all ranks: rank 0 looks for
knocks, asks each new process whether it lives, and tells a *plan* to the other ranks through the old group. All in the plan make the new
group and meet in a barrier there; then the ranks of the old group compare, through that group, whether it worked. Only if it did for all,
new processes included, it becomes the default group; else it is dropped and made again of those who still answer.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from hccl_like import _failures

if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFIX = "hccl-like/elastic"
_ANSWER = 0.2  # seconds that a new process has to say that it lives
_GONE = 60.0  # seconds after which a new process that does not answer is forgotten
_ATTEMPTS = 3  # to make a group, each of those who live then
_NOBODY = b"nobody"
_silent: dict[str, _Silence] = {}  # on rank 0, by name of a new process


@dataclass(frozen=True)
class Membership:
    """What became of the default group: this process's rank, the number of ranks, which of them are new, and which left, by their old numbers."""

    rank: int
    size: int
    joined: tuple[int, ...]
    lost: tuple[int, ...] = ()


def grow(*, slots: tuple[int, ...] | list[int] = (), limit: int | None = None, wait: float = 0.0,
         attempt: float = 10.0) -> Membership | None:
    """Takes in processes that called :func:`join`. A call of all ranks of the default group, between two of their other calls.

    Returns None, after one small broadcast, if there are none; else the default group has them, and all other groups are destroyed, as
    by ``dist.shrink_group``: their ranks have other numbers. If new processes do not come, the group stays as it was.

    slots: the ranks that the first new processes get, such as those of lost ones; further ones come last.
    limit: takes no more than so many. wait: seconds to wait for the first, fewer than a call of the group may take. attempt: seconds that
    making the group may take.
    Raises what a call of the group raises if one of its own ranks is lost meanwhile.
    """
    old = c10d._get_default_group()
    board = _Board(_base(c10d._get_default_store()))
    for number in range(_ATTEMPTS):
        # After an attempt that failed, new processes that live are back soon.
        plan = _agree(board.plan(old, list(slots), limit, attempt if number else wait, attempt) if old.rank() == 0 else None)
        if plan is None:
            return None
        rank = plan["members"].index(old.rank())
        group = _make(plan, rank, board.store, attempt)
        made = group is not None and (old.rank() > 0 or board.all_came(plan, attempt))
        reports: list[Any] = [None] * old.size()
        try:
            dist.all_gather_object(reports, made)
        except BaseException:
            _discard(group)
            raise
        good = all(reports)
        if old.rank() == 0:
            board.decide(plan, good)
        if good and group is not None:
            _become_default(group, plan)
            return _membership(plan, rank)
        _discard(group)
    return None


def replace(lost: Iterable[int] | BaseException | None = None, *, timeout: float = 30.0, grace: float = 5.0) -> Membership:
    """Goes on without the lost ranks, with processes that called :func:`join` in their places. A call of all other ranks of the default group.

    lost: the ranks, alike on all; or the error of the call that failed, which may name one; None: nothing is known. Ranks compare what they
    know: those that all others have named or waited for in vain, `grace` seconds, are lost.
    Ends the running calls of all groups and waits at most `timeout` seconds for new processes; if none come, the group is smaller.
    If fewer come than were lost, the ranks behind the empty places move up. Ranks that are lost meanwhile are replaced, too. Other groups are
    destroyed.
    """
    cause = lost if isinstance(lost, BaseException) else None
    _abort_groups_but(c10d._get_default_group())
    if lost is None or isinstance(lost, BaseException):
        lost = _who_is_lost(c10d._get_default_group(), cause, grace)
    lost = list(lost)
    if not lost:
        raise RuntimeError("no rank of the default group is lost: all of them called replace()") from cause
    slots: list[int] = []  # of lost ranks, by their old numbers
    deadline = time.monotonic() + timeout
    while True:
        places = [place for place in range(dist.get_world_size() + len(slots)) if place not in slots]
        slots = sorted(slots + [places[rank] for rank in lost])
        dist.shrink_group(sorted(lost), shrink_flags=c10d.SHRINK_ABORT)
        try:
            grown = grow(slots=slots, limit=len(slots), wait=max(0.0, deadline - time.monotonic()))
            joined = grown.joined if grown else ()
            return Membership(dist.get_rank(), dist.get_world_size(), joined, tuple(slots))
        except dist.DistBackendError as error:
            lost = _who_is_lost(c10d._get_default_group(), error, grace)
            if not lost:
                raise


def join(store: dist.Store | None = None, *, timeout: float = 300.0) -> Membership:
    """Makes this process a rank of a job that runs. Returns when the job's ranks have taken it in (:func:`grow`); the default group exists then.

    store: the job's, as ``dist.TCPStore(address, port, is_master=False)``; without it, the one at MASTER_ADDR and MASTER_PORT.
    Raises TimeoutError if the job did not take it in within `timeout` seconds.
    """
    if dist.is_initialized():
        raise RuntimeError("this process is in a job already: join() is for one that has no default group")
    deadline = time.monotonic() + timeout
    base = _base(store) if store is not None else _launchers_store(timeout)
    board = _Board(base)
    me = board.knock()
    try:
        for number in range(1 << 30):
            token = board.wait(f"ask/{me}/{number}", deadline - time.monotonic())
            if token is None:
                raise TimeoutError(f"the job did not take this process in within {timeout:g} seconds: do its ranks call hccl_like.grow()?")
            board.store.set(f"here/{token.decode()}/{me}", "")
            again = f"ask/{me}/{number + 1}"  # whoever asks again has given up what was before
            told = board.wait_unless(again, f"plan/{token.decode()}", 10)
            plan = json.loads(told) if told not in (None, _NOBODY) else None
            if plan is None or me not in plan["ids"]:
                continue
            rank = plan["members"].index(me)
            group = _make(plan, rank, board.store, plan["attempt"])
            if group is None:
                continue
            board.store.set(f"came/{plan['token']}/{me}", "")
            if board.wait_unless(again, f"verdict/{plan['token']}", 3 * plan["attempt"]) == b"yes":
                _become_default(group, plan)
                return _membership(plan, rank)
            _discard(group)
        raise AssertionError("unreachable")
    except BaseException:
        board.withdraw()
        raise


def _membership(plan: dict, rank: int) -> Membership:
    joined = tuple(number for number, member in enumerate(plan["members"]) if isinstance(member, str))
    return Membership(rank, len(plan["members"]), joined)


def _abort_groups_but(kept: dist.ProcessGroup) -> None:
    """Ranks that wait for this one in calls of other groups, which may have no lost rank, would wait until their time is up."""
    for group in c10d._world.pg_names:
        for backend in _backends(group) if group is not kept else []:
            if hasattr(backend, "abort"):
                backend.abort()


def _dead_by(error: BaseException | None) -> int | None:
    """The rank of the default group that `error`, of any group, says to be dead."""
    failure = _failures.failure(error) if error is not None else None
    if failure is None or failure.kind != "peer lost" or failure.culprit is None:
        return None
    for group, name in c10d._world.pg_names.items():
        if f" of group {name} lost rank " in failure.message:
            return next((rank for rank, number in c10d._world.pg_group_ranks[group].items() if number == failure.culprit), None)
    return None


def _who_is_lost(group: dist.ProcessGroup, error: BaseException | None, grace: float) -> list[int]:
    """The ranks that did not come here, once every rank has come or is known to be dead to one that came. The first that sees this decides."""
    store = dist.PrefixStore(f"hccl-like/lost/{c10d._world.pg_names[group]}/{group.size()}", c10d._get_default_store())
    store.set(f"alive/{group.rank()}", "")
    dead = _dead_by(error)
    if dead is not None:
        store.set(f"dead/{dead}", "")
    deadline = time.monotonic() + grace
    missing = set(range(group.size()))
    while True:
        missing = {rank for rank in missing if not store.check([f"alive/{rank}"])}
        if all(store.check([f"dead/{rank}"]) for rank in missing) or time.monotonic() > deadline:
            break
        time.sleep(0.002)
    lost = json.loads(store.compare_set("decided", "", json.dumps(sorted(missing))))
    if group.rank() in lost:
        raise RuntimeError(f"the other ranks have given rank {group.rank()} up: it called replace() more than {grace:g} seconds after them")
    return lost


@dataclass(frozen=True)
class _Silence:
    """Of a new process that did not answer: since when, when to ask it again, and the key of its answer, if that comes late."""

    since: float
    again: float
    answer: str


class _Board:
    """What new processes and rank 0 tell each other through the store."""

    def __init__(self, base: dist.Store) -> None:
        self.store = dist.PrefixStore(_PREFIX, base)
        self._knock = ""

    def wait(self, key: str, seconds: float) -> bytes | None:
        try:
            self.store.wait([key], timedelta(seconds=max(seconds, 0.001)))
            return self.store.get(key)
        except dist.DistStoreError:
            return None

    def wait_unless(self, other: str, key: str, seconds: float) -> bytes | None:
        """As wait(), until there is `other`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.store.check([key]):
                return self.store.get(key)
            if self.store.check([other]):
                return None
            time.sleep(0.002)
        return None

    # --- a new process ---

    def knock(self) -> str:
        """Returns this process's name."""
        me = uuid.uuid4().hex
        self._knock = f"knock/{self.store.add('knocks', 1)}"
        self.store.set(self._knock, json.dumps({"id": me, "host": socket.gethostname(), "pid": os.getpid()}))
        return me

    def withdraw(self) -> None:
        try:
            self.store.delete_key(self._knock)
        except Exception:
            pass  # the store may be what is lost

    # --- rank 0 ---

    def plan(self, old: dist.ProcessGroup, slots: list[int], limit: int | None, wait: float, attempt: float) -> dict | None:
        """The members of the next group: numbers of old ranks and names of new processes."""
        deadline = time.monotonic() + wait
        while True:
            token = uuid.uuid4().hex
            living = self._living(token)[:limit]
            if living or time.monotonic() >= deadline:
                break
            time.sleep(0.005)
        if not living:
            return None
        members: list[Any] = list(range(old.size()))
        for slot, joiner in zip(sorted(slots), living):
            members.insert(slot, joiner)
        members += living[len(slots):]
        backend, _ = c10d._world.pg_map[old]
        plan = {"token": token, "ids": living, "members": members, "backend": backend, "attempt": attempt,
                "timeout": _timeout_of(old)}
        self.store.set(f"plan/{token}", json.dumps(plan))
        return plan

    def _living(self, token: str) -> list[str]:
        """Names of the new processes that answer, in the order of their knocks."""
        waiting = {}
        for number in range(1, self.store.add("knocks", 0) + 1):
            key = f"knock/{number}"
            if self.store.check([key]):
                waiting[json.loads(self.store.get(key))["id"]] = key
        answers = {}
        now = time.monotonic()
        for joiner in waiting:
            silence = _silent.get(joiner)
            if silence and now < silence.again and not self.store.check([silence.answer]):
                continue
            number = self.store.add(f"asks/{joiner}", 1) - 1
            self.store.set(f"ask/{joiner}/{number}", token)
            answers[joiner] = f"here/{token}/{joiner}"
        deadline = time.monotonic() + _ANSWER
        while answers and not self.store.check(list(answers.values())) and time.monotonic() < deadline:
            time.sleep(0.001)
        living = [joiner for joiner, answer in answers.items() if self.store.check([answer])]
        if answers and not living:
            self.store.set(f"plan/{token}", _NOBODY)
        for joiner, answer in answers.items():
            since = _silent.pop(joiner).since if joiner in _silent else now
            if joiner in living:
                continue
            if now - since > _GONE:
                self.store.delete_key(waiting[joiner])
            else:  # it may be busy with an attempt that fails
                _silent[joiner] = _Silence(since, now + max(0.5, now - since), answer)
        return living

    def all_came(self, plan: dict, seconds: float) -> bool:
        """Whether the new processes have made the group, too."""
        keys = [f"came/{plan['token']}/{joiner}" for joiner in plan["ids"]]
        deadline = time.monotonic() + seconds
        while not self.store.check(keys):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def decide(self, plan: dict, good: bool) -> None:
        self.store.set(f"verdict/{plan['token']}", "yes" if good else "no")
        if good:
            for number in range(1, self.store.add("knocks", 0) + 1):
                key = f"knock/{number}"
                if self.store.check([key]) and json.loads(self.store.get(key))["id"] in plan["ids"]:
                    self.store.delete_key(key)


def _agree(plan: dict | None) -> dict | None:
    """Rank 0's plan, on all ranks of the old group."""
    told = [plan]
    dist.broadcast_object_list(told, 0)
    return told[0]


def _make(plan: dict, rank: int, store: dist.Store, seconds: float) -> dist.ProcessGroup | None:
    """The group of the plan, in which all have met; None if not all came."""
    group = None
    try:
        group, _ = c10d._new_process_group_helper(
            len(plan["members"]), rank, [], plan["backend"], dist.PrefixStore(f"world/{plan['token']}", store),
            f"world {plan['token'][:8]}", timeout=timedelta(seconds=seconds), group_desc="default_pg")
        c10d._world.pg_group_ranks[group] = {number: number for number in range(len(plan["members"]))}
        group.barrier().wait()
        return group
    except (RuntimeError, dist.DistBackendError):
        _discard(group)
        return None


def _discard(group: dist.ProcessGroup | None) -> None:
    if group is None:
        return
    for backend in _backends(group):
        if hasattr(backend, "abort"):
            backend.abort()
    dist.destroy_process_group(group)


def _become_default(group: dist.ProcessGroup, plan: dict) -> None:
    """As _finalize_shrunk_group() of torch does it: this group is the default one, and all others are destroyed."""
    before = c10d._world.default_pg
    if before is not None and before.bound_device_id is not None:
        group.bound_device_id = before.bound_device_id
    for backend in _backends(group):
        backend._set_default_timeout(timedelta(seconds=plan["timeout"]))
    c10d._update_default_pg(group)
    for other in sorted(c10d._world.pg_names, key=lambda one: c10d._world.pg_names[one], reverse=True):
        if other is not group:
            dist.destroy_process_group(other)
    c10d._world.group_count = 0  # names of later groups are alike in old and new processes


def _backends(group: dist.ProcessGroup) -> list:
    found = {}
    for device in group._device_types:
        backend = group._get_backend(device)
        found[id(backend)] = backend
    return list(found.values())


def _timeout_of(group: dist.ProcessGroup) -> float:
    return _backends(group)[0].options._timeout.total_seconds()


def _base(store: dist.Store) -> dist.Store:
    """The store itself: prefixes differ between the launcher's processes and those that join."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store


def _launchers_store(timeout: float) -> dist.Store:
    if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
        raise ValueError("join() needs the store of the job: pass dist.TCPStore(address, port, is_master=False), or set MASTER_ADDR and MASTER_PORT")
    return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=timeout))
