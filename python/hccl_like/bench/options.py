"""The command line: nccl-tests' flags, and a few of our own with long names only."""

import argparse

from .baseline import PASSES
from .collectives import COLLECTIVES
from .types import ALIASES, REDUCTIONS, TYPES, type_named

UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def size(text: str) -> int:
    """Bytes, with K, M or G for powers of 1024: `8`, `64K`, `1G`, `16MiB`."""
    number = text.strip().upper().removesuffix("IB").removesuffix("B") or text
    unit = number[-1:] if number[-1:] in "KMG" else ""
    digits = number.removesuffix(unit)
    if not digits.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no size: write 8, 64K, 16M or 1G")
    return int(digits) * UNITS[unit]


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="hccl-like bench",
        description="Collectives through torch.distributed, measured as nccl-tests does. It starts -g ranks itself, or is started on "
        "all ranks: torchrun ... -m hccl_like.bench COLLECTIVE. With --replay it makes the calls of a job again: hccl-like bench --replay --help.",
        epilog="example: hccl-like bench all_reduce -g 4 -b 8 -e 64M --compare gloo. The exit code is 0 if all is right, 1 if a result "
        "was wrong or a call refused, 2 if nothing was measured, 3 if a row has become slower than the baseline.")
    add = parser.add_argument
    add("collective", choices=COLLECTIVES, metavar="COLLECTIVE", help=", ".join(COLLECTIVES))
    add("-g", "--nproc", type=int, default=2, help="ranks to start when there is no torchrun (2)")
    add("-b", "--minbytes", type=size, default=8, help="smallest size; after 0 comes one element (8)")
    add("-e", "--maxbytes", type=size, default=size("64M"), help="largest size (64M)")
    add("-i", "--stepbytes", type=size, help="add this much from row to row, instead of -f")
    add("-f", "--stepfactor", type=int, default=8, help="multiply by this from row to row (8)")
    add("-n", "--iters", type=int, default=20, help="timed iterations (20)")
    add("-w", "--warmup_iters", type=int, default=5, help="untimed iterations before them (5)")
    add("-m", "--agg_iters", type=int, default=1, help="operations outstanding together in an iteration (1)")
    add("-c", "--check", type=int, default=1, help="check the results this many times per row, 0 for never (1)")
    add("-o", "--op", choices=(*REDUCTIONS, "all"), default="sum", help="reduction (sum)")
    add("-d", "--datatype", choices=(*TYPES, *ALIASES, "all"), default="float", metavar="TYPE",
        help=", ".join(TYPES) + ", all (float)")
    add("-r", "--root", default="0", help="root of rooted collectives, or all (0)")
    add("-a", "--average", type=int, choices=range(4), default=1,
        help="time reported: 0 of rank 0, 1 average of the ranks, 2 least, 3 greatest (1)")
    add("-z", "--blocking", type=int, choices=(0, 1), default=1,
        help="1: wait after every iteration; 0: issue all iterations, wait at the end, report the mean (1)")
    add("-J", "--json", metavar="FILE", help="write everything to a JSON file")
    add("--csv", metavar="FILE", help="write the rows to a CSV file")
    add("--markdown", metavar="FILE", help="append the rows as a Markdown table")
    add("--plot", metavar="PNG", help="draw time and bandwidth over size")
    add("--device", default="cpu", help="cpu, sim, or another accelerator that torch knows (cpu)")
    add("--backend", default="hccl-like", help="the backend that is measured (hccl-like)")
    add("--compare", metavar="BACKEND", help="measure this backend too, both alternating in the same run")
    add("--dirty", action="store_true", help="every rank rewrites its input before every iteration, untimed")
    add("--floor", nargs="?", const="", metavar="PERF", help="show the least time that memory allows, by the C++ benchmark "
        "PERF (the newest under build/)")
    add("--sync", action="store_true", help="synchronous calls (async_op=False); sendrecv has none")
    add("--pin", action="store_true", help="tie rank r to core r, counted round")
    add("--passes", type=int, metavar="N", help="measure all rows N times over; medians count (1; 7 with --baseline)")
    add("--baseline", metavar="FILE", help="an earlier run's -J FILE, made with --passes: says which rows have become slower")
    add("--tolerance", type=float, default=10, metavar="PERCENT", help="how much slower than the baseline is no regression (10)")
    args = parser.parse_args(argv)
    if args.passes is None:
        args.passes = PASSES if args.baseline else 1
    if args.passes < 1:
        parser.error("--passes must be at least 1")
    if args.minbytes > args.maxbytes:
        parser.error(f"-b {args.minbytes} is above -e {args.maxbytes}")
    if args.stepfactor < 2 and not args.stepbytes:
        parser.error("-f must be at least 2")
    if args.iters < 1:
        parser.error("-n must be at least 1")
    return args


def sizes(args) -> list[int]:
    """The sizes of the rows, in bytes: the largest is the one that was asked for, whatever the step."""
    if args.collective == "barrier":
        return [0]
    element = 1 if args.datatype == "all" else type_named(args.datatype).dtype.itemsize
    found, at = [], args.minbytes
    while at <= args.maxbytes:
        found.append(at)
        at = at + args.stepbytes if args.stepbytes else at * args.stepfactor or element
    return found if found[-1] == args.maxbytes else [*found, args.maxbytes]
