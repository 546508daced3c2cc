"""Pictures of a schedule, as SVG: of its rounds, and of its slices on the cost model's clock. For ``hccl-like explain``."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Told apart by those who see no difference between red and green, too; with dark text on each.
COLOURS = ("#8ecae6", "#ffb703", "#b5e48c", "#f4a6b7", "#cdb4db", "#e9c46a", "#a3b8cc", "#d4a373")
INK, FAINT, ROW = "#1d2733", "#c6ced6", 22

Use = tuple[int, bool, int, int, int, float, float]  # as _C.plan() tells it


class Step(NamedTuple):
    """One step of the text form."""

    kind: str  # send, recv or local
    peer: int
    chunks: str  # of the payload, or of scratch memory
    label: str


_CHUNKS = r"(\w+\[[\d.]+\])"
_FORMS = (
    (re.compile(rf"send {_CHUNKS}->(\d+)"), lambda m: Step("send", int(m[2]), m[1], f"send {m[1]} to {m[2]}")),
    (re.compile(rf"recv {_CHUNKS}<-(\d+)"), lambda m: Step("recv", int(m[2]), m[1], f"{m[1]} = received from {m[2]}")),
    (re.compile(rf"recv_reduce {_CHUNKS}\+<-(\d+) to {_CHUNKS}"),
     lambda m: Step("recv", int(m[2]), m[3], f"{m[3]} = {m[1]} + received from {m[2]}")),
    (re.compile(rf"copy {_CHUNKS} to {_CHUNKS}"), lambda m: Step("local", -1, m[2], f"{m[2]} = {m[1]}")),
    (re.compile(rf"reduce (\S+) to {_CHUNKS}"), lambda m: Step("local", -1, m[2], f"{m[2]} = {m[1].replace('+', ' + ')}")),
)  # fmt: skip


def rounds_of(text: str) -> list[list[Step]]:
    """The rounds of one rank's schedule in the text form of Schedule::to_string()."""
    return [[_step(step) for step in re.split(r"  +", line.split(": ", 1)[1]) if step != "idle"] for line in text.splitlines()]


def _step(text: str) -> Step:
    for pattern, make in _FORMS:
        if match := pattern.fullmatch(text):
            return make(match)
    raise ValueError(f"this is no step of a schedule: {text}")


def schedule_svg(title: str, texts: Sequence[str]) -> str:
    """Ranks as columns, rounds from top to bottom, messages as arrows, steps in the colour of their chunk."""
    ranks = [rounds_of(text) for text in texts]
    widest = max((len(step.label) for rounds in ranks for steps in rounds for step in steps), default=0)
    width = max(120, 7 * widest + 40)
    drawing = Drawing(70 + width * len(ranks))
    drawing.text(12, 22, title, bold=True)
    for rank in range(len(ranks)):
        drawing.text(_middle(rank, width), 46, f"rank {rank}", bold=True, anchor="middle")
    top = 58.0
    for number in range(max(map(len, ranks))):
        top = _draw_round(drawing, number, [rounds[number] if number < len(rounds) else [] for rounds in ranks], top, width)
    return drawing.finish(top)


def _middle(rank: int, width: int) -> float:
    return 70 + width * (rank + 0.5)


def _draw_round(drawing: Drawing, number: int, ranks: list[list[Step]], top: float, width: int) -> float:
    """Sends, then arrows, then receives and what a rank does alone. Returns the lower edge."""
    sends = [[step for step in steps if step.kind == "send"] for steps in ranks]
    others = [sorted((step for step in steps if step.kind != "send"), key=lambda step: step.kind, reverse=True) for steps in ranks]
    arrows = top + 6 + ROW * max(map(len, sends))
    boxes = arrows + (24 + 10 * max(map(len, sends)) if any(sends) else 0)
    bottom = boxes + ROW * max(map(len, others)) + 8
    drawing.line(12, bottom, drawing.width - 12, bottom, FAINT)
    drawing.text(12, (top + bottom) / 2 + 4, f"round {number}")
    for rank, steps in enumerate(sends):
        for row, step in enumerate(steps):
            met = _row(others[step.peer], rank, sum(earlier.peer == step.peer for earlier in steps[:row]))
            receives = sum(other.kind == "recv" for other in others[step.peer])
            drawing.box(_middle(rank, width) - width / 2 + 8, top + 6 + ROW * row, width - 16, step)
            drawing.arrow(_spread(rank, row, len(steps), width), arrows - 2, _spread(step.peer, met, receives, width), boxes)
    for rank, steps in enumerate(others):
        for row, step in enumerate(steps):
            drawing.box(_middle(rank, width) - width / 2 + 8, boxes + ROW * row, width - 16, step)
    return bottom


def _spread(rank: int, row: int, rows: int, width: int) -> float:
    """Where an arrow meets a rank's boxes: that of the first row at the left."""
    return _middle(rank, width) + (width - 16) * ((row + 1) / (rows + 1) - 0.5)


def _row(steps: list[Step], sender: int, place: int) -> int:
    """The place among the receives of the one that meets the sender's send number ``place`` to this rank."""
    receives = [step for step in steps if step.kind == "recv"]
    return [row for row, step in enumerate(receives) if step.peer == sender][place]


def timeline_svg(title: str, ranks: int, uses: Iterable[Use]) -> str:
    """What each rank sends and receives, in the colour of its slice, with the number of the round; time goes to the right."""
    uses = list(uses)
    end = max((finish for *_, finish in uses), default=0.0)
    left, right, lane = 130, 1040, 30
    drawing = Drawing(right + 50)
    scale = (right - left) / (end or 1)
    drawing.text(12, 22, title, bold=True)
    slices = sorted({use[3] for use in uses})
    for number in slices:
        drawing.rectangle(left + 90 * (number % 10), 34 + 20 * (number // 10), 14, 14, colour_of(number))
        drawing.text(left + 90 * (number % 10) + 20, 46 + 20 * (number // 10), f"slice {number}")
    top = 60 + 20 * (max(slices, default=0) // 10)
    for rank in range(ranks):
        base = top + rank * (2 * lane + 14)
        drawing.text(12, base + lane + 4, f"rank {rank}", bold=True)
        for row, name in enumerate(("sends", "receives")):
            drawing.text(left - 62, base + lane * row + 19, name)
            drawing.line(left, base + lane * (row + 1), right, base + lane * (row + 1), FAINT)
        for _, out, _, number, round_, begin, finish in (use for use in uses if use[0] == rank):
            x, wide = left + begin * scale, (finish - begin) * scale
            drawing.rectangle(x, base + (3 if out else lane + 3), wide, lane - 6, colour_of(number))
            if wide > 12:
                drawing.text(x + wide / 2, base + (19 if out else lane + 19), str(round_), anchor="middle")
    bottom = top + ranks * (2 * lane + 14) + 6
    drawing.line(left, bottom, right, bottom, INK)
    for tick in range(5):
        x = left + (right - left) * tick / 4
        drawing.line(x, bottom, x, bottom + 5, INK)
        drawing.text(x, bottom + 20, f"{end * tick / 4:.0f} us", anchor="middle")
    return drawing.finish(bottom + 26)


def colour_of(number: int) -> str:
    """The colour of a chunk or a slice."""
    return COLOURS[number % len(COLOURS)]


class Drawing:
    """An SVG that is written from top to bottom, on white ground."""

    def __init__(self, width: float) -> None:
        self.width = width
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, bold: bool = False, anchor: str = "start") -> None:
        """One line, whose baseline is at y."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{html.escape(text)}</text>')

    def line(self, x: float, y: float, to_x: float, to_y: float, colour: str) -> None:
        """A thin line."""
        self._parts.append(f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="{colour}"/>')

    def rectangle(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """With round corners."""
        self._parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3" fill="{colour}" stroke="#fff"/>')

    def box(self, x: float, y: float, width: float, step: Step) -> None:
        """A step, in the colour of its chunk."""
        self.rectangle(x, y, width, ROW - 4, _chunk_colour(step))
        self.text(x + width / 2, y + 13, step.label, anchor="middle")

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """A message."""
        self._parts.append(f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y - 4:.1f}" stroke="#52606d" stroke-width="1.5" marker-end="url(#head)"/>')

    def finish(self, height: float) -> str:
        """The file's text."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:.0f} {height + 8:.0f}" width="{self.width:.0f}" '
            f'font-family="sans-serif" font-size="12" fill="{INK}">\n'
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#52606d"/></marker></defs>\n'
            f'<rect width="{self.width:.0f}" height="{height + 8:.0f}" fill="#fff"/>\n' + "\n".join(self._parts) + "\n</svg>\n"
        )


def _chunk_colour(step: Step) -> str:
    """Scratch memory is grey: its numbers are no chunks."""
    number = re.search(r"\d+", step.chunks)
    return "#e4e7eb" if step.chunks.startswith("scratch") or number is None else colour_of(int(number[0]))
