#!/usr/bin/env python3
"""Faults on purpose: ranks are killed, stopped, cut off, replaced, visited by strangers, starved and made to disagree. What
becomes of the others is held against what must hold, and a table at the end has each goal beside its figure. Exits with 1 if
anything hangs, dies, stays silent, is wrong or comes too late. See README.md."""

import argparse
import contextlib
import json
import os
import random
import sys
import time
from pathlib import Path

from hccl_chaos import arrivals, faults, impostors, leaks, leftovers, mismatches, partitions, shortages, strangers, survivors
from hccl_chaos.case import Settings
from hccl_chaos.churn import Churn
from hccl_chaos.figure import Result, table

PARTS = (faults, partitions, survivors, mismatches, strangers, arrivals, impostors, shortages, leaks, leftovers)
CASES = {case.name: case for case in [*(case for part in PARTS for case in part.CASES), Churn()]}


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("cases", nargs="*", metavar="CASE", help="some of the cases; all if none is given (--list)")
    add("--list", action="store_true", help="print the cases and leave")
    add("--quick", action="store_true", help="one trial of each case, smaller numbers, and without those that take much memory")
    add("--hours", type=float, default=0, metavar="H", help="again and again in random order for so long (once)")
    add("--timeout", type=float, default=6, help="seconds that a call may take (6)")
    add("--churn", type=float, default=30, metavar="SECONDS", help="how long ranks are killed and replaced in the case churn (30)")
    add("--patience", type=float, default=1, metavar="FACTOR", help="by which limits in time are raised on a busy machine (1)")
    add("--seed", type=int, default=1, help="of the churn and of the order (1)")
    add("--backend", default="hccl-like", help="or gloo, to compare")
    add("-J", "--json", metavar="FILE", help="write everything to a JSON file")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    args = parse(argv)
    if args.list:
        for case in CASES.values():
            print(f"{case.name:24}{case.what}")
        return 0
    if unknown := [name for name in args.cases if name not in CASES]:
        print(f"no such case: {', '.join(unknown)}; --list names them", file=sys.stderr)
        return 2
    # torch's TCPStore asks the name server who its peer is, and would wait five seconds for an answer that got lost.
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
    names = args.cases or [name for name in CASES if CASES[name].quick or not args.quick]
    results = _all(names, args)
    with contextlib.suppress(BrokenPipeError):
        print("\n" + table(results), flush=True)
        count = [result.verdict() for result in results.values()].count
        print(f"{count('PASS')} cases hold, {count('FAIL')} do not, {count('SKIP')} could not be tried", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(_record(results, args), indent=1) + "\n")
    return 1 if any(result.verdict() == "FAIL" for result in results.values()) else 0


def _all(names: list[str], args) -> dict[str, Result]:
    """Once, or for hours; of each case what all of its tries came to."""
    results: dict[str, Result] = {}
    end, chance, seed = time.monotonic() + args.hours * 3600, random.Random(args.seed), args.seed
    while True:
        for name in names:
            settings = Settings(args.timeout, args.patience, args.backend, seed, args.quick, args.churn)
            result = _try(CASES[name], settings)
            results.setdefault(name, Result(skipped=result.skipped)).add(result)
            if args.hours and time.monotonic() > end:
                return results
        if not args.hours:
            return results
        seed += 1
        names = chance.sample(names, len(names))


def _try(case, settings: Settings) -> Result:
    reason = case.needs()
    result = Result(skipped=reason) if reason else case.try_it(settings)
    with contextlib.suppress(BrokenPipeError):
        print(f"{result.verdict()}  {case.name:24}{case.what}{f': {reason}' if reason else ''}", flush=True)
        for line in [*map(str, result.figures), *result.problems]:
            print(f"      {line}", flush=True)
    return result


def _record(results: dict[str, Result], args) -> dict:
    return {
        "backend": args.backend,
        "timeout": args.timeout,
        "patience": args.patience,
        "results": [
            {"case": name, "what": CASES[name].what, "verdict": result.verdict(), "skipped": result.skipped,
             "figures": [figure.row() for figure in result.figures], "problems": result.problems, "outcomes": result.outcomes}
            for name, result in results.items()
        ],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
