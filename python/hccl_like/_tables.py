"""Tables for a terminal: with rich where it is installed, as plain columns elsewhere and when the output is piped."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints one table. The last column may be long: rich wraps it, the plain form leaves it as it is."""
    if sys.stdout.isatty() and importlib.util.find_spec("rich"):
        _show_rich(title, columns, rows)
    else:
        print(plain(title, columns, rows))


def plain(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table as text; ends with an empty line."""
    widths = [max(len(row[column]) for row in [columns, *rows]) for column in range(len(columns))]
    lines = [title]
    if any(columns):
        lines.append("  " + _line(columns, widths))
    lines += ["  " + _line(row, widths) for row in rows]
    return "\n".join(lines) + "\n"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def _show_rich(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console().print(table)
