"""Copies, and memory that goes while a copy is under way."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import time

import torch

from hccl_like.conformance.vendor._check import Missing, check, expect, offered
from hccl_like.conformance.vendor._device import BUSY_SECONDS, COUNT, STEP, Device, expect_value, pins

_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float16, torch.bfloat16,
           torch.float32, torch.float64, torch.complex64)  # fmt: skip


@check("copies.types", "tensors of every type are copied", without="tensors of those types cannot be communicated")
def types(device: Device) -> str | None:
    refused = []
    for dtype in _DTYPES:
        host = torch.arange(1001).remainder(100).to(dtype)
        try:
            there = host.to(device.first)
        except Exception:
            refused.append(str(dtype).removeprefix("torch."))
            continue
        expect(torch.equal(there.cpu(), host), f"{dtype} has changed on the way there and back")
    if len(refused) == len(_DTYPES):
        raise Missing("no type can be copied")
    return "not offered: " + ", ".join(refused) if refused else None


@check(
    "copies.views",
    "parts of tensors are copied from where they lie",
    without="contiguous copies are made first; a storage offset that is ignored is fatal",
)
def views(device: Device) -> str | None:
    host = torch.arange(1000, dtype=torch.float32)
    whole = host.to(device.first)
    with offered():
        part = whole[13:777].cpu()
    expect(torch.equal(part, host[13:777]), "device to host ignores the storage's offset")
    with offered():
        whole[100:107].copy_(torch.full((7,), -1.0))
    host[100:107] = -1
    expect(torch.equal(whole.cpu(), host), "host to device ignores the storage's offset")
    return _refused(
        ("copies within the device", lambda: _copied_within(whole, host), "a copy on the device ignores the storage's offset"),
        ("transposed views", lambda: (whole.view(20, 50).t().cpu(), host.view(20, 50).t()), "a transposed view is copied wrongly"),
        ("every seventh element", lambda: (whole[3::7].cpu(), host[3::7]), "every seventh element is copied wrongly"),
        ("views as bytes", lambda: (whole.view(torch.uint8)[5:23].cpu(), host.view(torch.uint8)[5:23]),
         "a view as bytes is copied wrongly"),
    )  # fmt: skip


def _refused(*attempts) -> str | None:
    """What of (what it is, what gives it and what it should be, what is wrong otherwise) the device does not offer."""
    refused = []
    for what, attempt, wrong in attempts:
        try:
            got, expected = attempt()
        except Exception:
            refused.append(what)
            continue
        expect(torch.equal(got, expected), wrong)
    return "not offered: " + ", ".join(refused) if refused else None


def _copied_within(whole: torch.Tensor, host: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    whole[500:600].copy_(whole[0:100])
    host[500:600] = host[0:100].clone()
    return whole.cpu(), host


@check(
    "copies.address",
    "the host can follow data_ptr()",
    gives="still, tensors are reached by copies unless a plugin says HCD_CAP_HOST_DEREF",
    without="nothing: no tensor's data_ptr() is used as an address, so the memory may be protected or opaque",
)
def address(device: Device) -> None:
    tensor = device.full(3)
    device.settle()
    found = _read_in_a_fork(tensor.data_ptr())
    if found is None:
        raise Missing("it faults")
    if found != 3.0:
        raise Missing(f"there is something else ({found:g})")


def _read_in_a_fork(address: int) -> float | None:
    """The float at an address; None if it is none. A child reads, since it may not survive that."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        os.write(write_end, ctypes.string_at(address, 4))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        value = answer.read()
    os.waitpid(pid, 0)
    return struct.unpack("f", value)[0] if len(value) == 4 else None


@check(
    "copies.to_host",
    "copies to pinned memory return before they are done",
    gives="a program's copies run behind it",
    without="every copy to the host holds up the thread that asks for it; slices of large calls overlap all the same, on threads",
    needs=("hooks.pinned",),
)
def async_to_host(device: Device) -> None:
    _returns_early(device, lambda there, host: host.copy_(there, non_blocking=True))


@check(
    "copies.to_device",
    "copies from pinned memory return before they are done",
    gives="a program's copies run behind it",
    without="every copy to the device holds up the thread that asks for it; slices of large calls overlap all the same, on threads",
    needs=("hooks.pinned",),
)
def async_to_device(device: Device) -> None:
    _returns_early(device, lambda there, host: there.copy_(host, non_blocking=True))


def _returns_early(device: Device, copy) -> None:
    device.prepare()
    there, host = device.full(0), device.pinned(0)
    for load in (1, 3, 9):  # until the device is busy for long enough to tell
        device.settle()
        if not device.busy(load):
            raise Missing("operators return when they are done, so a copy finds nothing to wait behind")
        began = time.monotonic()
        copy(there, host)
        asked = time.monotonic() - began
        device.settle()
        took = time.monotonic() - began
        if took > BUSY_SECONDS / 2:
            break
    if asked > took / 2:
        raise Missing(f"the call took {asked * 1e3:.0f} ms of {took * 1e3:.0f} ms")


@check(
    "copies.non_blocking",
    "non-blocking copies keep the stream's order, both ways",
    without="copies are blocking ones; a program must not use non_blocking=True",
)
def non_blocking(device: Device) -> str | None:
    device.prepare(99)
    there, answer = device.full(0), device.full(0)
    given, taken = (device.pinned(value) if pins() else torch.full((COUNT,), value) for value in (2.0, 0.0))
    device.settle()
    behind = device.busy()
    there.copy_(given, non_blocking=True)
    answer.copy_(there)
    taken.copy_(answer, non_blocking=True)
    device.fill(there, 99)
    device.settle()
    expect_value(taken, 2, "copied to the device, within it and back, and read after synchronising")
    return None if behind else STEP


@check(
    "copies.unpinned",
    "non-blocking copies of ordinary memory are right",
    without="the library uses blocking copies for memory that is not pinned; so must a program",
)
def unpinned(device: Device) -> str | None:
    device.prepare()
    there, given, taken = device.full(0), torch.full((COUNT,), 2.0), torch.zeros(COUNT)
    device.settle()
    behind = device.busy()
    there.copy_(given, non_blocking=True)
    given = None
    torch.full((COUNT,), 66.0)  # may get the memory that was freed
    taken.copy_(there, non_blocking=True)
    device.settle()
    expect_value(taken, 2, "copied there and back without pinned memory, and read after synchronising")
    return None if behind else STEP


@check(
    "copies.devices",
    "a copy between devices keeps the order of both",
    needs=("device.count",),
    without="copy by way of the host: tensor.cpu().to(other)",
)
def between_devices(device: Device) -> str | None:
    device.prepare(5, 9)
    source, target = device.full(0), device.full(0, device=device.second())
    device.settle()
    behind = device.busy()
    device.fill(source, 5)
    target.copy_(source)
    device.fill(source, 9)
    expect_value(target.cpu(), 5, "copied to the second device between two writes of the source")
    return None if behind else STEP


@check(
    "memory.freed_source",
    "a tensor may go while it is copied to the host",
    needs=("hooks.pinned",),
    without="fatal: memory in use is given away or unmapped. The library keeps tensors until a call is over; programs must, too",
)
def freed_source(device: Device) -> str | None:
    device.prepare(4)
    host = device.pinned(0)
    source = device.full(0)
    device.settle()
    behind = device.busy()
    device.fill(source, 4)
    host.copy_(source, non_blocking=True)
    del source
    others = device.reuse_memory()
    device.settle()
    expect_value(host, 4, "copied from a tensor that was freed before the copy was done")
    del others
    return None if behind else STEP


@check(
    "memory.freed_pinned",
    "pinned memory may go while it is copied to the device",
    needs=("hooks.pinned",),
    without="the library keeps pinned memory until the copy is done; programs must, too",
)
def freed_pinned(device: Device) -> str | None:
    device.prepare()
    there = device.full(0)
    host = device.pinned(6)
    device.settle()
    behind = device.busy()
    there.copy_(host, non_blocking=True)
    del host
    others = [device.pinned(55) for _ in range(3)]  # may get the memory that was freed
    device.settle()
    expect_value(there.cpu(), 6, "copied from pinned memory that was freed before the copy was done")
    del others
    return None if behind else STEP


@check(
    "memory.record_stream",
    "record_stream keeps memory for another stream",
    needs=("streams.switch", "events.record", "hooks.pinned"),
    without="nothing: the library holds tensors until the device is through with them and never relies on it. Programs must, too",
)
def record_stream(device: Device) -> str | None:
    device.prepare()
    side = device.stream()
    host = device.pinned(0)
    source = device.full(4)
    device.settle()
    with device.on(side):
        behind = device.busy()
        host.copy_(source, non_blocking=True)
    with offered():
        source.record_stream(side)
    del source
    others = device.reuse_memory()
    device.settle()
    expect_value(host, 4, "read by another stream that record_stream() had named, after the tensor was freed")
    del others
    return None if behind else STEP


@check(
    "memory.limit",
    "more memory than there is raises an error",
    without="a program that asks for too much crashes or hangs",
)
def limit(device: Device) -> str:
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device=device.first)
    except torch.OutOfMemoryError:
        seen = "torch.OutOfMemoryError"
    except Exception as error:
        seen = type(error).__name__
    else:
        raise Missing("a petabyte was handed out; the device overcommits")
    expect_value(device.full(2).cpu(), 2, "a tensor made after that")
    return seen

