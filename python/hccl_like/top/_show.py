"""Draws views: in place on a terminal that rich can draw on, as plain lines elsewhere."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator

from hccl_like import _tables
from hccl_like.top._view import Link, Row, View

_COLUMNS = ("rank", "host", "pid", "group", "calls/s", "bytes/s", "in calls", "waited", "in flight", "waits for", "errors")
_LINKS = ("rank", "peer", "transport", "messages/s", "bytes/s sent", "bytes/s received", "reconnected")
_MOST_LAGGING = 4
_MOST_LINKS = 8


def show(views: Iterator[View], live: bool) -> None:
    """Until the views end. `live`: each in the place of the one before, on a terminal."""
    if live and sys.stdout.isatty() and importlib.util.find_spec("rich"):
        _show_live(views)
        return
    for number, view in enumerate(views):
        print(("\n" if number else "") + text(view), end="", flush=True)


def text(view: View) -> str:
    """The view as plain lines."""
    table = _tables.plain(title(view), columns(view), [cells(row, view) for row in view.rows])
    busy = busiest(view)
    links = [_tables.plain(links_title(view), _LINKS, [link_cells(link) for link in busy]).rstrip("\n")] if busy else []
    return "\n".join([view.headline, table.rstrip("\n"), *links, *footer(view)]) + "\n"


def title(view: View) -> str:
    here = len({row.rank for row in view.rows})
    return f"job {view.job}: {here} of {view.size} ranks have made calls here; the last {view.seconds:.1f} s"


def columns(view: View) -> tuple[str, ...]:
    return tuple(column for column in _COLUMNS if column != "host" or _has_hosts(view))


def _has_hosts(view: View) -> bool:
    return len({row.host for row in view.rows}) > 1


def cells(row: Row, view: View) -> tuple[str, ...]:
    flight = f"{row.running}, {row.latest}, {row.running_s:.1f} s" if row.running else "-"
    waits = " ".join(map(str, row.waits_for[:4])) + (" ..." if len(row.waits_for) > 4 else "")
    return (str(row.rank), *([row.host] if _has_hosts(view) else []), str(row.pid), row.group, f"{row.calls_per_s:,.0f}", amount(row.bytes_per_s), f"{row.in_calls:.0%}",
            f"{row.waited:.0%}", flight, waits or "-", str(row.errors))  # fmt: skip


def busiest(view: View) -> list[Link]:
    """The connections with messages in the interval, the most bytes first."""
    used = [link for link in view.links if link.messages_per_s > 0]
    return sorted(used, key=lambda link: -(link.sent_bytes_per_s + link.received_bytes_per_s))[:_MOST_LINKS]


def links_title(view: View) -> str:
    used = sum(link.messages_per_s > 0 for link in view.links)
    return f"{used} connections carry messages" + (f"; the {_MOST_LINKS} with the most bytes" if used > _MOST_LINKS else "")


def link_cells(link: Link) -> tuple[str, ...]:
    return (str(link.rank), str(link.peer), link.transport, f"{link.messages_per_s:,.0f}", amount(link.sent_bytes_per_s),
            amount(link.received_bytes_per_s), str(link.reconnected))  # fmt: skip


def footer(view: View) -> list[str]:
    lines = []
    lag = [f"rank {rank} {part:.0%}" for rank, part in view.lag[:_MOST_LAGGING] if part >= 0.01]
    if lag:
        lines.append("waited for most: " + ", ".join(lag))
    lines += view.notes
    if view.elsewhere:
        lines.append(f"{_spans(view.elsewhere)} of {view.size} ranks not on this host, or of another user: "
                     "hccl-like top --all-hosts shows those of other hosts")  # fmt: skip
    return lines


def amount(number: float) -> str:
    """1,234,567 as "1.2 M"."""
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.0f}" if not unit else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} T"


def _spans(ranks: list[int]) -> str:
    """"ranks 0-3, 8"."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(f"{a}-{b}" if a < b else str(a) for a, b in spans)


def _show_live(views: Iterator[View]) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    with Live(screen=False, auto_refresh=False) as screen:
        for view in views:
            table = Table(title=title(view), title_justify="left")
            for column in columns(view):
                table.add_column(column, justify="left" if column in ("host", "group", "in flight", "waits for") else "right")
            for row in view.rows:
                table.add_row(*(Text(cell) for cell in cells(row, view)), style="bold red" if row.rank in view.slow else "")
            parts = [table]
            if busy := busiest(view):
                links = Table(title=links_title(view), title_justify="left")
                for column in _LINKS:
                    links.add_column(column, justify="left" if column == "transport" else "right")
                for link in busy:
                    links.add_row(*(Text(cell) for cell in link_cells(link)))
                parts.append(links)
            head = Text(view.headline, style="bold red" if view.slow else "bold green")
            screen.update(Group(head, *parts, *(Text(line) for line in footer(view))), refresh=True)
