"""What this host gives: interfaces, shared memory, limits, TCP."""

from __future__ import annotations

import os
import resource

from hccl_like.doctor._findings import Findings

_FEW_DESCRIPTORS = 1024
_LITTLE_SHARED_MEMORY = 64 << 20


def examine(findings: Findings) -> None:
    from hccl_like import _extension

    extension = _extension.load()
    rows = []
    try:
        addresses = extension._addresses()
    except RuntimeError as error:
        findings.problems.append(str(error))
    else:
        rows.append(("addresses, best first", ", ".join(addresses)))
        if all(address.startswith(("127.", "::1", "[::1")) for address in addresses):
            findings.hints.append("no address but loopback: ranks of other hosts cannot reach those of this one")
    rows += [*_interfaces(extension), *_shared_memory(findings), *_limits(findings), *_tcp()]
    findings.add("this host", rows)


def _interfaces(extension):
    for nic in extension.look_at_machine()["nics"]:
        speed = f"{nic['megabits']} Mbit/s" if nic["megabits"] else "speed unknown"
        yield f"interface {nic['name']}", speed + (f", NUMA node {nic['node']}" if nic["node"] >= 0 else "")


def _shared_memory(findings: Findings):
    try:
        shown = os.statvfs("/dev/shm")
    except OSError:
        yield "/dev/shm", "not there"
        findings.hints.append("there is no /dev/shm: hccl-like needs none, but data loaders and other libraries do")
        return
    size, free = shown.f_blocks * shown.f_frsize, shown.f_bavail * shown.f_frsize
    yield "/dev/shm", f"{_readable(free)} of {_readable(size)} free"
    if free < _LITTLE_SHARED_MEMORY:
        findings.hints.append(
            f"/dev/shm has {_readable(free)} left: hccl-like needs none of it, but data loaders, MPI and libfabric do "
            "(docker run --shm-size)"
        )


def _limits(findings: Findings):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield "open files", f"{_limit(soft)}, at most {_limit(hard)}"
    if soft != resource.RLIM_INFINITY and soft < _FEW_DESCRIPTORS:
        findings.hints.append(f"a process may open {soft} files only, which is little for many peers: ulimit -n {_FEW_DESCRIPTORS}")
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    yield "locked memory", f"{_limit(soft, _readable)}, at most {_limit(hard, _readable)}"


def _tcp():
    control = read("/proc/sys/net/ipv4/tcp_congestion_control")
    if control:
        known = read("/proc/sys/net/ipv4/tcp_available_congestion_control")
        yield "TCP congestion control", f"{control}; the kernel knows {known.replace(' ', ', ')}" if known else control
    most = read("/proc/sys/net/ipv4/tcp_rmem").split()
    if most:
        yield "TCP receive buffer", f"at most {_readable(int(most[-1]))}"


def read(path: str) -> str:
    """The text of a file of the kernel, or "" where there is none."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def _limit(value: int, readable=str) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else readable(value)


def _readable(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"
