"""``hccl-like hang``: who keeps a job waiting, from flight-recorder dumps or from processes of this host (docs/hang.md)."""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Prints the verdict: 0 no hang, 1 a hang and its cause, 2 cannot tell."""
    from hccl_like.hang import _command

    return _command.main(argv)
