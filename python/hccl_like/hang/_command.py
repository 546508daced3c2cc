"""The command: options, files or processes, output."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time

from hccl_like import _dumps, _tables
from hccl_like.hang import _live, _processes
from hccl_like.hang._verdict import CANNOT_TELL, COLUMNS, Judge, Process, Verdict
from hccl_like.hang._waits import Job


def main(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="hccl-like hang",
        description="Says in one line who keeps a job waiting: from the ranks' flight-recorder dumps, or from the job that runs on "
        "this host.",
        epilog="examples: hccl-like hang /tmp/traces; hccl-like hang trace_0 trace_1; hccl-like hang (the job on this host); "
        "hccl-like hang --pid 710 711. The exit code is 0 without a hang, 1 with a verdict, 2 if it cannot tell.",
    )
    parser.add_argument("dump", nargs="*", help="a dump whose name ends in its rank, or a folder of them")
    parser.add_argument("--pid", type=int, nargs="+", default=[], help="look at these running ranks only")
    parser.add_argument("--after", type=float, default=10.0, metavar="SECONDS",
                        help="a call that has neither ended nor failed hangs after this time (%(default)s)")
    parser.add_argument("--json", action="store_true", help="as JSON on standard output")
    options = parser.parse_args(argv)
    if options.dump and options.pid:
        parser.error("name dumps or --pid, not both")
    hints: list[str] = []
    try:
        if options.dump:
            judge = Judge(Job(_dumps.read_all(options.dump)), {}, options.after)
        else:
            judge, hints = _judge_running(_chosen(options.pid), options.after)
    except (_dumps.Unreadable, ValueError, OSError) as error:
        print(f"cannot tell: {error}", file=sys.stderr)
        return CANNOT_TELL
    verdict = judge.verdict()
    if options.json:
        print(json.dumps({**judge.to_json(verdict), "hints": hints}, indent=1))
    else:
        _show(judge, verdict, hints)
    return verdict.code


def _chosen(pids: list[int]) -> list[_processes.Rank]:
    """The ranks with these ids, or those of the only job of this host."""
    if pids:
        ranks = _processes.named(pids)
        if len({rank.number for rank in ranks}) < len(ranks):
            raise ValueError("two of these processes have the same rank; name those of one job")
        return ranks
    jobs = _processes.jobs()
    if len(jobs) == 1:
        return next(iter(jobs.values()))
    if not jobs:
        raise ValueError("no job on this host uses hccl-like; name its dumps, or its processes with --pid")
    listed = "".join(f"\n  {job or 'a job'}: --pid {' '.join(str(rank.pid) for rank in ranks)}" for job, ranks in jobs.items())
    raise ValueError(f"several jobs run on this host; name the processes of one:{listed}")


def _judge_running(ranks: list[_processes.Rank], seconds: float) -> tuple[Judge, list[str]]:
    dumps, silent = _live.dumps(ranks)
    waits = [wait.record for wait in Job(dumps).waits()]
    if dumps and (waits or silent) and not any(record.has_failed for record in waits):
        # A call under way hangs if it is still there later.
        time.sleep(max(0.0, min([time.time(), *(record.created / 1e9 for record in waits)]) + seconds - time.time()))
        dumps, silent = _live.dumps(ranks)
    stacks, problems = _processes.stacks([rank.pid for rank in ranks if _processes.state(rank.pid) != "has ended"])
    processes = {}
    for rank in ranks:
        frames = stacks.get(rank.pid, [])
        lines = tuple(f"{frame['name']} ({frame['filename']}:{frame['line']})" for frame in frames)
        processes[rank.number] = Process(
            socket.gethostname(), rank.pid, _processes.state(rank.pid), _processes.place(frames), lines)
    return Judge(Job(dumps), processes, seconds, time.time_ns()), silent + problems


def _show(judge: Judge, verdict: Verdict, hints: list[str]) -> None:
    print(verdict.text)
    for line in verdict.details:
        print(f"  {line}")
    print()
    _tables.show("ranks", COLUMNS, judge.rows())
    for rank in verdict.guilty:
        if (process := judge.processes.get(rank)) and process.stack:
            print(f"Python of rank {rank}, innermost first")
            print("\n".join(f"  {frame}" for frame in process.stack) + "\n")
    for hint in hints:
        print(f"hint: {hint}")
