"""What was measured, beside what must hold."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

_OF = {"max": max, "median": statistics.median, "min": min}


@dataclass
class Figure:
    """The largest, the middle or the smallest of some samples, and what it may be at most, or must be at least."""

    goal: str
    limit: float
    samples: list[float] = field(default_factory=list)
    unit: str = "s"
    of: str = "max"
    at_least: bool = False

    @property
    def value(self) -> float:
        return _OF[self.of](self.samples) if self.samples else math.nan

    @property
    def holds(self) -> bool:
        """False as well if nothing was measured."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def row(self) -> dict:
        return {"goal": self.goal, "limit": self.limit, "at_least": self.at_least, "of": self.of, "unit": self.unit, "value": self.value,
                "samples": len(self.samples), "holds": self.holds}

    def __str__(self) -> str:
        return f"{self.goal}: {_short(self.value)} {self.unit}, {self.bound()}".replace("  ", " ")

    def bound(self) -> str:
        return f"at {'least' if self.at_least else 'most'} {_short(self.limit)} {self.unit}".rstrip()


@dataclass
class Result:
    """What one try of a case came to."""

    figures: list[Figure] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # what must not be, other than a figure beyond its limit
    outcomes: list[dict] = field(default_factory=list)
    skipped: str = ""  # why it could not be tried here

    def verdict(self) -> str:
        if self.skipped:
            return "SKIP"
        return "FAIL" if self.problems or not all(figure.holds for figure in self.figures) else "PASS"

    def add(self, later: Result) -> None:
        """Takes in what a later try of the same case came to."""
        known = {figure.goal: figure for figure in self.figures}
        for figure in later.figures:
            if figure.goal in known:
                known[figure.goal].samples += figure.samples
            else:
                self.figures.append(figure)
        self.problems += later.problems
        self.outcomes += later.outcomes


def table(results: dict[str, Result]) -> str:
    """Each goal beside its figure. Cases that have no figure have a line of their own."""
    rows = [("case", "goal", "limit", "measured", "")]
    for name, result in results.items():
        if result.skipped:
            rows.append((name, result.skipped, "", "", "SKIP"))
        rows += [(name, figure.goal, figure.bound(), f"{_short(figure.value)} {figure.unit}".rstrip(),
                  "PASS" if figure.holds else "FAIL") for figure in result.figures]
        if result.problems or not (result.figures or result.skipped):
            rows.append((name, "no rank hangs, dies, is wrong or stays silent", "0", str(len(result.problems)),
                         "FAIL" if result.problems else "PASS"))
    return "\n".join(_aligned(rows))


def _aligned(rows: list[tuple]) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def _short(value: float) -> str:
    return f"{value:,.0f}" if value == round(value, 0) and abs(value) < 1e15 else f"{value:.3g}"
