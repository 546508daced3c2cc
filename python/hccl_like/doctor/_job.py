"""The ranks of a job, under a launcher: each examines itself, rank 0 compares and names the odd one."""

from __future__ import annotations

import json
import os
import platform
import resource
import socket
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hccl_like.doctor import _links, _meeting
from hccl_like.doctor._findings import Findings
from hccl_like.doctor._host import read

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch.distributed as dist

_LATE = 30.0  # seconds that a rank may come later than rank 0
_SKEW = 0.5  # seconds between two clocks that are worth a word
_WAITED = "it connects to this rank, and has not come"  # in an error of transport/mesh/connect.cc
_MUST = "must be alike"
_SHOULD = "should be alike"


def launched() -> bool:
    """Whether a launcher started this process as one of several ranks."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and all(name in os.environ for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"))


def examine(device: str, findings: Findings) -> None:
    """Of all ranks. What is found is rank 0's; the other ranks get its problems, so that all exit alike."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    try:
        store = _meeting.store(_LATE, 4 * _LATE)
    except _meeting.NoStore as problem:
        findings.problems.append(f"rank {rank} ({socket.gethostname()}): {problem}")
        if rank > 0:  # rank 0, which speaks for all, does not hear of it
            print(f"problem: {findings.problems[-1]}", flush=True)
        return
    store.set(f"facts/{rank}", json.dumps({**facts(), "problems": findings.problems}))
    if rank > 0:
        _tell_clock(store, rank)
        store.set(f"group/{rank}", _try_group(store, rank, ranks, device))
        store.wait(["verdict"], timedelta(seconds=4 * _LATE))
        findings.problems[:] = json.loads(store.get("verdict"))
        store.set(f"through/{rank}", "")
        return
    told = {one: json.loads(text) for one, text in _collect(store, "facts", range(ranks)).items()}
    missing = [one for one in range(ranks) if one not in told]
    judge(told, findings)
    skews = {one: _ask_clock(store, one) for one in told if one > 0}
    if missing:
        findings.problems.append(f"{_named(missing, {})} never came to the store within {_LATE:.0f} s; {len(told)} of {ranks} ranks did")
        store.set("go", "no")
    else:
        store.set("go", "yes")
        outcomes = {0: _try_group(store, 0, ranks, device), **_collect(store, "group", range(1, ranks))}
        judge_group(outcomes, told, ranks, findings)
        judge_links({(one, int(other)): speed for one in outcomes if store.check([f"links/{one}"])
                     for other, speed in json.loads(store.get(f"links/{one}")).items()}, told, findings)
    findings.problems += [f"{_named([one], told)}: {problem}" for one in sorted(told) if one > 0 for problem in told[one]["problems"]]
    judge_clocks(skews, told, findings)
    findings.add(f"{ranks} ranks", [
        (f"rank {one}", f"{told[one]['host']}, process {told[one]['pid']}", outcome_of(skews.get(one))) for one in sorted(told)
    ], ("", "where", "clock"))
    store.set("verdict", json.dumps(findings.problems))
    _collect(store, "through", [one for one in told if one > 0])  # the store may end with this process


# ------------------------------------------------------------------------------------------------------------ one rank


def facts() -> dict[str, Any]:
    """What is compared, by name: kind and value; and where this rank is."""
    import torch

    import hccl_like
    from hccl_like import _extension, _plugins

    extension = _extension.load()
    settings = {name: value for name, value, default, _ in extension.settings() if value != default and "SECRET" not in name}
    machine = extension.look_at_machine()
    compared = {
        "hccl-like": (_MUST, hccl_like.__version__),
        "PyTorch": (_MUST, torch.__version__),
        "settings": (_MUST, ", ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "none"),
        "Python": (_SHOULD, platform.python_version()),
        "device plugins": (_SHOULD, ", ".join(sorted(_plugins.describe())) or "none"),
        "Linux": (_SHOULD, platform.release()),
        "processor": (_SHOULD, f"{platform.machine()}, {extension.reduction_target()}"),
        "cores": (_SHOULD, f"{cores():g}"),
        "open files": (_SHOULD, str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])),
        "locked memory": (_SHOULD, str(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])),
        "memory limit": (_SHOULD, read("/sys/fs/cgroup/memory.max") or "none"),
        "largest packet (MTU)": (_SHOULD, ", ".join(sorted({_mtu(nic["name"]) for nic in machine["nics"]})) or "none"),
    }
    return {"host": socket.gethostname(), "pid": os.getpid(), "boot": read("/proc/sys/kernel/random/boot_id"),
            "net": os.readlink("/proc/self/ns/net"), "cores": cores(), "compared": compared}


def cores() -> float:
    """Processors that this process may use, by its affinity and its control group."""
    allowed = float(len(os.sched_getaffinity(0)))
    quota = read("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        allowed = min(allowed, int(quota[0]) / int(quota[1]))
    return allowed


def _mtu(interface: str) -> str:
    return read(f"/sys/class/net/{interface}/mtu") or "unknown"


def _try_group(store: dist.Store, rank: int, ranks: int, device: str) -> str:
    """An all_reduce on CPU tensors and on the device, all connections tried first: "" or what went wrong."""
    import torch
    import torch.distributed as dist

    store.wait(["go"], timedelta(seconds=2 * _LATE))
    if store.get("go") != b"yes":
        return ""
    os.environ.setdefault("HCCL_LIKE_CONNECT", "eager")
    os.environ.setdefault("HCCL_LIKE_CONNECT_TIMEOUT_MS", "10000")
    os.environ.setdefault("HCCL_LIKE_FLIGHT_DUMP", "0")
    try:
        dist.init_process_group("hccl-like", store=dist.PrefixStore("try", store), rank=rank, world_size=ranks,
                                timeout=timedelta(seconds=_LATE))
        for kind in dict.fromkeys(("cpu", device)):
            place = torch.device("cpu")
            if kind != "cpu":
                from hccl_like import local_device

                place = local_device(kind)
                torch.accelerator.set_device_index(place.index)
            tensor = torch.full((100_003,), float(rank), device=place)
            dist.all_reduce(tensor)
            if not bool(tensor.cpu().eq(ranks * (ranks - 1) / 2).all()):
                return f"an all_reduce on {place} has a wrong result"
        layout = dist.group.WORLD._get_backend(torch.device("cpu"))._info()["layout"]
        store.set(f"links/{rank}", json.dumps(_links.measure(layout)))
        dist.destroy_process_group()
        return ""
    except Exception as error:
        return str(error).splitlines()[0]


def _tell_clock(store: dist.Store, rank: int) -> None:
    store.wait([f"clock/{rank}/ask"], timedelta(seconds=4 * _LATE))
    store.set(f"clock/{rank}/answer", repr(time.time()))


# ------------------------------------------------------------------------------------------------------------ rank 0


def _collect(store: dist.Store, what: str, ranks: Iterable[int]) -> dict[int, str]:
    """By rank, what came in time."""
    deadline = time.monotonic() + (3 * _LATE if what == "group" else _LATE)
    told: dict[int, str] = {}
    while (missing := set(ranks) - told.keys()) and time.monotonic() < deadline:
        for rank in missing:
            if store.check([f"{what}/{rank}"]):
                told[rank] = store.get(f"{what}/{rank}").decode()
        time.sleep(0.01)
    return told


def _ask_clock(store: dist.Store, rank: int) -> float:
    """Seconds that the rank's clock is ahead of this one."""
    before = time.time()
    store.set(f"clock/{rank}/ask", "")
    store.wait([f"clock/{rank}/answer"], timedelta(seconds=_LATE))
    return float(store.get(f"clock/{rank}/answer")) - (before + time.time()) / 2


def outcome_of(skew: float | None) -> str:
    return "" if skew is None else f"{skew:+.3f} s"


def judge(told: dict[int, dict], findings: Findings) -> None:
    """Values that only some ranks have, and hosts with more ranks than cores."""
    for name in next(iter(told.values()))["compared"]:
        values = {rank: one["compared"][name][1] for rank, one in told.items()}
        usual, _ = Counter(values.values()).most_common(1)[0]
        odd = [rank for rank, value in values.items() if value != usual]
        if not odd:
            continue
        sentence = (f"{_named(odd, told)} differ{'s' if len(odd) == 1 else ''} in {name}: {', '.join(sorted({values[rank] for rank in odd}))}; "
                    f"the others have {usual}")
        kind = told[odd[0]]["compared"][name][0]
        (findings.problems if kind == _MUST else findings.hints).append(sentence)
    hosts: dict[tuple, list[int]] = {}
    for rank, one in told.items():
        hosts.setdefault((one["boot"], one["net"], one["host"]), []).append(rank)
    for (_, _, host), ranks in hosts.items():
        available = told[ranks[0]]["cores"]
        if len(ranks) > available:
            findings.hints.append(f"{host} has {len(ranks)} ranks for {available:g} cores: ranks that wait take time from those that compute")


def judge_clocks(skews: dict[int, float], told: dict[int, dict], findings: Findings) -> None:
    """Ranks whose clocks are far from the others': logs and traces of theirs do not fit together."""
    middle = sorted([0.0, *skews.values()])[(len(skews) + 1) // 2]
    for rank, skew in {0: 0.0, **skews}.items():
        if abs(skew - middle) > _SKEW:
            findings.hints.insert(0, f"the clock of {_named([rank], told)} is {abs(skew - middle):.1f} s {'ahead of' if skew > middle else 'behind'} the others': "
                                  "times in logs do not fit together (is its time service running?)")


def judge_links(speeds: dict[tuple[int, int], float], told: dict[int, dict], findings: Findings) -> None:
    """By rank that sends and rank that receives, bytes a second."""
    names = {rank: _named([rank], told) for way in speeds for rank in way}
    findings.hints[:0] = _links.slow(speeds, names)
    findings.add("between hosts", _links.rows(speeds, names))


def judge_group(outcomes: dict[int, str], told: dict[int, dict], ranks: int, findings: Findings) -> None:
    """What the ranks say of a group that they tried to make."""
    silent = [rank for rank in range(ranks) if rank not in outcomes]
    if silent:
        findings.problems.append(f"{_named(silent, told)} did not come back from a first all_reduce")
    told_by = dict.fromkeys(said for _, said in sorted(outcomes.items()) if said)
    for text in sorted(told_by, key=lambda text: _WAITED in text):  # the rank that connects knows more than the one that waits for it
        findings.problems.append(f"{_named([rank for rank, said in sorted(outcomes.items()) if said == text], told)}: {text}")


def _named(ranks: list[int], told: dict[int, dict]) -> str:
    """"rank 3 (hostb)", "ranks 1 and 3 (hosta, hostb)"."""
    where = ", ".join(dict.fromkeys(told[rank]["host"] for rank in ranks if rank in told))
    numbers = " and ".join(filter(None, [", ".join(map(str, ranks[:-1])), str(ranks[-1])]))
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers}{f' ({where})' if where else ''}"


