"""What a check is, and how it says what it found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass

YES, NO, BROKEN = "yes", "no", "broken"


@dataclass
class Row:
    """What one check found: `state` is yes, no (not offered) or broken (offered, and wrong)."""

    id: str
    what: str
    state: str
    # What was seen; empty if there is nothing to add.
    seen: str
    # What follows from the state.
    meaning: str
    output: str = ""

    def to_json(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class Check:
    id: str
    what: str
    run: Callable
    # What it is good for, and what happens without it.
    gives: str
    without: str
    # Checks that must have found "yes" for this one to make sense.
    needs: tuple[str, ...]

    def row(self, state: str, seen: str, output: str = "") -> Row:
        return Row(self.id, self.what, state, seen, self.gives if state == YES else self.without, output)

    def row_without(self, id: str) -> Row:
        """What follows is told where it is missing."""
        return Row(self.id, self.what, NO, f"needs {id}", "")


class Missing(Exception):
    """The device does not offer this."""


CHECKS: list[Check] = []


def check(id: str, what: str, *, gives: str = "", without: str, needs: tuple[str, ...] = ()):
    """Declares a check: a function of a Device. It returns a remark or nothing if all is well, raises Missing if the
    device does not offer this, and anything else if it does and is wrong."""

    def declare(function: Callable) -> Callable:
        CHECKS.append(Check(id, what, function, gives, without, needs))
        return function

    return declare


@contextlib.contextmanager
def offered():
    """What fails inside is not offered by the device: torch's default for a missing feature is to throw."""
    try:
        yield
    except Missing:
        raise
    except Exception as error:
        raise Missing(first_line(error)) from error


def first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def expect(condition: bool, sentence: str) -> None:
    """A claim about the device; `sentence` says what is wrong with it."""
    if not condition:
        raise AssertionError(sentence)
