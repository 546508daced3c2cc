#!/usr/bin/env python3
"""Writes the table of numbers in docs/errors.md, made from hccl_like._failures.NUMBERS.

    python docs/site/errors.py
"""

import re
from pathlib import Path

from hccl_like._failures import NUMBERS

PAGE = Path(__file__).parents[1] / "errors.md"
HEAD = "| number | this rank | what to do |\n| --- | --- | --- |\n"


def page() -> str:
    """The page with the table as the package has it now."""
    table = HEAD + "".join(f"| HCCL-LIKE-{number} | {rank} | {remedy} |\n" for number, (rank, remedy) in NUMBERS.items())
    made, times = re.subn(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table, PAGE.read_text(encoding="utf-8"))
    assert times == 1, f"{PAGE} has {times} tables of numbers"
    return made


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
