"""Compares a run with an earlier one: which rows have become slower, and which differences are noise.

The two cannot take turns, so each measures its rows in several passes, and a pass is one observation. The ratio of a row is the median
of all ratios of a new pass to an old one (Hodges and Lehmann); its confidence interval is that of the rank-sum test of Mann and Whitney,
which assumes nothing about how times are distributed.
"""

from __future__ import annotations

import functools
import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from .output import FORMS, readable

CONFIDENCE = 0.99
PASSES = 7
_SAME = ("collective", "ranks", "device", "backend", "compare", "op", "sync", "dirty", "blocking", "agg_iters", "average", "pin")
_SAME_MACHINE = ("processor", "cores")


class NotComparable(ValueError):
    """Why there is nothing to compare with."""


@dataclass(frozen=True)
class Row:
    row: str  # "1 MiB float sum in_place"
    time_us: float
    baseline_us: float
    ratio: float  # of the times; above 1 it has become slower
    low: float
    high: float
    verdict: str  # slower, faster, same, unsure


def read(path: str, config: dict, environment: dict) -> dict:
    """The record of an earlier run with this configuration on such a machine."""
    try:
        old = json.loads(Path(path).read_text())
        differ = [f"{name} is {config[name]!r} and was {old['config'].get(name)!r}" for name in _SAME if config[name] != old["config"].get(name)]
        differ += [f"{name} is {environment[name]!r} and was {old['environment'][name]!r}" for name in _SAME_MACHINE
                   if environment[name] != old["environment"][name]]  # fmt: skip
        passes = len(next(row[form]["passes_us"] for row in old["results"] for form in FORMS if row[form]))
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise NotComparable(f"{path} is no file that -J wrote with --passes: {type(error).__name__}: {error}") from error
    if differ:
        raise NotComparable(f"{path} is not comparable: {'; '.join(differ)}")
    if _dropped(config["passes"], passes) == 0:
        raise NotComparable(f"{config['passes']} passes against {passes} in {path} can show no difference with {CONFIDENCE:.0%} confidence: "
                            f"take --passes {PASSES} for both")  # fmt: skip
    return old


def compare(results: list[dict], old: list[dict], tolerance: float) -> list[Row]:
    """The rows that both have. `tolerance`: a ratio up to 1 + tolerance is no regression."""
    known = {_key(row): row for row in old}
    rows = []
    for row in results:
        for form in FORMS:
            before = known.get(_key(row), {}).get(form)
            if row[form] and before:
                ratio, low, high = interval(_observations(row[form]), _observations(before))
                name = " ".join(str(part) for part in (readable(row["size"]), row["type"], row["redop"], form) if part != "none")
                rows.append(Row(name, row[form]["time_us"], before["time_us"], ratio, low, high, judged(low, high, tolerance)))
    if not rows:
        raise NotComparable("it has none of these rows")
    return rows


def judged(low: float, high: float, tolerance: float) -> str:
    bound = 1 + tolerance
    if low > bound:
        return "slower"
    if high < 1 / bound:
        return "faster"
    return "same" if low >= 1 / bound and high <= bound else "unsure"


def interval(new: list[float], old: list[float]) -> tuple[float, float, float]:
    """The ratio of new times to old ones, and the ends of its confidence interval."""
    ratios = sorted(one / other for one in new for other in old)
    dropped = _dropped(len(new), len(old))
    if dropped == 0:
        return statistics.median(ratios), 0.0, float("inf")
    return statistics.median(ratios), ratios[dropped - 1], ratios[-dropped]


def lines(rows: list[Row], path: str) -> list[str]:
    """Each row, then the verdict."""
    told = [f"#   {row.row}: {row.time_us:.2f} us, was {row.baseline_us:.2f}: {row.ratio:.3f} times [{row.low:.3f}, {row.high:.3f}], {row.verdict}"
            for row in rows]  # fmt: skip
    count = {verdict: sum(row.verdict == verdict for row in rows) for verdict in ("slower", "faster", "same", "unsure")}
    verdict = "SLOWER" if count["slower"] else "UNSURE" if count["unsure"] else "OK"
    parts = ", ".join(f"{number} {name}" for name, number in count.items())
    return [*told, f"# Baseline             : {verdict}; of {len(rows)} rows {parts} than {path} ({CONFIDENCE:.0%} confidence)"]


def to_json(rows: list[Row], path: str) -> dict:
    return {"file": path, "confidence": CONFIDENCE, "rows": [asdict(row) for row in rows]}


def merge(rows: list[dict]) -> dict:
    """One row of several passes: medians, and each pass's time."""
    merged = dict(rows[0])
    loads = [row["foreign"] for row in rows if row["foreign"] is not None]
    merged["foreign"] = statistics.median(loads) if loads else None
    for form in FORMS:
        blocks = [row[form] for row in rows]
        merged[form] = _median_block(blocks) if all(blocks) else None
    return merged


def _median_block(blocks: list[dict]) -> dict:
    merged = {name: statistics.median(block[name] for block in blocks) for name, value in blocks[0].items()
              if value is not None and all(block.get(name) is not None for block in blocks)}  # fmt: skip
    for wrong in ("wrong", "reference_wrong"):
        if wrong in blocks[0]:
            merged[wrong] = None if blocks[0][wrong] is None else sum(block[wrong] for block in blocks)
    merged["passes_us"] = [block["time_us"] for block in blocks]
    if all("reference_us" in block for block in blocks):
        merged["reference_passes_us"] = [block["reference_us"] for block in blocks]
    return merged


def _key(row: dict) -> tuple:
    return row["size"], row["type"], row["redop"], row["root"]


def _observations(block: dict) -> list[float]:
    """Times, or with --compare times relative to the other backend's in the same pass: a slower machine slows both."""
    times = block["passes_us"]
    others = block.get("reference_passes_us")
    return [time / other for time, other in zip(times, others)] if others else times


@functools.cache
def _dropped(new: int, old: int) -> int:
    """How many of the ratios to leave out at each end but one: the k-th smallest and the k-th largest bound the interval."""
    counts = _rank_sums(new, old)
    tail, seen, dropped = (1 - CONFIDENCE) / 2 * sum(counts), 0, 0
    for count in counts:
        seen += count
        if seen > tail:
            break
        dropped += 1
    return dropped


@functools.cache
def _rank_sums(new: int, old: int) -> tuple[int, ...]:
    """In how many orders of new and old observations u pairs have the new one above the old one, for u from 0."""
    if new == 0 or old == 0:
        return (1,)
    counts = [0] * (new * old + 1)
    for u, count in enumerate(_rank_sums(new - 1, old)):  # the largest is a new one
        counts[u + old] += count
    for u, count in enumerate(_rank_sums(new, old - 1)):
        counts[u] += count
    return tuple(counts)
