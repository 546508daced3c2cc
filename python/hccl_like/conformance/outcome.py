"""What became of one test, as it travels from the test's process to the report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

PASS, FAIL, SKIP, XFAIL, XPASS = "pass", "fail", "skip", "xfail", "xpass"
BAD = (FAIL, XPASS)


@dataclass
class Rank:
    """One rank of a test; a negative exit code is the signal that ended it, none means that it did not end."""

    rank: int
    exit_code: int | None = None
    error: str = ""
    output: str = ""


@dataclass
class Outcome:
    """`id` is suite.Class.test; `reason` is one line, `details` what a person reads to find the fault."""

    id: str
    outcome: str
    reason: str = ""
    details: str = ""
    seconds: float = 0.0
    ranks: list[Rank] = field(default_factory=list)
    # The conditions upstream puts before the test, as "kind: reason"; those of kind `name` were lifted.
    gates: list[str] = field(default_factory=list)

    @property
    def suite(self) -> str:
        return self.id.rsplit(".", 2)[0]

    @property
    def class_name(self) -> str:
        return self.id.rsplit(".", 2)[1]

    @property
    def test(self) -> str:
        return self.id.rsplit(".", 2)[2]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Outcome:
        ranks = [Rank(**rank) for rank in fields.pop("ranks", [])]
        return cls(**fields, ranks=ranks)


def count(outcomes: list[Outcome]) -> dict[str, int]:
    """How many tests ended each way; every way is named, also with none."""
    return {way: sum(outcome.outcome == way for outcome in outcomes) for way in (PASS, FAIL, SKIP, XFAIL, XPASS)}
