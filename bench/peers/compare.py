#!/usr/bin/env python3
"""compare.py: ours and other libraries, row by row in turns within one run. See ../README.md."""

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "python"))

import contenders  # noqa: E402
import report  # noqa: E402
from contenders import Row  # noqa: E402
from libraries import LIBRARIES, ROOT  # noqa: E402
from requirements import REDUCING, TRANSFERS, verdicts  # noqa: E402
from servers import Refused  # noqa: E402

SIZES = (8, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
CROWDED_SIZES = (8, 1 << 10, 1 << 16, 1 << 20, 1 << 24)
DEFAULT = ["mapped", "ordinary", *(name for name in LIBRARIES if name != "mpich-ucx"), "gloo"]
BETWEEN_HOSTS = ["ordinary", *LIBRARIES, "gloo", "raw"]


def size(text: str) -> int:
    from hccl_like.bench.options import size as parsed

    return parsed(text)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--who", nargs="+", metavar="NAME",
        help=f"mapped, ordinary (ours, by where the buffers lie), {', '.join(LIBRARIES)}, gloo, torch (ours through "
        "torch), fake (torch's backend that does nothing), raw (TCP itself, between hosts)")
    add("--collectives", nargs="+", help="default: all; between hosts all_reduce")
    add("--types", nargs="+", default=["float", "bfloat16"], help="of reductions; transfers are measured as float")
    add("--sizes", nargs="+", type=size, default=list(SIZES), help="bytes of the larger buffer")
    add("--ranks", nargs="+", type=int, default=[2], help="4 and 8 on two cores: all_reduce only")
    add("--hosts", nargs="+", type=int, default=[], metavar="N",
        help="between hosts instead: one rank in each of N network namespaces joined by a bridge (needs root)")
    add("--passes", type=int, default=2)
    add("--perf", type=Path, default=contenders.PERF, help="our C++ benchmark")
    add("--peers", type=Path, default=ROOT / "build" / "peers", help="where the others are installed")
    add("--hold", metavar="COMMAND", help="runs around each row, e.g. to take a lock: starts COMMAND cat, ends its input")
    add("-J", "--json", type=Path, help="write the result file")
    add("--markdown", type=Path, help="write the tables")
    add("--check", action="store_true", help="exit with 1 if something does not hold that must")
    args = parser.parse_args(argv)
    if args.hosts:
        args.ranks, args.types, args.collectives = args.hosts, ["float"], args.collectives or ["all_reduce"]
    args.collectives = args.collectives or ["barrier", *REDUCING, *TRANSFERS]
    args.who = args.who or (BETWEEN_HOSTS if args.hosts else DEFAULT)
    return args


def rows_of(args) -> list[Row]:
    found, cores = [], len(os.sched_getaffinity(0))
    for ranks in args.ranks:
        hosts = ranks if args.hosts else 0
        for collective in args.collectives:
            if ranks > cores and collective != "all_reduce":
                continue
            if collective == "barrier":
                found.append(Row(collective, "float", 0, ranks, hosts))
                continue
            sizes = [size for size in args.sizes if hosts or ranks <= cores or size in CROWDED_SIZES]
            for kind in args.types if collective in REDUCING else ["float"]:
                found += [Row(collective, kind, size, ranks, hosts) for size in sizes]
    return found


@contextmanager
def held(command: str | None):
    if command is None:
        yield
        return
    process = subprocess.Popen([*shlex.split(command), "sh", "-c", "echo; cat"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    try:
        process.stdout.readline()  # it has begun, so it holds what it was to take
        yield
        process.communicate()
    except BaseException:
        process.terminate()
        raise


@contextmanager
def places(args, ranks: int):
    """The hosts of one rank each, if the comparison is between hosts."""
    if not args.hosts:
        yield None
        return
    from hosts import Hosts, why_not

    if reason := why_not():
        sys.exit(reason)
    with Hosts(ranks) as hosts:
        yield hosts


def start(names, ranks, args, hosts) -> tuple[list, dict[str, str]]:
    ready, refused = [], {}
    args.peers.mkdir(parents=True, exist_ok=True)
    for contender in contenders.all_of(names, ranks, args.perf, args.peers, hosts):
        try:
            contender.start()
            ready.append(contender)
        except Refused as reason:
            refused[contender.name] = str(reason)
            print(f"# {contender.name}: left out: {reason}", flush=True)
    return ready, refused


class Comparison:
    def __init__(self, args):
        self._args, self._times = args, {}  # times: (row, name) -> medians of the passes
        self._floors, self._refused, self._wrong = {}, {}, {}

    def run(self) -> list[dict]:
        rows = rows_of(self._args)
        for ranks in self._args.ranks:
            mine = [row for row in rows if row.ranks == ranks]
            with places(self._args, ranks) as hosts:
                ready, refused = start(self._args.who, ranks, self._args, hosts)
                self._refused |= {(row, name): reason for row in mine for name, reason in refused.items()}
                try:
                    self._run(mine, ready)
                except KeyboardInterrupt:
                    print("# interrupted: the rows so far count", flush=True)
                    break
                finally:
                    for contender in ready:
                        contender.stop()
        return [self._record(row) for row in rows if self._of(row, self._times)]

    def _run(self, rows: list[Row], ready: list) -> None:
        for turn in range(self._args.passes):
            for row in rows:
                with held(self._args.hold):
                    for contender in ready:
                        self._measure(row, contender, turn)
                self._tell(row, turn)

    def _measure(self, row: Row, contender, turn: int) -> None:
        key = (row, contender.name)
        if key in self._refused:
            return
        try:
            answer, floor = contender.measure(row, turn == 0)
        except (Refused, subprocess.TimeoutExpired) as reason:
            self._refused[key] = str(reason)
            return
        self._times.setdefault(key, []).append(answer.median)
        self._wrong[key] = self._wrong.get(key, 0) + answer.wrong
        if floor:
            self._floors.setdefault(self._moves(row), []).append(floor)

    @staticmethod
    def _moves(row: Row) -> tuple:
        """What a floor depends on: memory does not know types. It differs by a factor of two from process to process."""
        return row.collective, row.size, row.ranks

    def _of(self, row: Row, kept: dict) -> dict:
        return {name: value for (at, name), value in kept.items() if at == row}

    def _tell(self, row: Row, turn: int) -> None:
        times = ", ".join(f"{name} {report.microseconds(values[-1])}" for name, values in self._of(row, self._times).items())
        print(f"# pass {turn + 1}: {row.collective} {row.type} {row.size} on {row.ranks}: {times}", flush=True)

    def _record(self, row: Row) -> dict:
        passes = self._of(row, self._times)
        floors = self._floors.get(self._moves(row))
        return {**vars(row), "times": {name: statistics.median(values) for name, values in passes.items()},
                "passes": passes, "floor": statistics.median(floors) if floors else None,
                "refused": self._of(row, self._refused), "wrong": self._of(row, self._wrong)}


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def interrupt(*_) -> None:
    raise KeyboardInterrupt


def main(argv: list[str]) -> int:
    args = parse(argv)
    signal.signal(signal.SIGTERM, interrupt)  # or the libraries' processes would stay
    record = {
        "machine": {"processor": processor(), "cores": len(os.sched_getaffinity(0))}, "passes": args.passes,
        "bfloat16": {LIBRARIES[name].title: LIBRARIES[name].bfloat16 for name in args.who if name in LIBRARIES},
        "rows": Comparison(args).run(),
    }
    text = report.markdown(record)
    print(text)
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(text)
    failed = [verdict for verdict in verdicts(record["rows"]) if not verdict.holds]
    return 1 if args.check and failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
