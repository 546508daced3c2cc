"""``hccl-like bench``: collectives through torch.distributed, measured as nccl-tests does (docs/bench.md)."""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Measures one collective: 0 all right, 1 a result or a call was wrong, 2 refused, 3 slower than the baseline."""
    import sys

    from hccl_like.bench import launch

    return launch.main(sys.argv[1:] if argv is None else argv)
