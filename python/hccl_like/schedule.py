"""Algorithms of your own: what each rank sends, receives and adds, in rounds (docs/own-algorithms.md).

    from hccl_like import schedule
    from hccl_like.schedule import Schedule, in_, out, recv, recv_reduce, send

    @schedule.algorithm("all_reduce")
    def mine(rank: int, size: int) -> Schedule: ...

    mine.prove(range(2, 9))                                   # raises ScheduleError, with rank, round and chunk
    dist.init_process_group("hccl-like", pg_options=hccl_like.Options(algorithms="all_reduce:mine"))

The payload is cut into chunks. ``in_[3]`` is chunk 3 of the input, ``out[3]`` of the output, ``out[3:5]`` two chunks. Steps of a round run
in any order; a round begins when the one before it is finished, and never writes what it reads. The k-th send to a rank in a round meets
that rank's k-th receive from this one in the round of the same number.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import runpy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

GROUP = "hccl_like.algorithms"
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all")
ROOTED = ("broadcast", "reduce", "gather", "scatter")

Layout = int | str | Sequence[int]


class ScheduleError(ValueError):
    """A schedule that is wrong, or an algorithm that cannot be used here; the text says where and why."""


@dataclasses.dataclass(frozen=True)
class Chunks:
    """``count`` consecutive chunks of a buffer, from number ``first`` upwards."""

    buffer: str
    first: int
    count: int = 1

    def __str__(self) -> str:
        last = f"..{self.first + self.count - 1}" if self.count > 1 else ""
        return f"{self.buffer}[{self.first}{last}]"

    def __getitem__(self, which: int | slice) -> Chunks:
        """Part of the chunks, counted from the first of them."""
        begin, end = (which.start or 0, self.count if which.stop is None else which.stop) if isinstance(which, slice) else (which, which + 1)
        if not 0 <= begin < end <= self.count or isinstance(which, slice) and which.step not in (None, 1):
            raise ScheduleError(f"{self} has chunks 0 to {self.count - 1}, and {which} is none of them or not consecutive")
        return Chunks(self.buffer, self.first + begin, end - begin)


in_ = Chunks("in", 0, 1 << 30)
out = Chunks("out", 0, 1 << 30)


def send(peer: int, what: Chunks) -> str:
    """The step that sends chunks to rank ``peer``."""
    return f"send {what}->{peer}"


def recv(peer: int, to: Chunks) -> str:
    """The step that receives chunks from rank ``peer``: ``to = incoming``."""
    return f"recv {to}<-{peer}"


def recv_reduce(peer: int, mine: Chunks, to: Chunks) -> str:
    """The step that receives chunks from rank ``peer`` and adds them up: ``to = mine + incoming``."""
    return f"recv_reduce {mine}+<-{peer} to {to}"


def copy(what: Chunks, to: Chunks) -> str:
    """The step ``to = what``; it costs nothing where both are the same memory."""
    return f"copy {what} to {to}"


def reduce(sources: Iterable[Chunks], to: Chunks) -> str:
    """The step ``to = sources[0] + sources[1] + ...``, one chunk each, in this order and rounded once."""
    return f"reduce {'+'.join(map(str, sources))} to {to}"


class Schedule:
    """What one rank does. ``chunks``: of the input and of the output, on every rank the same number.

    all_reduce, broadcast and reduce may be cut into any number of chunks; the others have one chunk for each rank.
    """

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks
        self.rounds: list[list[str]] = []
        self._scratch: list[str] = []

    def round(self, *steps: str) -> None:
        """Appends a round. A rank that has nothing to do in a round appends an empty one, since messages match by its number."""
        self.rounds.append(list(steps))

    def scratch(self, like: Chunks) -> Chunks:
        """Memory of the rank's own, as large as the chunks of the input or output that it is like."""
        first = len(self._scratch)
        self._scratch += [f"{like.buffer}[{like.first + i}]" for i in range(like.count)]
        return Chunks("scratch", first, like.count)

    def to_dict(self) -> dict:
        """The schedule in the JSON form."""
        return {"chunks": self.chunks, "scratch": self._scratch, "rounds": self.rounds}


@dataclasses.dataclass(frozen=True)
class Topology:
    """Where the ranks are. ``hosts``: the number of each rank's host."""

    hosts: tuple[int, ...]

    def ranks(self, host: int) -> list[int]:
        """The ranks of a host, ascending."""
        return [rank for rank, its in enumerate(self.hosts) if its == host]


class Algorithm:
    """A collective as a function from rank, size, root and topology to a :class:`Schedule`; :func:`algorithm` makes one."""

    def __init__(self, collective: str, name: str, plan: Callable[[Topology], list], equal_chunks: bool = False) -> None:
        if collective not in COLLECTIVES:
            raise ScheduleError(f"there is no collective '{collective}' that takes an algorithm; there are {', '.join(COLLECTIVES)}")
        if not re.fullmatch(r"[\w.-]+", name):
            raise ScheduleError(f"'{name}' is no name of an algorithm; use letters, digits, '_', '.' and '-'")
        self.collective = collective
        self.name = name
        self.equal_chunks = equal_chunks
        self._plan = plan

    def __repr__(self) -> str:
        return f"<hccl_like.schedule.Algorithm {self.collective}:{self.name}>"

    def to_json(self, layout: Layout) -> str:
        """The schedules of all ranks, and of all roots if there are any, in the JSON form. Does not prove them.

        ``layout``: the number of ranks on one host, "2x4" for two hosts of four, or the host of each rank.
        """
        topology = Topology(hosts_of(layout))
        form = {"hccl_like_schedule": 1, "name": self.name, "collective": self.collective, "equal_chunks": self.equal_chunks,
                "hosts": topology.hosts, "roots": self._plan(topology)}  # fmt: skip
        return json.dumps(form, sort_keys=True)

    def fault(self, layout: Layout) -> str:
        """What is wrong with the schedules, with rank, round and chunk; "" if they are proved."""
        try:
            return _extension()._own_fault(self.to_json(layout))
        except (ScheduleError, RuntimeError) as error:  # no schedule at all
            return str(error).splitlines()[0]

    def prove(self, layouts: Layout | Iterable[Layout]) -> None:
        """Checks and proves the algorithm for one layout, or for each of several (``range(2, 9)``); raises ScheduleError.

        A list of numbers is one layout, the host of each rank.
        """
        several: Iterable = layouts if isinstance(layouts, Iterable) and not isinstance(layouts, str) else [layouts]
        if isinstance(layouts, list) and all(isinstance(host, int) for host in layouts):
            several = [layouts]
        for layout in several:
            if fault := self.fault(layout):
                raise ScheduleError(f"{self.collective}:{self.name} on {layout if isinstance(layout, str) else len(hosts_of(layout))} ranks: {fault}")

    def text(self, layout: Layout, root: int = 0) -> str:
        """The schedules as text, a line for each round."""
        texts = _extension()._own_text(self.to_json(layout), root)
        return "\n".join(f"rank {rank}\n{text}" for rank, text in enumerate(texts))

    def price(self, bytes: int, layout: Layout) -> dict[str, float]:
        """Microseconds of a call of float32 as the cost model sees it, of this algorithm and of all others, by name.

        ``bytes``: of all chunks together, the larger of input and output.
        """
        hosts = hosts_of(layout)
        rows = _extension().explain(self.collective, bytes, list(hosts), own=self.to_json(hosts))
        return {name: microseconds for name, _, microseconds in rows}


def algorithm(collective: str, name: str | None = None, *, equal_chunks: bool = False) -> Callable[[Callable[..., Schedule]], Algorithm]:
    """Makes an :class:`Algorithm` of a function and registers it in this process, under the function's name if no other is given.

    The function takes any of ``rank``, ``size``, ``root`` and ``topology`` (:class:`Topology`), by these names, and returns a new Schedule.
    It must be pure: all ranks call it for all ranks, and must get the same. ``equal_chunks``: it moves chunks into the place of others,
    so it is used only where all have one size; without it, that is refused.
    """

    def make(function: Callable[..., Schedule]) -> Algorithm:
        wanted = list(inspect.signature(function).parameters)
        if unknown := set(wanted) - {"rank", "size", "root", "topology"}:
            raise ScheduleError(f"{function.__name__} takes {min(unknown)}; there are rank, size, root and topology")
        if "root" in wanted and collective not in ROOTED:
            raise ScheduleError(f"{function.__name__} takes a root, and {collective} has none")

        def plan(topology: Topology) -> list:
            size = len(topology.hosts)
            values = {"size": size, "topology": topology}
            return [[_made(function, {name: (values | {"rank": rank, "root": root})[name] for name in wanted}) for rank in range(size)]
                    for root in range(size if collective in ROOTED else 1)]  # fmt: skip

        return register(Algorithm(collective, name or function.__name__, plan, equal_chunks))

    return make


def register(algorithm: Algorithm) -> Algorithm:
    """Lets groups of this process use an algorithm that its file or an importer gave. Takes the place of one of the same name."""
    _registered[algorithm.collective, algorithm.name] = algorithm
    return algorithm


def find(collective: str, name: str) -> Algorithm | None:
    """The algorithm that was registered, or that an installed package publishes as "COLLECTIVE.NAME" in the group ``hccl_like.algorithms``."""
    from hccl_like import _plugins

    if found := _registered.get((collective, name)):
        return found
    entry = _plugins.entries(GROUP).get(f"{collective}.{name}")
    if entry is None:
        return None
    if isinstance(entry, Exception):
        raise ScheduleError(str(entry))
    loaded = entry.load()
    if not isinstance(loaded, Algorithm) or loaded.collective != collective:
        raise ScheduleError(f"the entry point {collective}.{name} gives {loaded!r}, which is no algorithm of {collective}; see hccl_like.schedule")
    return loaded


def from_json(text: str) -> Algorithm:
    """The algorithm that :meth:`Algorithm.to_json` wrote, for jobs of as many ranks. Not registered."""
    try:
        form = json.loads(text)
        hosts, roots = form["hosts"], form["roots"]
        name, collective = form["name"], form["collective"]
    except (ValueError, KeyError, TypeError) as error:
        raise ScheduleError(f"this is no algorithm in the JSON form ({type(error).__name__}: {error}); Algorithm.to_json() writes it") from error

    def plan(topology: Topology) -> list:
        if len(topology.hosts) != len(hosts):
            raise ScheduleError(f"it was written for {len(hosts)} ranks, and there are {len(topology.hosts)}; write one for as many")
        return roots

    return Algorithm(collective, name, plan, bool(form.get("equal_chunks")))


def load(path: str | Path) -> Algorithm:
    """The algorithm of a file: the JSON form, a plan of MSCCL++ (.json) or an algorithm of MSCCL (.xml). Not registered."""
    from hccl_like import _msccl

    text = Path(path).read_text(encoding="utf-8")
    if text.lstrip().startswith("<"):
        return _msccl.from_xml(text)
    return _msccl.from_plan(text) if '"gpus"' in text else from_json(text)


def named(what: str, collective: str) -> Algorithm:
    """The algorithm that a command line names: a published name, "FILE.py:NAME", or a file for :func:`load`."""
    path, colon, name = what.rpartition(":")
    if colon and path.endswith(".py"):
        runpy.run_path(path)
        what = name
    elif Path(what).is_file():
        return load(what)
    if found := find(collective, what):
        return found
    raise ScheduleError(f"there is no {collective} algorithm '{what}' of yours; register it, or name its file, FILE.py:NAME or FILE.json")


def hosts_of(layout: Layout) -> tuple[int, ...]:
    """The host of each rank: of a number of ranks on one host, of "2x4", or as given."""
    if isinstance(layout, int):
        return (0,) * layout
    if isinstance(layout, str):
        if not (match := re.fullmatch(r"(\d+)x(\d+)", layout)):
            raise ScheduleError(f"'{layout}' is no layout; write HOSTSxRANKS, 2x4")
        return tuple(host for host in range(int(match[1])) for _ in range(int(match[2])))
    return tuple(layout)


_registered: dict[tuple[str, str], Algorithm] = {}


def _made(function: Callable[..., Schedule], arguments: dict) -> dict:
    try:
        made = function(**arguments)
        if not isinstance(made, Schedule):
            raise TypeError(f"it returned {made!r}, which is no Schedule")
        return made.to_dict()
    except Exception as error:  # the user's code: anything can come out of it
        where = ", ".join(f"{name} {value}" for name, value in arguments.items() if name != "topology")
        raise ScheduleError(f"{function.__name__} raised {type(error).__name__} for {where}: {error}") from error


def _make_for_group(collective: str, name: str, layout: list[int]) -> tuple[str, str]:
    """What the extension calls when a group is made: the JSON form and "", or "" and an error. Both are empty for an unknown name."""
    try:
        found = find(collective, name)
        return ("" if found is None else found.to_json(layout)), ""
    except Exception as error:
        return "", f"the {collective} algorithm {name} cannot be used: {error}"


def _extension():
    from hccl_like import _extension

    return _extension.load()
