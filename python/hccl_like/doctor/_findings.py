"""What an examination found: tables of facts, sentences about what keeps things from working, and hints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from hccl_like import _tables


@dataclass
class Section:
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass
class Findings:
    sections: list[Section] = field(default_factory=list)
    # Something does not work.
    problems: list[str] = field(default_factory=list)
    # Everything works, and could work better.
    hints: list[str] = field(default_factory=list)

    def add(self, title: str, rows: Sequence[Sequence[str]], columns: tuple[str, ...] = ("", "")) -> None:
        if rows:
            self.sections.append(Section(title, columns, [tuple(row) for row in rows]))

    def show(self) -> None:
        for section in self.sections:
            _tables.show(section.title, section.columns, section.rows)

    def to_json(self) -> dict:
        return {**asdict(self), "ok": not self.problems}
