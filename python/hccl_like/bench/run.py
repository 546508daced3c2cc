"""One benchmark from the first line of output to the exit code; every rank runs it."""

from __future__ import annotations

import datetime
import importlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from . import baseline, floor, launch, machine, measure, options, output
from .collectives import COLLECTIVES, Case
from .types import REDUCTIONS, TYPES, allowed, type_named

TIMEOUT = datetime.timedelta(seconds=120)  # of one operation: a benchmark that waits longer is stuck


def pick_device(kind: str) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        raise SystemExit(f"no device '{kind}' here: install its package (for sim: pip install "
                         "--no-build-isolation ./simulator) or use --device cpu")
    index = int(os.environ.get("LOCAL_RANK", 0)) % module.device_count()
    torch.accelerator.set_device_index(index)
    return torch.device(kind, index)


def combine(values: list[float], how: int) -> float:
    """The ranks' times as one: -a."""
    return {0: values[0], 1: sum(values) / len(values), 2: min(values), 3: max(values)}[how]


def describe(group: dist.ProcessGroup, device: torch.device) -> str:
    """What the backend tells about the ways to its peers, if it tells."""
    try:
        links = group._get_backend(device)._info()["links"]
    except (AttributeError, KeyError, RuntimeError):
        return ""
    return ", ".join(sorted({str(link) for link in links if link}))


class Benchmark:
    def __init__(self, args):
        self.args = args
        self.collective = COLLECTIVES[args.collective]
        self.cores = os.sched_getaffinity(0)
        if args.pin:
            cores = sorted(self.cores)
            os.sched_setaffinity(0, {cores[int(os.environ.get("LOCAL_RANK", 0)) % len(cores)]})
        torch.set_num_threads(1)  # the ranks share the cores
        device = pick_device(args.device)
        if args.compare == measure.FAKE:
            importlib.import_module("torch.testing._internal.distributed.fake_pg")
        for backend in (args.backend, args.compare or "gloo"):
            if not dist.is_backend_available(backend):
                raise SystemExit(f"torch knows no backend '{backend}': install its package in this environment (for "
                                 "hccl-like: pip install --no-build-isolation .), or take another")
        store = launch.store()
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group(args.backend, timeout=TIMEOUT, **(
            {"store": store, "rank": rank, "world_size": ranks} if store else {}))
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        # Statistics go over a group of their own, so that a broken backend can't report itself well.
        self.control = dist.new_group(backend="gloo")
        self.subjects = [measure.Subject(args.backend, dist.group.WORLD, device)]
        if args.compare:
            # gloo knows no accelerator: it gets host tensors and is spared the copies.
            where = torch.device("cpu") if args.compare == "gloo" else device
            self.subjects.append(measure.Subject(args.compare, dist.new_group(backend=args.compare), where))
        self.errors = {}  # (backend, message) -> the rows it spoilt
        self.baseline = self.read_baseline() if args.baseline else None

    def config(self) -> dict:
        return {**vars(self.args), "ranks": self.ranks, "transport": describe(dist.group.WORLD, self.subjects[0].device)}

    def read_baseline(self) -> dict | None:
        """On rank 0, whose file it is. All ranks end if there is nothing to compare with."""
        found = None
        problem: list[str | None] = [None]
        if self.rank == 0:
            try:
                found = baseline.read(self.args.baseline, self.config(), machine.environment())
            except baseline.NotComparable as error:
                problem = [str(error)]
        dist.broadcast_object_list(problem, 0, group=self.control)
        if problem[0]:
            if self.rank == 0:
                print(problem[0], file=sys.stderr)
            dist.destroy_process_group()
            raise SystemExit(2)
        return found

    def say(self, text: str) -> None:
        if self.rank == 0:
            print(text, flush=True)

    def start(self) -> dict:
        """Prints the head of the output and returns what it told."""
        args = self.args
        environment = machine.environment()
        config = self.config()
        told = config["transport"]
        self.say(f"# {args.collective}: hccl-like {environment['hccl_like']}, torch {environment['torch']}, "
                 f"Python {environment['python']}")
        self.say(f"# host {environment['host']}, {environment['processor']}, {environment['cores']} cores, kernel "
                 f"{environment['kernel']}")
        self.say(f"# ranks {self.ranks}, backend {args.backend}, device {args.device}"
                 + (f", {told}" if told else "") + f", {environment['threads_per_rank']} torch thread a rank"
                 + (", pinned" if args.pin else "")
                 + (", inputs rewritten before each iteration" if args.dirty else ""))
        if args.compare:
            where = self.subjects[1].device.type
            self.say(f"# compared with {args.compare} on {where} tensors, in turns; gain = its time / ours, above 1 "
                     "ours is faster")
        step = f"{args.stepbytes}(bytes)" if args.stepbytes else f"{args.stepfactor}(factor)"
        self.say(f"# minBytes {args.minbytes} maxBytes {args.maxbytes} step: {step} warmup iters: {args.warmup_iters} "
                 f"iters: {args.iters} agg iters: {args.agg_iters} validation: {args.check}"
                 + (f" passes: {args.passes}" if args.passes > 1 else ""))
        self.say("#")
        for text in output.header(args.compare, args.floor is not None):
            self.say(text)
        return {"config": config, "environment": environment}

    def cases(self):
        """(type, reduction, root) of all rows of one size."""
        args, collective = self.args, self.collective
        kinds = list(TYPES.values()) if args.datatype == "all" else [type_named(args.datatype)]
        ops = list(REDUCTIONS) if args.op == "all" else [args.op]
        roots = range(self.ranks) if args.root == "all" else [int(args.root)]
        for kind in kinds:
            for op in ops if collective.reduces else ["none"]:
                if collective.reduces and not allowed(kind, op):
                    continue
                for root in roots if collective.rooted else [-1]:
                    yield kind, op, root

    def row(self, size: int, kind, op: str, root: int) -> dict:
        """Measures one row on every rank; only rank 0's copy holds everyone's figures."""
        collective = self.collective
        count = collective.count(size // kind.dtype.itemsize, self.ranks)
        case = Case(self.rank, self.ranks, count, kind, op, root, self.subjects[0].device,
                    asynchronous=not self.args.sync)
        load = machine.Load()
        mine: dict = {}
        for form in collective.forms:
            mine[form] = [vars(t) | {"median": t.median(), "p99": t.p99()} if t.times else vars(t)
                          for t in measure.run(collective, case, form, self.subjects, self.args)]
        mine["load"] = load.since()
        everyone: list = [None] * self.ranks
        dist.all_gather_object(everyone, mine, group=self.control)

        elements = collective.size(count, self.ranks)
        row = {"size": elements * kind.dtype.itemsize, "count": count, "type": kind.name, "redop": op, "root": root,
               "out_of_place": None, "in_place": None,
               "foreign": machine.foreign(mine["load"][0], mine["load"][1], sum(e["load"][2] for e in everyone))}
        for form in collective.forms:
            row[form] = self.combined(row["size"], [e[form] for e in everyone])
            for timing, subject in ((t, s) for e in everyone for t, s in zip(e[form], self.subjects)):
                if timing["error"]:
                    spoilt = self.errors.setdefault((subject.name, timing["error"]), [])
                    spoilt += [f"{kind.name} {op}"] if f"{kind.name} {op}" not in spoilt else []
        if self.args.floor is not None:
            self.add_floor(row)
        return row

    def add_floor(self, row: dict) -> None:
        if self.rank == 0:
            for form, least in floor.measure(floor.program(self.args.floor), self.args, row, self.ranks,
                                             self.cores).items():
                if row[form]:
                    row[form]["floor_us"] = least
        dist.barrier(group=self.control)  # the others' next row would take the cores

    def combined(self, size: int, everyone: list) -> dict | None:
        """One form of a row from all ranks' timings: `everyone[rank][subject]`."""
        ours = [timings[0] for timings in everyone]
        if any(t["error"] for t in ours):
            return None
        time_us = combine([t["median"] for t in ours], self.args.average)
        algbw = size / time_us / 1000
        wrong = None if ours[0]["wrong"] is None else sum(t["wrong"] for t in ours)
        result = {"time_us": time_us, "p99_us": combine([t["p99"] for t in ours], self.args.average), "algbw": algbw,
                  "busbw": algbw * self.collective.factor(self.ranks), "wrong": wrong}
        theirs = [timings[1] for timings in everyone] if self.args.compare else []
        if theirs and not any(t["error"] for t in theirs):
            result["reference_us"] = combine([t["median"] for t in theirs], self.args.average)
            result["reference_wrong"] = None if theirs[0]["wrong"] is None else sum(t["wrong"] for t in theirs)
            result["gain"] = result["reference_us"] / time_us
        return result

    def finish(self, record: dict) -> int:
        """Prints the foot, writes the files; returns the exit code."""
        args, rows = self.args, record["results"]
        blocks = [row[form] for row in rows for form in output.FORMS if row[form]]
        record["out_of_bounds"] = sum(b["wrong"] or 0 for b in blocks)
        record["average_bus_bandwidth"] = sum(b["busbw"] for b in blocks) / max(1, len(blocks))
        record["errors"] = [f"{name}: {message} ({', '.join(spoilt)})"
                            for (name, message), spoilt in self.errors.items()]
        for error in record["errors"]:
            self.say(f"# N/A: {error}")
        verdict = "FAILED" if record["out_of_bounds"] else "OK"
        failed = record["out_of_bounds"] > 0 or any(name == args.backend for name, _ in self.errors)
        self.say(f"# Out of bounds values : {record['out_of_bounds']} {verdict}")
        self.say(f"# Avg bus bandwidth    : {record['average_bus_bandwidth']:.5g}")
        theirs = sum(b.get("reference_wrong") or 0 for b in blocks)
        if theirs:
            self.say(f"# Out of bounds values of {args.compare} : {theirs}")
        if self.rank == 0:
            compared = self.hold_against_baseline(record) if self.baseline is not None else 0
            if args.json:
                output.write_json(args.json, record)
            if args.csv:
                output.write_csv(args.csv, rows)
            if args.markdown:
                with open(args.markdown, "a") as target:
                    target.write(output.markdown(record))
            if args.plot:
                from .plot import draw

                draw([record], args.plot)
                self.say(f"# plot                 : {Path(args.plot).resolve()}")
            if not failed:
                return compared
        return 1 if failed else 0

    def hold_against_baseline(self, record: dict) -> int:
        """On rank 0: 3 if a row has become slower, 2 if there is no such row, else 0."""
        path = self.args.baseline
        try:
            rows = baseline.compare(record["results"], self.baseline["results"], self.args.tolerance / 100)
        except baseline.NotComparable as error:
            print(f"{path} is not comparable: {error}", file=sys.stderr)
            return 2
        record["baseline"] = baseline.to_json(rows, path)
        for text in baseline.lines(rows, path):
            self.say(text)
        return 3 if any(row.verdict == "slower" for row in rows) else 0


def run(argv) -> int:
    args = options.parse(argv)
    benchmark = Benchmark(args)
    record = benchmark.start()
    record["results"] = []
    plan = [(size, *case) for case in benchmark.cases() for size in options.sizes(args)]
    passes = [[benchmark.row(*row) for row in plan] for _ in range(args.passes - 1)]
    for number, row in enumerate(plan):
        merged = baseline.merge([*(rows[number] for rows in passes), benchmark.row(*row)])
        record["results"].append(merged)
        benchmark.say(output.line(merged, args.compare, args.floor is not None))
    code = benchmark.finish(record)
    dist.destroy_process_group()
    return code
