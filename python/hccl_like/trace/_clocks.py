"""One clock for all ranks.

No rank leaves a call that waits for all before every rank has come. Two ranks whose records keep to that share a clock, as ranks of one
host do. Otherwise the difference between their clocks is the median difference between the ends of such calls, which all ranks leave
at about the same time.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

from hccl_like.trace._matching import Call, arrival

_CONTRADICTIONS = 0.1  # of the calls: a thread that loses the processor between two looks at clocks records a wrong time


@dataclass(frozen=True)
class Clock:
    offset: int  # ns to add to the rank's times
    spread: float  # ns: half of the calls are nearer to it than that
    calls: int  # that it rests on; 0: it is not aligned


@dataclass(frozen=True)
class _Seen:
    """One call on two ranks."""

    difference: int  # of the ends, ns
    is_possible: bool  # on one clock


def align(ranks: list[int], calls: list[Call]) -> dict[int, Clock]:
    """The clocks by rank, on that of the first; by other ranks' where two have no call in common."""
    seen: dict[tuple[int, int], list[_Seen]] = defaultdict(list)
    for call in calls:
        times = {rank: (arrival(record), record.completed) for rank, record in call.records.items() if record.is_final and record.completed}
        if call.all_wait:
            for one, (came, left) in times.items():
                for other, (other_came, other_left) in times.items():
                    if one != other:
                        seen[one, other].append(_Seen(left - other_left, came <= other_left and other_came <= left))
    clocks = {ranks[0]: Clock(0, 0.0, max((len(found) for (one, _), found in seen.items() if one == ranks[0]), default=0))}
    reached = [ranks[0]]
    for rank in reached:  # grows
        for other in ranks:
            if other not in clocks and (found := seen.get((rank, other))):
                clocks[other] = _clock(clocks[rank], found)
                reached.append(other)
    return {rank: clocks.get(rank, Clock(0, 0.0, 0)) for rank in ranks}


def _clock(near: Clock, seen: list[_Seen]) -> Clock:
    is_shared = sum(not call.is_possible for call in seen) <= _CONTRADICTIONS * len(seen)
    offset = 0.0 if is_shared else statistics.median(call.difference for call in seen)
    spread = statistics.median(abs(call.difference - offset) for call in seen)
    return Clock(round(near.offset + offset), near.spread + spread, len(seen))
