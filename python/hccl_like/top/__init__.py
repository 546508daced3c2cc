"""``hccl-like top`` and ``hccl-like ps``: what the jobs of this host do now, from the counter files of their ranks (docs/top.md)."""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Shows one job: 0 shown, 2 no such job, or its counters cannot be read."""
    from hccl_like.top import _command

    return _command.top(argv)


def ps(argv: list[str] | None = None) -> int:
    """Lists the jobs of this host: 0 there is one, 1 there is none."""
    from hccl_like.top import _command

    return _command.ps(argv)
