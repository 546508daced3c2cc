"""The command: ``python -m hccl_like.conformance``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from hccl_like import _imports
from hccl_like.conformance import processes, report, suites, zygote
from hccl_like.conformance.outcome import BAD, FAIL, Outcome, count
from hccl_like.conformance.settings import current as settings


def main(argv: list[str] | None = None) -> int:
    """0: nothing failed; 1: something did; 2: nothing was run."""
    options = _parser().parse_args(argv)
    _imports.apply(options)
    if options.what == "device":
        from hccl_like.conformance.vendor import _run

        return _run.main(options.device, options.timeout, options.k, options.json, options.list, report.say)
    try:
        _apply(options)
    except ValueError as error:
        report.say(f"error: {error}")
        return 2
    outcomes: list[Outcome] = []
    broken = False
    for suite in settings.suites:
        if settings.fail_fast and any(outcome.outcome in BAD for outcome in outcomes):
            break
        broken |= not _run_suite(suite, outcomes)
    if settings.list_only:
        return 1 if broken else 0
    if options.json:
        report.write_json(options.json, settings, outcomes)
    if options.junit:
        report.write_junit(options.junit, settings, outcomes)
    report.say("")
    report.summary(outcomes)
    report.say(", ".join(f"{number} {way}" for way, number in count(outcomes).items()))
    return exit_code(outcomes, broken)


def exit_code(outcomes: list[Outcome], broken: bool) -> int:
    if broken or any(outcome.outcome in BAD for outcome in outcomes):
        return 1
    return 0 if outcomes else 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hccl_like.conformance",
        description="Runs PyTorch's own distributed tests, out of the installed torch, against any backend and device; or tells what "
        "a device offers.",
    )
    add = parser.add_argument
    add("--backend", default="hccl-like", metavar="NAME", help="as init_process_group takes it (default: %(default)s)")
    add("--device", default="cpu", metavar="KIND", help="cpu, or the name of any PrivateUse1 device (default: %(default)s)")
    _imports.add_option(parser)
    add(
        "--what",
        choices=("tests", "device"),
        default="tests",
        help="tests: PyTorch's own; device: which of PyTorch's interfaces the device offers, and what of them works",
    )
    add(
        "--suite",
        action="append",
        metavar="NAME",
        help=f"one of {', '.join(suites.names())}; all; or a module that has load(); may be repeated (default: distributed)",
    )
    add(
        "--checkout",
        type=Path,
        metavar="DIR",
        help="a checkout of PyTorch: suites are names of its files in test/distributed, without .py, with * and ? as in a shell",
    )
    add("--world-size", type=int, default=4, metavar="N", help="ranks of each test (default: %(default)s)")
    add("-k", action="append", default=[], metavar="PATTERN", help="only tests whose id contains this; * and ? as in a shell")
    add("--skip", action="append", default=[], metavar="PATTERN", help="leave these out, say because they compute for hours")
    add("--list", action="store_true", help="name the tests and run none")
    add("--timeout", type=float, default=120, metavar="S", help="seconds for one test (default: %(default)s)")
    add("--jobs", type=int, default=1, metavar="N", help="tests at the same time (default: %(default)s)")
    add("--json", metavar="FILE", help="write the results as JSON")
    add("--junit", metavar="FILE", help="write the results as JUnit XML")
    add("--retarget", action="store_true", help="also the tests about CPU tensors, with the device as default device")
    add("--include-disabled", action="store_true", help="also the tests that PyTorch has switched off")
    add("--no-profiling", action="store_true", help="do not expect the backend to show up in torch's profiler")
    add("--fail-fast", action="store_true", help="stop after the first failure")
    add("--failed-from", metavar="FILE", help="only the tests that failed in a run written with --json")
    return parser


def _apply(options: argparse.Namespace) -> None:
    if options.checkout is not None:
        from hccl_like.conformance.suites import checkout

        if not options.suite:
            raise ValueError("--checkout takes --suite, which names files of its test/distributed: --suite 'test_c10d_*'")
        settings.checkout = options.checkout.resolve()
        settings.suites = checkout.files(settings.checkout, options.suite)
    else:
        chosen = options.suite or ["distributed"]
        settings.suites = [name for suite in chosen for name in (suites.names() if suite == "all" else [suite])]
    if options.retarget and "retarget" not in settings.suites:
        settings.suites.append("retarget")
    settings.backend = options.backend
    settings.device = options.device
    settings.world_size = options.world_size
    settings.patterns = options.k
    settings.left_out = options.skip
    settings.only = report.failed_in(options.failed_from) if options.failed_from else None
    settings.timeout = options.timeout
    settings.jobs = max(1, options.jobs)
    settings.fail_fast = options.fail_fast
    settings.include_disabled = options.include_disabled
    settings.profiling = not options.no_profiling
    settings.list_only = options.list


def _run_suite(suite: str, outcomes: list[Outcome]) -> bool:
    """Runs one suite in a zygote, adds its outcomes and shows them as they come. False if it could not be run."""
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    command = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read_end)
            processes.die_with_parent(command)
            with os.fdopen(write_end, "w") as out:
                zygote.run(suite, out)
            status = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    os.close(write_end)
    missing: dict[str, None] = {}
    broken = False
    try:
        with os.fdopen(read_end) as messages:
            for text in messages:
                message = json.loads(text)
                broken |= "broken" in message
                _take(suite, message, missing, outcomes)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if missing and not settings.list_only and not settings.fail_fast:
        for id in missing:
            outcomes.append(Outcome(id, FAIL, "the zygote that was to run it ended"))
        broken = True
    return not broken


def _take(suite: str, message: dict, missing: dict[str, None], outcomes: list[Outcome]) -> None:
    if "broken" in message:
        report.say(f"suite {suite} cannot be loaded: {message['broken']}\n{message['details']}")
    elif "plan" in message:
        missing.update(dict.fromkeys(id for id, _ in message["plan"]))
        if settings.list_only:
            for id, skip in message["plan"]:
                report.say(f"{id}: {skip}" if skip else id)
    else:
        outcome = Outcome.from_json(message["outcome"])
        missing.pop(outcome.id, None)
        outcomes.append(outcome)
        report.say(report.line(outcome))
        if outcome.outcome in BAD:
            report.say(report.failure(outcome))


if __name__ == "__main__":
    sys.exit(main())
