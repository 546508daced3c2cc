"""Time and bus bandwidth over size, for the results of one run or of several.

    python -m hccl_like.bench.plot -o all.png a.json b.json
"""

import argparse
import json
import sys
from pathlib import Path

from .output import headline, readable


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", help="files that -J wrote")
    parser.add_argument("-o", "--output", default="bench.png", help="the picture (%(default)s)")
    args = parser.parse_args(argv)
    draw([json.loads(Path(name).read_text()) for name in args.results], args.output)
    print(f"wrote {Path(args.output).resolve()}")
    return 0


def series(record: dict):
    """(label, sizes, microseconds, busbw) for every backend in a record."""
    config = record["config"]
    rows = [(row, best) for row in record["results"] if row["size"] and (best := headline(row))]
    where = f"{config['collective']}, {config['ranks']} x {config['device']}"
    sizes = [row["size"] for row, _ in rows]
    yield (f"{config['backend']}: {where}", sizes, [b["time_us"] for _, b in rows], [b["busbw"] for _, b in rows])
    theirs = [(row["size"], b) for row, b in rows if b.get("reference_us")]
    if theirs:
        yield (f"{config['compare']}: {where}", [size for size, _ in theirs], [b["reference_us"] for _, b in theirs],
               [b["busbw"] * b["time_us"] / b["reference_us"] for _, b in theirs])


def draw(records: list[dict], target: str):
    """Writes the picture; returns the figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for record in records:
        for label, sizes, times, bandwidths in series(record):
            left.plot(sizes, times, marker="o", markersize=4, label=label)
            right.plot(sizes, bandwidths, marker="o", markersize=4, label=label)
    left.set(ylabel="median time, us", yscale="log", title="Time")
    right.set(ylabel="busbw, GB/s", title="Bus bandwidth")
    ticks = sorted({row["size"] for record in records for row in record["results"] if row["size"]})
    ticks = ticks[:: -(-len(ticks) // 14) or 1]  # more would not be readable
    # Plain numbers, several a decade where there are few decades: not powers of ten.
    left.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    left.yaxis.set_major_formatter(ticker.FuncFormatter(lambda time, _: f"{time:,.10g}"))
    left.yaxis.set_minor_formatter(ticker.NullFormatter())
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [readable(size) for size in ticks], rotation=45, ha="right")
        axes.minorticks_off()
        axes.set_xlabel("size")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    environment = records[0]["environment"]
    machine = f"{environment['processor']}, {environment['cores']} cores, torch {environment['torch']}"
    figure.suptitle(machine, fontsize=9)
    figure.savefig(target, dpi=120)
    pyplot.close(figure)
    return figure


if __name__ == "__main__":
    sys.exit(main())
