"""Runs one row: checks the results, then times the operation, one backend or two in turns."""

import statistics
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from . import inputs
from .collectives import Case, Collective

FAKE = "fake"  # torch's backend that does nothing: its time is the least that a call through torch takes
ROUNDS = 5  # turns each backend gets in one row


@dataclass
class Subject:
    """A backend under test: the group that speaks it and the device its tensors lie on."""

    name: str
    group: dist.ProcessGroup
    device: torch.device

    def synchronize(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize()


@dataclass
class Timing:
    """Microseconds of one operation on this rank, by iteration, and the number of wrong elements."""

    times: list[float] = field(default_factory=list)
    wrong: int | None = None  # None: not checked
    error: str | None = None

    def median(self) -> float:
        return statistics.median(self.times)

    def p99(self) -> float:
        return sorted(self.times)[min(len(self.times) - 1, round(0.99 * len(self.times)))]


class Runner:
    """One collective in one form on one subject's buffers."""

    def __init__(self, collective: Collective, case: Case, form: str, subject: Subject, args):
        self._collective, self._case, self._subject, self._args = collective, case, subject, args
        self._send, self._receive = collective.buffers(case, form)
        self._kept = None  # the values that --dirty writes

    def check(self, salt: int) -> int:
        """Fills the buffers, runs the operation once, counts the wrong elements of this rank."""
        case = self._case
        self._receive.copy_(torch.zeros_like(self._receive, device="cpu"))
        self._send.copy_(case.values(case.rank, self._send.numel(), salt))
        self._run(1)
        expected = self._collective.expected(case, salt)
        if expected is None:
            return 0
        return inputs.wrong(self._receive, expected, case.op if self._collective.reduces else "", case.ranks)

    def settle(self, iterations: int) -> None:
        """Untimed iterations, on zeros: sums that grow without end would be timed as infinities later."""
        self._send.zero_()
        self._receive.zero_()
        for _ in range(iterations):
            self._run(1)

    def time(self, iterations: int) -> list[float]:
        if not self._args.blocking:
            return [self._timed(iterations) / iterations]
        return [self._timed(1) for _ in range(iterations)]

    def _timed(self, iterations: int) -> float:
        if self._args.dirty:
            self._rewrite()
        begin = time.perf_counter_ns()
        self._run(iterations * self._args.agg_iters)
        return (time.perf_counter_ns() - begin) / 1000 / self._args.agg_iters

    def _run(self, operations: int) -> None:
        works = []
        for _ in range(operations):
            works += self._collective.issue(self._case, self._send, self._receive, self._subject.group)
        for work in works:
            work.wait()
        self._subject.synchronize()

    def _rewrite(self) -> None:
        if self._kept is None:
            self._kept = self._case.values(self._case.rank, self._send.numel(), 1).to(self._subject.device)
        self._send.copy_(self._kept)
        self._subject.synchronize()
        dist.barrier(group=self._subject.group)  # or the slower writer's time would count as the operation's


def run(collective: Collective, case: Case, form: str, subjects: list[Subject], args) -> list[Timing]:
    """One timing per subject. An operation that a backend refuses is an error in its timing, not the end."""
    timings = [Timing() for _ in subjects]
    runners = []
    for subject, timing in zip(subjects, timings):
        local = Case(**{**vars(case), "device": subject.device})
        try:
            runner = Runner(collective, local, form, subject, args)
            for salt in range(0 if subject.name == FAKE else args.check):
                timing.wrong = (timing.wrong or 0) + runner.check(salt)
            runner.settle(args.warmup_iters)
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            timing.error = str(error).split("\n")[0]
            continue
        runners.append((runner, timing))

    turns = min(ROUNDS, args.iters) if len(runners) > 1 else 1
    for turn in range(turns):
        share = args.iters * (turn + 1) // turns - args.iters * turn // turns
        for runner, timing in runners:
            if len(runners) > 1:
                runner.settle(1)  # the other one had the caches
            timing.times += runner.time(share)
    return timings
