"""Streams and events."""

import torch
from torch_sim import _C
from torch_sim.sim.devices import UNNAMED, index_of, is_ours


class Stream(torch.Stream):
    """An ordered queue of work of one device. Its worker thread starts with the first work queued on it."""

    def __new__(cls, device=None, priority=0, **kwargs):
        if kwargs:  # stream_id, device_index, device_type: a stream that exists
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=torch.device(UNNAMED, index_of(device)), priority=priority)

    @property
    def priority(self) -> int:
        return _C.stream_priority(self.device_index, self.stream_id)


class _EventType(type):
    """Makes plain torch.Events: torch compares the times of those only, and of no subclass."""

    def __call__(cls, enable_timing=False, blocking=False, interprocess=False):
        return torch.Event(device=UNNAMED, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)

    def __instancecheck__(cls, event):
        return isinstance(event, torch.Event) and is_ours(event.device)


class Event(metaclass=_EventType):
    """A point in a stream's order. Recording it again does not touch what already waits for it."""


def _stream(index: int, stream_id: int) -> Stream:
    return Stream(stream_id=stream_id, device_index=index, device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def current_stream(device=None) -> Stream:
    index = index_of(device)
    return _stream(index, _C.current_stream(index))


def default_stream(device=None) -> Stream:
    return _stream(index_of(device), 0)


def set_stream(stream) -> None:
    """Make it the current stream of its device, and that the current device."""
    if stream is None:
        return
    _C.set_device(stream.device_index)
    _C.set_stream(stream.device_index, stream.stream_id)


class StreamContext:
    """A context in which a stream is its device's current stream, and that device the current one."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is None:
            return self
        self._device = _C.current_device()
        self._before = _C.current_stream(self.stream.device_index)
        set_stream(self.stream)
        return self

    def __exit__(self, *exception):
        if self.stream is None:
            return
        _C.set_stream(self.stream.device_index, self._before)
        _C.set_device(self._device)


def stream(stream) -> StreamContext:
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    """Never: the device has no graphs to capture work into."""
    return False


def synchronize(device=None) -> None:
    """Wait until all streams of a device have done what is queued on them now."""
    torch.accelerator.synchronize(index_of(device))


def _sleep(milliseconds: float) -> None:
    """Queue a delay on the current stream; returns at once."""
    index = _C.current_device()
    _C.sleep_on(index, _C.current_stream(index), milliseconds)


def launch_host_func(stream, function) -> None:
    """Queue a call of a Python function without arguments on a stream. The stream's later work waits for it."""
    _C.launch_host_func(stream.device_index, stream.stream_id, function)
