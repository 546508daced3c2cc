"""What an error of a group says, as values."""

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"\[HCCL-LIKE-(\d+)\]")
_KINDS = {1: "misuse", 2: "timeout", 3: "peer lost", 4: "aborted", 5: "mismatch", 6: "system", 7: "device", 8: "NaN"}
_CULPRIT = (
    re.compile(r"peer lost \(rank (\d+)\)"),
    re.compile(r"NaN \(rank (\d+)\)"),
    re.compile(r"was aborted on rank (\d+)"),
    re.compile(r"waiting for ranks? (\d+)\b(?!,)"),
)
_HOST = re.compile(r" lost rank \d+ \(([^)]*)\)")
_CALL = re.compile(r"\b(?!call )(?P<operation>\w+) #(?P<sequence>\d+)")
# collectives/call/disagreement.cc: the operation stands there only if both ranks called the same one.
_MISMATCH = re.compile(r"disagree about call #(?P<sequence>\d+)(?:, (?!an unknown call)(?P<operation>\w+))?")


@dataclass(frozen=True)
class Failure:
    """An error as docs/errors.md lists it. What it does not tell is None."""

    number: int
    kind: str  # "timeout", "peer lost", "aborted", "mismatch", "system", "device", "NaN"
    seen_here: bool  # else another rank told of it
    culprit: int | None  # the rank that failed, by its number in the group
    host: str | None  # of a rank that was lost
    operation: str | None  # the call in which it was seen first; None if ranks called different operations
    sequence: int | None  # and its number in the group
    message: str


def failure(error: BaseException | str) -> Failure | None:
    """What `error`, which a call or a wait raised, or its text, says; None if it isn't one of a group of this backend."""
    text = str(error)
    numbered = _NUMBER.search(text)
    if not numbered:
        return None
    number = int(numbered[1])
    culprit = next((found[1] for pattern in _CULPRIT if (found := pattern.search(text))), None)
    host = _HOST.search(text)
    call = _MISMATCH.search(text) or _CALL.search(text)
    return Failure(
        number=number,
        kind=_KINDS.get(number // 100, "system"),
        seen_here=number % 10 != 2,
        culprit=None if culprit is None else int(culprit),
        host=host and host[1],
        operation=call and call["operation"],
        sequence=call and int(call["sequence"]),
        message=text,
    )
