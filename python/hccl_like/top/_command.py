"""The commands top and ps: options, the job that is meant, and the loop."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from hccl_like import _tables
from hccl_like.hang import _processes
from hccl_like.top import _file, _others, _show, _view

_NO_JOB = 2


class _NoJob(Exception):
    """Why no job is shown."""


def top(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="hccl-like top",
        description="Shows what a job does now: calls and bytes a second of every rank and group, what is in flight, who waits "
        "for whom and who comes last. The job is not changed or stopped, and need not have been started for it.",
        epilog="examples: hccl-like top (the job on this host); hccl-like top j4f2a91c0; hccl-like top 710; hccl-like top --all-hosts; hccl-like top --once --json. "
        "The exit code is 0, or 2 if there is no such job. Ctrl-C ends it.",
    )
    parser.add_argument("job", nargs="?", metavar="JOB|PID", help="a job as hccl-like ps names it, or one of its processes")
    parser.add_argument("-n", "--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between two looks (%(default)s)")
    parser.add_argument("--all-hosts", action="store_true", help="ask the ranks of other hosts, too, through a rank of this host")
    parser.add_argument("--once", action="store_true", help="show one interval, then end")
    parser.add_argument("--json", action="store_true", help="one JSON object a line for each interval")
    options = parser.parse_args(argv)
    try:
        _run(options)
    except (_NoJob, _file.Refused) as problem:
        print(f"hccl-like top: {problem}", file=sys.stderr)
        return _NO_JOB
    except KeyboardInterrupt:
        pass
    return 0


def ps(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="hccl-like ps",
        description="Lists the jobs of this host that use hccl-like, with their ranks here.",
        epilog="examples: hccl-like ps; hccl-like ps --json. The exit code is 0 if there is a job, else 1.",
    )
    parser.add_argument("--json", action="store_true", help="as JSON on standard output")
    as_json = parser.parse_args(argv).json
    found, problems = _file.processes()
    jobs = [_about(job, ranks) for job, ranks in _by_job(found).items()]
    if as_json:
        print(json.dumps({"jobs": jobs, "problems": problems}, indent=1))
    elif jobs:
        rows = [(job["job"], f"{len(job['processes'])} of {job['size']}" if job["size"] > 0 else "-", job["started"],
                 " ".join(f"{one['rank']}:{one['pid']}" for one in job["processes"][:8]) + (" ..." if len(job["processes"]) > 8 else ""),
                 job["program"]) for job in jobs]  # fmt: skip
        _tables.show("jobs", ("job", "ranks here", "started", "rank:pid", "program"), rows)
    else:
        print("no job of yours on this host uses hccl-like now")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 0 if jobs else 1


def _about(job: int, ranks: list[_file.Process]) -> dict:
    started = datetime.fromtimestamp(min(one.started_ns for one in ranks) / 1e9)
    return {"job": _view.job_name(job), "size": max(one.size for one in ranks), "started": started.isoformat(" ", "seconds"),
            "program": _program(ranks[0].pid),
            "processes": [{"rank": one.rank, "pid": one.pid, "state": _processes.state(one.pid)} for one in ranks]}  # fmt: skip


def _program(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    text = " ".join(word for word in words if word)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= 80 else text[:77] + "..."


def _by_job(found: list[_file.Process]) -> dict[int, list[_file.Process]]:
    jobs: dict[int, list[_file.Process]] = {}
    for one in found:
        jobs.setdefault(one.job, []).append(one)
    return jobs


def _chosen(wanted: str | None) -> list[_file.Process]:
    """The ranks of the job that is meant. Raises _NoJob."""
    if wanted is not None and wanted.isdigit():
        return _job_of(int(wanted))
    found, problems = _file.processes()
    jobs = {_view.job_name(job): ranks for job, ranks in _by_job(found).items()}
    if wanted is not None:
        jobs = {name: ranks for name, ranks in jobs.items() if name.startswith(wanted)}
    if len(jobs) == 1:
        return next(iter(jobs.values()))
    if not jobs:
        told = "".join(f"\n  {problem}" for problem in problems)
        raise _NoJob((f"there is no job {wanted} on this host; hccl-like ps lists the jobs" if wanted else
                      "no job of yours on this host uses hccl-like now") + told)  # fmt: skip
    listed = "".join(f"\n  {name}: {len(ranks)} ranks, pid {ranks[0].pid}" for name, ranks in jobs.items())
    raise _NoJob(f"several jobs run on this host; name one of them:{listed}")


def _job_of(pid: int) -> list[_file.Process]:
    if not Path(f"/proc/{pid}").exists():
        raise _NoJob(f"there is no process {pid} on this host")
    one = _file.of_process(pid)
    if one is None:
        raise _NoJob(f"process {pid} has no counters that can be read: it is another user's, has made no process group of hccl-like, "
                     "or has destroyed it")  # fmt: skip
    return [other for other in _file.processes()[0] if other.job == one.job] if one.job else [one]


def _looks(job: list[_file.Process], seconds: float, all_hosts: bool) -> Iterator[_view.View]:
    """A view after each interval, until no rank of the job is left on this host."""
    ask = _others.ask if all_hosts else lambda here: ([], {})
    before = [*job, *ask(job)[0]]
    while True:
        time.sleep(seconds)
        here = _again(job)
        if not here:
            return
        others, silent = ask(here)
        now = [*here, *others]
        yield _view.view(before, now, silent)
        before = now


def _again(job: list[_file.Process]) -> list[_file.Process]:
    """The same ranks now, and those that came since."""
    if any(one.job == 0 for one in job):  # in the middle of making their first group
        return [one for one in (_of(one.pid) for one in job) if one is not None]
    return [one for one in _file.processes()[0] if one.job == job[0].job]


def _of(pid: int) -> _file.Process | None:
    with contextlib.suppress(_file.Refused):
        return _file.of_process(pid)
    return None


def _run(options: argparse.Namespace) -> None:
    job = _chosen(options.job)
    looks = _looks(job, options.interval, options.all_hosts)
    if options.once:
        one = next(looks, None)
        if one is None:
            raise _NoJob("the job has ended")
        looks = iter([one])
    if options.json:
        for one in looks:
            print(json.dumps(one.to_json()), flush=True)
    else:
        _show.show(looks, live=not options.once)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no interval; write seconds between 0.05 and 3600")
    return seconds
