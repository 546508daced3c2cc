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


# By number: what this rank has to do with the failure, and what to do. docs/errors.md is made from it, hence the links.
NUMBERS = {
    101: ("broke a rule (misuse; not printed)", "do as the message says"),
    102: ("asked for what does not exist (unsupported; not printed)", "the message names what does"),
    201: (
        "waited until the time-out of the call or of the group",
        "look at the ranks that it waited for: [a table](diagnosis.md#after-a-time-out) in the log of one rank says where each "
        "is. If all are well and merely slow, raise `timeout=`",
    ),
    202: ("learned from another rank that its call ran into its time-out", "the same; the end of the message says what this rank was waiting for"),
    203: ("gave up one `wait(timeout)`; the call goes on, the group is well", "wait again, or `abort()`"),
    211: (
        "waited in vain for others while a group was made (`DistStoreError`)",
        "start the ranks that the message names, with the same store, world size and group",
    ),
    301: (
        "saw that a rank is gone: dead, its host gone, or its connection cut",
        "look at the end of that rank's own log (killed for memory? crashed?). Go on by [`shrink_group` or a new "
        "group](#going-on), or let torchrun restart",
    ),
    302: ("learned so from another rank", "the same; the message has rank, host and call"),
    311: ("could not reach a rank while a group was made (`DistNetworkError`)", "firewall, [interfaces and ports](networks.md); `hccl-like doctor`"),
    401: ("called `abort()`, or destroyed the group under its calls", "nothing, if that was meant"),
    402: (
        "learned that another rank did, that its program ended or left [because of an exception](#a-rank-that-leaves-because-of-an-exception), "
        "or that it failed before it could make its call",
        "the message says why; the cause is in that rank's log",
    ),
    501: (
        "found that another rank makes a different call, has passed other ranks to `new_group`, or got [other bits](diagnosis.md#results-that-differ)",
        "compare the two calls in the message; [`HCCL_LIKE_CALL_SITES=1`](diagnosis.md#which-line-made-the-call) names the lines "
        "that make them",
    ),
    502: ("learned so from another rank", "the same"),
    601: (
        "was refused something by the operating system",
        "the message has the system's reason (descriptors, memory, [threads](threads.md#where-the-system-gives-no-thread), "
        "permissions)",
    ),
    602: ("learned that another rank was", "see that rank's log"),
    701: ("has a device, or a plugin, that failed", "the message is the device's; the device's own log"),
    702: ("learned that another rank has", "see that rank's log"),
    801: ("gave a NaN to a call", "the message has call and index; look at what computed it"),
    802: ("learned that another rank did", "the same"),
}
_SAME = "the same"  # as one number before
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


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

    @property
    def advice(self) -> str:
        """What to do, as docs/errors.md says it."""
        remedy = NUMBERS.get(self.number, ("", ""))[1]
        if remedy.startswith(_SAME):
            remedy = NUMBERS[self.number - 1][1] + remedy.removeprefix(_SAME)
        return _LINK.sub(r"\1", remedy).replace("`", "")


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
