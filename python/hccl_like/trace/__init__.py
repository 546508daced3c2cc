"""``hccl-like trace``: one picture of all ranks' calls on one clock, for Perfetto or chrome://tracing (docs/trace.md)."""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Writes the trace: 0 all is in it, 1 a clock or a dump is missing, 2 nothing is written."""
    from hccl_like.trace import _command

    return _command.main(argv)
