#!/usr/bin/env python3
"""Faults on purpose: ranks are killed, stopped, replaced, visited by strangers and made to disagree, and what becomes of the
others is held against what must hold. Exits with 1 if anything hangs, dies, stays silent or comes too late. See README.md."""

import argparse
import contextlib
import json
import sys
from pathlib import Path

from hccl_chaos import faults, intruders, mismatches
from hccl_chaos.churn import churn

CASES = {case.name: case for case in [*faults.CASES, *mismatches.CASES, *intruders.CASES]}


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("cases", nargs="*", metavar="CASE", help="some of the cases; all if none is given (--list)")
    add("--list", action="store_true", help="print the cases and leave")
    add("--timeout", type=float, default=6, help="seconds that a call may take (6)")
    add("--churn", type=float, default=30, metavar="SECONDS", help="how long ranks are killed and replaced (30; 0: not)")
    add("--patience", type=float, default=1, metavar="FACTOR", help="by which limits in time are raised on a busy machine (1)")
    add("--seed", type=int, default=1, help="of the churn (1)")
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
    results = [_try(CASES[name], args) for name in args.cases or CASES]
    if args.churn and not args.cases:
        figures, problems = churn(args.churn, 4, args.timeout, args.backend, args.seed, args.patience)
        _say("churn", "; ".join(f"{what} {value:.3g}" for what, value in figures.items()), problems)
        results.append({"case": "churn", "figures": figures, "problems": problems})
    bad = sum(bool(result["problems"]) for result in results)
    print(f"{len(results) - bad} of {len(results)} hold")
    if args.json:
        Path(args.json).write_text(json.dumps({"backend": args.backend, "results": results}, indent=1) + "\n")
    return 1 if bad else 0


def _try(case, args) -> dict:
    outcomes, problems = case.try_it(args.timeout, args.backend, args.patience)
    slowest = max((outcome.seconds for rank, outcome in enumerate(outcomes) if rank not in case.victims), default=0)
    _say(case.name, f"{case.what}: the last after {slowest:.2f} s", problems)
    return {"case": case.name, "outcomes": [vars(outcome) for outcome in outcomes], "problems": problems}


def _say(name: str, what: str, problems: list[str]) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(f"{'FAILS' if problems else 'holds'}  {name:24}{what}", flush=True)
        for problem in problems:
            print(f"       {problem}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
