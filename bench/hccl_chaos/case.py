"""A case: a fault, and what must become of every rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .job import Outcome, Rank, run


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    function: Callable[[Rank], Outcome]
    victims: tuple[int, ...] = ()  # ranks that need not end well: they are killed, stopped, or stay away
    kind: str = "raised"  # what must become of all others
    names: tuple[str, ...] = ()  # what the text of every error must have in it
    within: Callable[[float], float] = field(default=lambda timeout: 2.0)  # seconds, given the time-out
    ranks: int = 4

    def try_it(self, timeout: float, backend: str, patience: float) -> tuple[list[Outcome], list[str]]:
        """What became of the ranks, and what of that must not be. `patience` multiplies the limits."""
        outcomes = run(self.function, self.ranks, timeout, backend)
        problems = []
        for rank, outcome in enumerate(outcomes):
            if rank not in self.victims and (problem := self._problem(outcome, timeout, patience)):
                problems.append(f"rank {rank} {problem}")
        return outcomes, problems

    def _problem(self, outcome: Outcome, timeout: float, patience: float) -> str:
        if outcome.kind != self.kind:
            return f"{outcome} (must be {self.kind})"
        if outcome.seconds > (limit := self.within(timeout) * patience):
            return f"{self.kind} after {outcome.seconds:.2f} s (limit {limit:.1f} s)"
        missing = [word for word in self.names if word not in outcome.text]
        return f"does not say {missing}: {outcome.text}" if missing else ""


def soon(timeout: float) -> float:
    return 1.0


def at_the_time_out(timeout: float) -> float:
    return timeout + 2
