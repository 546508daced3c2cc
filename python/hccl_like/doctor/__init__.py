"""``hccl-like doctor``: whether everything is in order, and what follows from what is not.

Also ``python -m hccl_like.doctor``. What might crash or hang (a device, the ranks of the self test) runs in processes of its
own with a deadline.
"""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Runs the examination; 0 if all is in order, else 1."""
    from hccl_like.doctor import _command

    return _command.main(argv)
