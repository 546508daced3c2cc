"""The command: options, files, summary."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from hccl_like import _dumps, _tables
from hccl_like.trace import _clocks, _matching, _profiles
from hccl_like.trace._tracks import Tracks

COLUMNS = ("rank", "clock us", "spread us", "by calls", "calls", "waited ms", "kept others waiting ms")


def main(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="hccl-like trace",
        description="Merges the ranks' flight-recorder dumps, and their torch.profiler traces if given, into one file for "
        "ui.perfetto.dev or chrome://tracing: on one clock, with who waited for whom.",
        epilog="example: hccl-like trace /tmp/traces -o job.json; hccl-like trace trace_0 trace_1 --profile p0.json p1.json -o job.json. "
        "The exit code is 0 if all ranks are in it on one clock, 1 if not, 2 if nothing was written.",
    )
    parser.add_argument("dump", nargs="+", help="a dump whose name ends in its rank, or a folder of them")
    parser.add_argument("--profile", nargs="+", default=[], metavar="FILE", help="traces that torch.profiler exported (json, json.gz)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the trace to write")
    parser.add_argument("--json", action="store_true", help="the summary as JSON on standard output")
    options = parser.parse_args(argv)
    try:
        dumps = _dumps.read_all(options.dump)
        profiles = [_profiles.read(path) for path in options.profile]
        if not any(dump.records for dump in dumps):
            raise _dumps.Unreadable("there is no record of any call in these dumps")
        summary = merge(dumps, profiles, options.output)
    except (_dumps.Unreadable, OSError) as error:
        print(f"nothing is written: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(summary, indent=1))
    else:
        _show(summary)
    return 1 if summary["problems"] else 0


def merge(dumps: list[_dumps.Dump], profiles: list[_profiles.Profile], output: str) -> dict:
    """Writes the trace; returns what was found."""
    ranks = [dump.rank for dump in dumps]
    calls = _matching.calls(dumps)
    clocks = _clocks.align(ranks, calls)
    problems = list(_problems(dumps, profiles, clocks))

    def aligned(rank: int, time: int) -> int:
        return time + (clocks[rank].offset if rank in clocks else 0)

    firsts = [aligned(record.rank, record.created) for dump in dumps for record in dump.records]
    firsts += [aligned(profile.rank, begin) for profile in profiles if (begin := profile.begin()) is not None]
    origin, links, processes = min(firsts), itertools.count(1), _profiles.processes()
    tracks = Tracks(dumps, calls, clocks, origin, links)
    events = list(tracks.events())
    for profile in profiles:
        events += profile.moved(aligned(profile.rank, -origin), processes, links)
    with open(output, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events, "displayTimeUnit": "ms", "baseTimeNanoseconds": origin}, file)
    return {
        "output": str(Path(output)),
        "ranks": [{
            "rank": dump.rank, "calls": len(dump.records), "clock_us": clocks[dump.rank].offset / 1000,
            "spread_us": clocks[dump.rank].spread / 1000, "aligned_by_calls": clocks[dump.rank].calls,
            "waited_us": tracks.waiting[dump.rank].waited / 1000, "kept_others_waiting_us": tracks.waiting[dump.rank].kept / 1000,
        } for dump in dumps],
        "profiles": [profile.path for profile in profiles], "problems": problems,
    }  # fmt: skip


def _problems(dumps: list[_dumps.Dump], profiles: list[_profiles.Profile], clocks: dict[int, _clocks.Clock]) -> Iterator[str]:
    known = {dump.rank for dump in dumps}
    missing = sorted({rank for dump in dumps for group in dump.groups.values() for rank in group.ranks} - known)
    if missing:
        yield f"there is no dump of rank {', '.join(map(str, missing))}"
    for rank, clock in clocks.items():
        if clock.calls == 0 and len(clocks) > 1:
            yield f"rank {rank} ended no call together with another rank, so its clock is taken as it is"
    for profile in profiles:
        if profile.rank not in known:
            yield f"{profile.path}: there is no dump of rank {profile.rank}, so its clock is taken as it is"


def _show(summary: dict) -> None:
    ranks = summary["ranks"]
    slowest = max(ranks, key=lambda rank: rank["kept_others_waiting_us"])
    kept = slowest["kept_others_waiting_us"]
    who = f"rank {slowest['rank']} kept others waiting most, {kept / 1000:.1f} ms" if kept else "no rank waited for another"
    print(f"{who}; {sum(rank['calls'] for rank in ranks)} calls of {len(ranks)} ranks are in {summary['output']}\n")
    _tables.show("ranks", COLUMNS, [
        (str(rank["rank"]), f"{rank['clock_us']:+.1f}", f"{rank['spread_us']:.1f}", str(rank["aligned_by_calls"]), str(rank["calls"]),
         f"{rank['waited_us'] / 1000:.1f}", f"{rank['kept_others_waiting_us'] / 1000:.1f}") for rank in ranks
    ])  # fmt: skip
    for problem in summary["problems"]:
        print(f"problem: {problem}", file=sys.stderr)
