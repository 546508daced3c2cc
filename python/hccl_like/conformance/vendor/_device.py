"""The device under test, by torch's public interfaces alone, and of its operators by none but copies."""

from __future__ import annotations

import contextlib
import time

import torch

from hccl_like.conformance.vendor._check import Missing, expect, offered

# Odd, and more than what a device would do at once.
COUNT = 100_003
# Elements of the tensors whose copying keeps a device busy: 8 MiB each.
_LARGE = 2 << 20
BUSY_SECONDS = 0.1
# What memory that is used again is filled with.
_REUSED = 77


class Device:
    def __init__(self, name: str) -> None:
        self.name = name
        try:
            self.first = torch.device(name, 0)
        except RuntimeError as error:
            raise Missing(
                f"torch has no device '{name}' here: is the package that brings it installed, and named with --import if torch "
                "does not load it by itself?"
            ) from error
        self._load: tuple[torch.Tensor, torch.Tensor, int] | None = None
        # By value, tensors of the first device from which others are written in the order of the current stream.
        self._values: dict[float, torch.Tensor] = {}

    @property
    def module(self):
        found = getattr(torch, self.name, None)
        if found is None:
            raise Missing(f"there is no module torch.{self.name}")
        return found

    def count(self) -> int:
        counted = getattr(self.module, "device_count", torch.accelerator.device_count)()
        if counted < 1:
            raise Missing("no device is there")
        return counted

    def second(self) -> torch.device:
        if self.count() < 2:
            raise Missing("there is one device only")
        return torch.device(self.name, 1)

    def full(self, value: float, device: torch.device | None = None) -> torch.Tensor:
        """A new tensor, written by a copy from the host: what is queued on the current stream comes first."""
        return torch.full((COUNT,), float(value)).to(device or self.first)

    def fill(self, tensor: torch.Tensor, value: float) -> None:
        """Queues a write on the current stream; prepare() was told the value."""
        tensor.copy_(self._values[value])

    def stream(self, device: torch.device | None = None) -> torch.Stream:
        return torch.Stream(device=device or self.first)

    def current_stream(self) -> torch.Stream:
        return torch.accelerator.current_stream(self.first)

    def reuse_memory(self) -> list[torch.Tensor]:
        """Takes what memory of the usual size was freed, and writes to it on the current stream."""
        taken = [torch.empty(COUNT, device=self.first) for _ in range(16)]
        for tensor in taken:
            self.fill(tensor, _REUSED)
        return taken

    def event(self) -> torch.Event:
        return torch.Event(device=self.first)

    def pinned(self, value: float, count: int = COUNT) -> torch.Tensor:
        return torch.full((count,), float(value)).pin_memory()

    def settle(self) -> None:
        """Waits for all work, by whatever the device has for that."""
        try:
            torch.accelerator.synchronize(self.first)
        except Exception:
            torch.empty(1, device=self.first).cpu()

    @contextlib.contextmanager
    def on(self, stream: torch.Stream):
        before = self.current_stream()
        torch.accelerator.set_stream(stream)
        try:
            yield
        finally:
            torch.accelerator.set_stream(before)

    def busy(self, times: float = 1.0) -> bool:
        """Queues work on the current stream that takes a while. False if the device had done most of it on return: it works
        in step with the host, and order is nothing that could go wrong."""
        self.prepare()
        assert self._load is not None  # prepare() has set it
        source, target, copies = self._load
        began = time.monotonic()
        for _ in range(max(1, int(copies * times))):
            target.copy_(source)
        return time.monotonic() - began < BUSY_SECONDS * times / 2

    def prepare(self, *values: float) -> None:
        """Makes what busy(), reuse_memory() and fill() with these values will need, while nothing else is to be timed."""
        if self._load is None:
            with offered():
                self._load = self._measure_load()
        for value in (*values, _REUSED):
            if value not in self._values:
                self._values[value] = self.full(value)

    def _measure_load(self) -> tuple[torch.Tensor, torch.Tensor, int]:
        source, target = (torch.zeros(_LARGE).to(self.first) for _ in range(2))
        # Others may be using this host, too: the quickest of several.
        each = max(min(self._time_of(4, source, target) for _ in range(4)) / 4, 1e-6)
        return source, target, min(2000, max(4, int(BUSY_SECONDS / each)))

    def _time_of(self, copies: int, source: torch.Tensor, target: torch.Tensor) -> float:
        began = time.monotonic()
        for _ in range(copies):
            target.copy_(source)
        self.settle()
        return time.monotonic() - began


def expect_value(tensor: torch.Tensor, value: float, what: str) -> None:
    """`tensor` is on the host."""
    wrong = int(tensor.ne(value).sum())
    expect(wrong == 0, f"{what}: {wrong} of {tensor.numel()} elements are not {value:g}, one is {_other(tensor, value)}")


def _other(tensor: torch.Tensor, value: float) -> str:
    different = tensor[tensor.ne(value)]
    return f"{different[0].item():g}" if different.numel() else "none"


def pins() -> bool:
    """Whether there is pinned memory."""
    try:
        torch.empty(1, pin_memory=True)
    except Exception:
        return False
    return True


STEP = "the device works in step with the host, so this cannot go wrong"
