"""One suite: torch imported once, then a process of its own for every test, several at a time if asked.

Messages go to the command as lines of JSON: ``{"plan": [ids]}`` first, then ``{"outcome": {...}}`` for each test, or
``{"broken": text}`` when the suite cannot be loaded.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unittest
from dataclasses import dataclass
from typing import IO

from hccl_like.conformance import processes
from hccl_like.conformance.outcome import FAIL, PASS, SKIP, XFAIL, Outcome
from hccl_like.conformance.settings import current as settings

# A test's process ends a test itself after --timeout; this much later the zygote does.
_PATIENCE = 30.0


@dataclass
class Test:
    id: str
    case: unittest.TestCase
    skip: str | None
    gates: list[str]


def run(suite: str, out: IO[str]) -> None:
    """The life of a zygote; `out` leads to the command."""

    def tell(**message) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    processes.adopt_orphans()
    try:
        tests = [test for test in _load(suite) if _is_wanted(test.id)]
    except Exception as error:
        tell(broken=f"{type(error).__name__}: {error}", details=traceback.format_exc())
        return
    tell(plan=[[test.id, test.skip or ""] for test in tests])
    if not settings.list_only:
        _run_all(tests, lambda outcome: tell(outcome=outcome.to_json()))


def _load(suite: str) -> list[Test]:
    os.environ["BACKEND"] = settings.backend
    os.environ["WORLD_SIZE"] = str(settings.world_size)
    # A temporary directory that exists while the modules are imported: torch's tests ask for it then.
    os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
    os.environ.setdefault("MASTER_ADDR", "localhost")
    # Ranks share the machine; pools of threads of their own would only fight for it.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("PYTORCH_PRINT_REPRO_ON_FAILURE", "0")
    from hccl_like import _imports
    from hccl_like.conformance import device, ranks, suites

    _imports.ready()
    if settings.device != "cpu":
        device.count(settings.device)
    ranks.install()
    module = suites.module_of(suite)
    short = suite.rpartition(".")[2]
    tests = []
    for case in module.load(settings.backend, settings.device, settings.world_size):
        names = getattr(case, "conformance_tests", None) or unittest.TestLoader().getTestCaseNames(case)
        skips = getattr(case, "conformance_skips", {})
        for name in names:
            id = f"{short}.{case.__name__}.{name}"
            left_out = "left out by --skip" if _matches(id, settings.left_out) else None
            tests.append(_test(id, case, name, skips.get(name) or left_out))
    return tests


def _test(id: str, case: type[unittest.TestCase], name: str, skip: str | None) -> Test:
    from hccl_like.conformance import gates

    method = getattr(case, name)
    for marked in (case, method):
        if skip is None and getattr(marked, "__unittest_skip__", False):
            skip = getattr(marked, "__unittest_skip_why__", "") or "skipped without a reason"
    return Test(id, case(name), skip, [str(gate) for gate in gates.of(method).gates])


def _is_wanted(id: str) -> bool:
    if settings.only is not None and id not in settings.only:
        return False
    return not settings.patterns or _matches(id, settings.patterns)


def _matches(id: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(id, f"*{pattern}*") for pattern in patterns)


class _Running:
    """A test's process as the zygote sees it."""

    def __init__(self, test: Test) -> None:
        self.test = test
        self.started = time.monotonic()
        self.folder = tempfile.mkdtemp(prefix="conf_")
        self.pipe, write_end = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        zygote = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _be_test(test, self.folder, write_end, zygote)
        os.close(write_end)
        self.answer = b""

    def finish(self, too_late: bool) -> Outcome:
        """Kills what is left of the test, reaps it, and says what became of it."""
        processes.kill_group(self.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        output = processes.tail(os.path.join(self.folder, "test.txt"))
        shutil.rmtree(self.folder, ignore_errors=True)
        seconds = round(time.monotonic() - self.started, 3)
        try:
            outcome = Outcome.from_json(json.loads(self.answer))
        except ValueError:
            code = os.waitstatus_to_exitcode(status)
            reason = "timed out: the test's own process did not end" if too_late else f"the test's own process died ({code})"
            outcome = Outcome(self.test.id, FAIL, reason, output)
        outcome.seconds = seconds
        outcome.gates = self.test.gates
        return outcome


def _run_all(tests: list[Test], tell) -> None:
    waiting = list(reversed(tests))
    running: dict[int, _Running] = {}
    failed = False
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < settings.jobs and not (failed and settings.fail_fast):
                test = waiting.pop()
                if test.skip is not None:
                    tell(Outcome(test.id, SKIP, test.skip, gates=test.gates))
                    continue
                started = _Running(test)
                running[started.pipe] = started
                selector.register(started.pipe, selectors.EVENT_READ)
            if failed and settings.fail_fast:
                waiting.clear()
            for key, _ in selector.select(1.0) if running else ():
                one = running[key.fd]
                if data := os.read(key.fd, 1 << 16):
                    one.answer += data
                else:
                    selector.unregister(key.fd)
                    failed |= _finish(running, key.fd, tell, too_late=False)
            for pipe, one in list(running.items()):
                if time.monotonic() > one.started + settings.timeout + _PATIENCE:
                    selector.unregister(pipe)
                    failed |= _finish(running, pipe, tell, too_late=True)


def _finish(running: dict[int, _Running], pipe: int, tell, too_late: bool) -> bool:
    from hccl_like.conformance import expected
    from hccl_like.conformance.outcome import BAD

    outcome = running.pop(pipe).finish(too_late)
    processes.reap_others({one.pid for one in running.values()})
    outcome = expected.judge(outcome, settings.backend, settings.device)
    tell(outcome)
    return outcome.outcome in BAD


class _Result(unittest.TestResult):
    """The one test's result, in our words."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome, self.reason, self.details = PASS, "", ""

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome, self.reason = SKIP, reason

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._fail(err)

    def addError(self, test, err):
        super().addError(test, err)
        self._fail(err)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.outcome, self.reason = XFAIL, "torch marks it as an expected failure"

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome, self.reason = FAIL, "torch marks it as an expected failure, but it passed"

    def _fail(self, err):
        if self.outcome == FAIL:  # what tearDown says after a failure adds nothing
            return
        kind, error, _ = err
        text = str(error).strip().splitlines() or [""]
        self.outcome = FAIL
        self.reason = text[0] if kind is AssertionError else f"{kind.__name__}: {text[0]}"
        self.details = "".join(traceback.format_exception(*err))


def _be_test(test: Test, folder: str, pipe: int, zygote: int) -> None:
    """The test's own process: leads a process group that its ranks stay in, never returns."""
    from hccl_like.conformance import ranks

    try:
        os.setsid()
        processes.die_with_parent(zygote)
        processes.redirect_output(os.path.join(folder, "test.txt"))
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        result = _Result()
        unittest.TestSuite([test.case]).run(result)
        bad = result.outcome == FAIL
        outcome = Outcome(test.id, result.outcome, result.reason, result.details)
        outcome.ranks = ranks.observed
        if bad:
            outcome.details += processes.tail(os.path.join(folder, "test.txt"))
        else:
            for rank in outcome.ranks:
                rank.output = ""
        with os.fdopen(pipe, "w") as answer:
            answer.write(json.dumps(outcome.to_json()))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)
