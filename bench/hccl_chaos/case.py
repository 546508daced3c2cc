"""A case: a fault, and what must become of every rank."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from .figure import Figure, Result
from .job import Job, Outcome, Rank
from .needs import nothing


@dataclass(frozen=True)
class Settings:
    """What is the same for all cases of a run."""

    timeout: float = 6  # seconds that a call may take
    patience: float = 1  # by which limits in seconds are multiplied
    backend: str = "hccl-like"
    seed: int = 1
    quick: bool = False  # one trial of each, and smaller numbers
    churn: float = 30  # seconds


@dataclass(frozen=True)
class Measure:
    """A figure that ranks give by its name, and its limit."""

    name: str
    goal: str
    limit: float
    unit: str = ""
    of: str = "max"
    at_least: bool = False


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    function: Callable[[Rank], Outcome]
    victims: tuple[int, ...] = ()  # ranks that need not end well: they are killed, stopped, or stay away
    kind: str = "raised"  # what must become of all others
    names: tuple[str, ...] = ()  # expressions that every error's text must match
    within: Callable[[float], float] | None = field(default=lambda timeout: 2.0)  # seconds, given the time-out; None: Measures tell
    median: float | None = None  # seconds, of all trials and ranks
    around: bool = False  # an error comes at the time-out, 2 s earlier or later
    measures: tuple[Measure, ...] = ()
    ranks: int = 4
    trials: int = 1
    device: str = "cpu"
    hosts: int = 0  # network namespaces; 0: this host
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: Callable[[], str] = nothing  # why it cannot be tried here
    timeout: float = 0  # at least, whatever the settings say
    slack: float = 0  # seconds beside the time-outs that ranks may work before they count as hanging
    quick: bool = True  # part of a quick run

    def try_it(self, settings: Settings) -> Result:
        """What became of the ranks in all trials."""
        settings = replace(settings, timeout=max(settings.timeout, self.timeout))
        result = Result()
        for _ in range(1 if settings.quick else self.trials):
            result.add(self._once(settings))
        return result

    def _once(self, settings: Settings) -> Result:
        job = Job(self.ranks, settings.timeout, settings.backend, self.device, self.hosts, dict(self.environment),
                  self.slack, settings.quick)
        outcomes = job.run(self.function)
        others = [rank for rank in range(self.ranks) if rank not in self.victims]
        problems = [f"rank {rank} {problem}" for rank in others if (problem := self._problem(outcomes[rank]))]
        ended = [outcomes[rank] for rank in others if outcomes[rank].kind == self.kind]
        return Result(self._figures(ended, settings), problems, [vars(outcome) for outcome in outcomes])

    def _problem(self, outcome: Outcome) -> str:
        if outcome.kind != self.kind:
            return f"{outcome} (must be {self.kind})"
        missing = [name for name in self.names if not re.search(name, outcome.text)]
        return f"does not say {missing}: {outcome.text}" if missing else ""

    def _figures(self, ended: list[Outcome], settings: Settings) -> list[Figure]:
        seconds, word = [outcome.seconds for outcome in ended], "raises" if self.kind == "raised" else "is through"
        figures = []
        if self.around:
            off = [abs(second - settings.timeout) for second in seconds]
            figures.append(Figure("every rank raises at its time-out, off by", 2 * settings.patience, off))
        elif self.within:
            limit = self.within(settings.timeout) * settings.patience
            figures.append(Figure(f"every other rank {word} after", limit, seconds))
        if self.median is not None:
            figures.append(Figure(f"the median rank {word} after", self.median * settings.patience, list(seconds), of="median"))
        for measure in self.measures:
            limit = measure.limit * (settings.patience if measure.unit == "s" else 1)
            samples = [outcome.figures[measure.name] for outcome in ended if measure.name in outcome.figures]
            figures.append(Figure(measure.goal, limit, samples, measure.unit, measure.of, measure.at_least))
        return figures


def soon(timeout: float) -> float:
    return 1.0


def at_the_time_out(timeout: float) -> float:
    return timeout + 2
