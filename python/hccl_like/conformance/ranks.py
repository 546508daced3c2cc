"""The ranks of one test: forked instead of spawned, waited for, and all of them looked at.

`install` replaces three methods of torch's MultiProcessTestCase in this process. Unlike the originals these

* fork, since torch is imported already (0.5 s a test instead of 10 s);
* keep each rank's output in a file and its traceback, also that of a failure outside the test body;
* look at the exit codes of all ranks, where upstream looks at the first one's only;
* give the others a few seconds once one rank died, so that they can tell what they saw, and then end the test.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import multiprocessing.connection
import os
import re
import signal
import sys
import time
import traceback
import unittest

from hccl_like.conformance import processes
from hccl_like.conformance.outcome import Rank
from hccl_like.conformance.settings import current as settings

_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Failed|Warning|Failure)?\b(: .*|$)")

# What is known of the ranks of the one test that this process runs.
observed: list[Rank] = []


def install() -> None:
    """Called once in a zygote, before any test."""
    from torch.testing._internal import common_distributed

    case = common_distributed.MultiProcessTestCase
    case._spawn_processes = _fork_ranks
    case._join_processes = _join_ranks


def cause(text: str) -> str:
    """The line of a traceback that names the exception: the last one, without the C++ frames after it."""
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    for line in lines[begins[-1] + 1 if begins else 0 :]:
        if line and not line[0].isspace() and _EXCEPTION.match(line):
            return line
    return next((line for line in reversed(lines) if line.strip()), "").strip()


def _without_logged_traceback(output: str) -> str:
    """torch logs each traceback line by line as well as sending it."""
    return "".join(line for line in output.splitlines(True) if "_internal/common_distributed.py:" not in line)


def _output_path(rank: int) -> str:
    return os.path.join(os.environ["TMPDIR"], f"rank{rank}.txt")


def _skip_path(rank: int) -> str:
    return os.path.join(os.environ["TMPDIR"], f"skip{rank}.txt")


class _SkipReason(logging.Handler):
    """torch only logs why a rank skips a test, with the reason as the record's last argument."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        if "skipping test" in record.msg and isinstance(record.args, tuple) and record.args:
            with open(self._path, "w") as file:
                file.write(str(record.args[-1]))


def _fork_ranks(self) -> None:
    import torch

    context = torch.multiprocessing.get_context("fork")
    parent = os.getpid()

    def process(target, name, args, kwargs):
        return context.Process(target=_be_rank, name=name, args=(parent, target, args, kwargs))

    sys.stdout.flush()
    sys.stderr.flush()
    self._start_processes(process)


def _be_rank(parent: int, target, args: tuple, kwargs: dict) -> None:
    rank, pipe = args[0], args[3]
    processes.die_with_parent(parent)
    processes.redirect_output(_output_path(rank))
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.getLogger("torch.testing._internal.common_distributed").addHandler(_SkipReason(_skip_path(rank)))
    _renew_thread_pool()
    try:
        target(*args, **kwargs)
    except Exception:
        # Outside the body of the test: making the group, the barrier after the test, destroying the group.
        traceback.print_exc()
        with contextlib.suppress(OSError):
            pipe.send(traceback.format_exc())
        sys.exit(10)


def _renew_thread_pool() -> None:
    """torch replaces its pool of threads at the first use after a fork, and two autograd threads would race to do it."""
    import torch

    torch.set_num_threads(torch.get_num_threads())


def _join_ranks(self, fn) -> None:
    started = time.monotonic()
    observed[:] = [Rank(number) for number in range(len(self.processes))]
    tolerant = fn in self.skip_return_code_checks or fn in self.special_return_code_checks
    timed_out = _wait(self, started + settings.timeout, tolerant)
    for rank, process in zip(observed, self.processes):
        rank.exit_code = process.exitcode
    if timed_out:
        _ask_for_stacks(self.processes)
    for rank in observed:
        rank.output = _without_logged_traceback(processes.tail(_output_path(rank.rank)))
    _end(self.processes)
    if timed_out:
        running = [rank.rank for rank in observed if rank.exit_code is None]
        raise AssertionError(f"timed out: {_ranks(running)} still running after {settings.timeout:g} s")
    _judge(self, fn)


def _wait(case, deadline: float, tolerant: bool) -> bool:
    """Until every rank ended; True if the deadline passed before."""
    import torch

    skip_codes = _skip_codes()
    pipes = {case.pid_to_pipe[process.pid]: rank for process, rank in zip(case.processes, observed)}
    deaf = set()
    dying_until = None
    while True:
        codes = [process.exitcode for process in case.processes]
        # A pipe is read while ranks run: a long traceback would otherwise keep its rank from ending.
        for pipe, rank in pipes.items():
            try:
                while pipe not in deaf and pipe.poll():
                    rank.error = str(pipe.recv())
            except (EOFError, OSError):
                deaf.add(pipe)
        if None not in codes:
            return False
        now = time.monotonic()
        if dying_until is None and not tolerant and any(code not in (None, 0, *skip_codes) for code in codes):
            dying_until = now + settings.grace
        if now > min(deadline, dying_until or deadline):
            return dying_until is None
        alive = [process.sentinel for process in case.processes if process.exitcode is None]
        multiprocessing.connection.wait([*alive, *(set(pipes) - deaf)], min(0.5, deadline - now + 0.01))


def _ask_for_stacks(ranks) -> None:
    """Each rank that still runs writes its Python stacks to its output; faulthandler needs no GIL for that."""
    for process in ranks:
        if process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGUSR1)
    time.sleep(0.5)


def _end(ranks) -> None:
    for process in ranks:
        if process.exitcode is None:
            process.kill()
    for process in ranks:
        process.join()


def _skip_codes() -> dict[int, str]:
    from torch.testing._internal.common_distributed import TEST_SKIPS

    return {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}


def _judge(case, fn) -> None:
    if fn in case.skip_return_code_checks:
        return
    codes = [rank.exit_code for rank in observed]
    expected = case.special_return_code_checks.get(fn, 0)
    if fn in case.special_return_code_checks:
        if codes[0] != expected:
            raise AssertionError(f"rank 0 ended with {_code(codes[0])} instead of {_code(expected)}")
        return
    skips = _skip_codes()
    failed = [rank for rank in observed if rank.exit_code not in (0, None, *skips)]
    if failed:
        # A rank that raised tells more than one that died of it, and the first error more than what follows from it.
        first = next((rank for rank in failed if rank.error), failed[0])
        reason = cause(first.error) if first.error else f"ended with {_code(first.exit_code)}"
        raise AssertionError(f"rank {first.rank}: {reason}")
    if len(set(codes)) > 1:
        raise AssertionError("the ranks ended differently: " + ", ".join(f"{r.rank}: {_code(r.exit_code)}" for r in observed))
    if codes and codes[0] in skips:
        raise unittest.SkipTest(_skip_reason() or skips[codes[0]])


def _skip_reason() -> str:
    return next((reason for rank in observed if (reason := processes.tail(_skip_path(rank.rank)))), "")


def _code(code: int | None) -> str:
    if code is None:
        return "nothing (it did not end)"
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}" + (f" ({_skip_codes()[code]})" if code in _skip_codes() else "")


def _ranks(numbers: list[int]) -> str:
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {', '.join(map(str, numbers))}"
