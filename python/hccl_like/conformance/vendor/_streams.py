"""Streams and events: whether they are there, and whether they order."""

from __future__ import annotations

import time

import torch

from hccl_like.conformance.vendor._check import Missing, check, expect, offered
from hccl_like.conformance.vendor._device import STEP, Device, expect_value, pins

_ON_THE_HOST = "calls wait on the host for the caller's stream, and work.wait() for the result"


@check(
    "order.behind",
    "work runs behind the host",
    gives="computing and communicating overlap",
    without="the host waits for each operator; nothing overlaps, and nothing can be out of order",
)
def behind(device: Device) -> None:
    device.prepare()
    if not device.busy():
        raise Missing("operators return when they are done")


@check(
    "streams.own",
    "streams of one's own",
    gives="calls have a stream beside the caller's",
    without="everything runs in one order: calls and the program's work do not overlap",
)
def own_streams(device: Device) -> None:
    with offered():
        made = [device.stream() for _ in range(3)]
        default = device.current_stream()
    if len({stream.stream_id for stream in [*made, default]}) == 1:
        raise Missing("all of them are the default stream")


@check("streams.switch", "the current stream can be switched", needs=("streams.own",), without=_ON_THE_HOST)
def switch_streams(device: Device) -> None:
    side = device.stream()
    with offered(), device.on(side):
        inside = device.current_stream()
    expect(inside.stream_id == side.stream_id, "after set_stream() another stream is current")
    with device.on(side):
        tensor = device.full(4)
    side.synchronize()
    expect_value(tensor.cpu(), 4, "made on another stream")


@check(
    "streams.synchronize",
    "waiting for a stream waits",
    without="where work runs behind the host, results are read too early; every call synchronises by reading a tensor",
)
def synchronize(device: Device) -> str | None:
    with offered():
        stream = device.current_stream()
        stream.synchronize()
    device.prepare()
    source, target = device.full(6), device.pinned(0) if pins() else None
    device.settle()
    began = time.monotonic()
    behind = device.busy()
    if target is not None:
        target.copy_(source, non_blocking=True)
    stream.synchronize()
    took = time.monotonic() - began
    if target is not None:
        expect_value(target, 6, "copied before synchronize() and read after it")
    else:
        began = time.monotonic()
        source.cpu()
        left = time.monotonic() - began
        expect(left < 0.02 or left < took, "synchronize() came back while there was work to do")
    return None if behind else STEP


@check(
    "streams.query",
    "a stream says truly whether it is idle",
    without="nothing: streams are never polled, events are",
)
def query(device: Device) -> str | None:
    with offered():
        stream = device.current_stream()
        stream.query()
    device.prepare()
    stream.synchronize()
    time.sleep(0.01)
    expect(stream.query(), "query() calls a stream busy that was synchronised")
    behind = device.busy()
    idle = stream.query()
    began = time.monotonic()
    stream.synchronize()
    if behind and time.monotonic() - began > 0.05:
        expect(not idle, "query() calls a stream idle that has work to do")
    return None if behind else STEP


@check(
    "streams.native",
    "a stream has a native handle",
    gives="a plugin is given it",
    without="a plugin must find the stream by its number (stream_from_torch), or calls wait on the host",
)
def native(device: Device) -> None:
    stream = device.current_stream()
    if not hasattr(torch.Stream, "native_handle"):
        raise Missing("this torch knows no native handles")
    with offered():
        handle = stream.native_handle
    expect(handle is not None, "it is None")


@check(
    "events.record",
    "events",
    gives="streams are ordered by events",
    without=f"{_ON_THE_HOST}; FSDP2 fails in torch itself",
)
def events(device: Device) -> None:
    with offered():
        event = device.event()
        event.record(device.current_stream())
    event.synchronize()
    expect(event.query(), "query() is false after synchronize()")


@check("events.wait", "an event orders another stream", needs=("events.record", "streams.switch"), without=_ON_THE_HOST)
def events_order(device: Device) -> str | None:
    device.prepare(8)
    first, second = device.stream(), device.stream()
    source, target, result = device.full(0), device.full(0), device.full(0)
    device.settle()
    with device.on(first):
        behind = device.busy()
        device.fill(source, 8)
        event = device.event()
        event.record(first)
    second.wait_event(event)
    with device.on(second):
        target.copy_(source)
        result.copy_(target)
        second.synchronize()
        expect_value(result.cpu(), 8, "read by a stream that waited for the event")
    first.synchronize()
    return None if behind else STEP


@check(
    "events.synchronize",
    "the host can wait for an event, and ask",
    needs=("events.record",),
    without=_ON_THE_HOST,
)
def events_host(device: Device) -> str | None:
    device.prepare()
    stream = device.current_stream()
    device.settle()
    behind = device.busy()
    event = device.event()
    event.record(stream)
    done = event.query()
    began = time.monotonic()
    event.synchronize()
    took = time.monotonic() - began
    again = time.monotonic()
    stream.synchronize()
    left = time.monotonic() - again
    expect(left < 0.05 or left < took, "synchronize() came back before the work that the event was recorded behind")
    if took > 0.05:
        expect(not done, "query() calls an event done whose work is under way")
    expect(event.query(), "query() is false after synchronize()")
    return None if behind else STEP


@check(
    "events.again",
    "recording an event again leaves earlier waits alone",
    needs=("events.wait",),
    without="nothing: every event is recorded once here. Programs that reuse events wait for too much or too little",
)
def events_again(device: Device) -> str | None:
    device.prepare()
    first, second = device.stream(), device.stream()
    device.settle()
    event = device.event()
    with device.on(first):
        behind = device.busy()
        event.record(first)
    second.wait_event(event)
    passed = device.event()
    passed.record(second)
    with device.on(first):
        device.busy(4)
        event.record(first)
    passed.synchronize()
    expect(not (behind and event.query()), "who waited for the first recording waits for the second one")
    device.settle()
    return None if behind else STEP


@check(
    "events.gone",
    "an event may go while somebody waits for it",
    needs=("events.wait",),
    without="the library keeps events until the device has passed them; programs must, too",
)
def events_gone(device: Device) -> str | None:
    device.prepare(3)
    first, second = device.stream(), device.stream()
    source, target = device.full(0), device.full(0)
    device.settle()
    with device.on(first):
        behind = device.busy()
        device.fill(source, 3)
        event = device.event()
        event.record(first)
    second.wait_event(event)
    del event
    others = [device.event() for _ in range(8)]
    for other in others:
        other.record(second)
    with device.on(second):
        target.copy_(source)
        second.synchronize()
        expect_value(target.cpu(), 3, "read by a stream that waited for an event that is gone")
    return None if behind else STEP


@check("events.time", "events measure time", needs=("events.record",), without="the profiler and DDP's logging have no device times")
def events_time(device: Device) -> str:
    device.prepare()
    with offered():
        begin, end = (torch.Event(device=device.first, enable_timing=True) for _ in range(2))
        begin.record(device.current_stream())
        device.busy()
        end.record(device.current_stream())
        end.synchronize()
        took = begin.elapsed_time(end)
    expect(0 <= took < 60_000, f"work of some 100 ms took {took} ms")
    return f"{took:.0f} ms for work of some 100 ms"
