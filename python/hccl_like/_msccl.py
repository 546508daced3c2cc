"""Reads algorithms of MSCCL (XML) and plans of MSCCL++ (JSON) as schedules, as far as their meaning exists here.

Both say what thread blocks do one after another, and which of them wait for others. Here all ranks go through rounds. A step therefore
gets the first round in which everything that it needs is there, and a message one round for both of its ends. The proof that every
algorithm passes before it is used (schedule.py) covers what is made here, so a plan that was read wrongly cannot run.
"""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ElementTree
from collections import defaultdict

from hccl_like.schedule import Algorithm, Chunks, Schedule, ScheduleError, Topology, copy, recv, recv_reduce, reduce, send

_COLLECTIVES = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "reduce_scatter": "reduce_scatter",
                "alltoall": "all_to_all"}  # fmt: skip

Cell = tuple[int, str, int]  # rank, buffer ("i", "o", "s"), chunk


@dataclasses.dataclass(eq=False)
class _Event:
    """One thing that happens in one round: a copy or sum within a rank (``to == from``), or a message with both of its ends."""

    sources: list[list[Cell]]  # one list of each operand's chunks; of a message, the sender's first
    target: list[Cell]
    after: list[tuple[_Event, int]] = dataclasses.field(default_factory=list)  # must be so many rounds later than these
    round: int = 0


def from_xml(text: str) -> Algorithm:
    """An algorithm of MSCCL, which msccl-tools wrote."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ScheduleError(f"this is no XML of MSCCL: {error}") from error
    plan = _Plan(root.get("name", "msccl"), root.get("coll", ""), len(root.findall("gpu")), {_number(gpu, "id"): max(_number(gpu, "i_chunks"), _number(gpu, "o_chunks")) for gpu in root.findall("gpu")})
    steps: dict[tuple[int, int, int], list[_Event]] = {}  # by rank, thread block and step
    ends: dict[tuple, list] = defaultdict(list)  # the sends and the receives of a connection, in order
    depends = []
    for gpu in root.findall("gpu"):
        rank = _number(gpu, "id")
        for block in gpu.findall("tb"):
            number, channel = _number(block, "id"), _text(block, "chan")
            for step in block.findall("step"):
                kind, count = _text(step, "type"), _number(step, "cnt")
                place = (rank, number, _number(step, "s"))
                source, target = (plan.cells(rank, _text(step, f"{side}buf"), _number(step, f"{side}off"), count) for side in ("src", "dst"))
                events = []
                if kind in ("r", "rrc", "rcs", "rrs", "rrcs"):
                    # The step adds the incoming chunk to the one at "src". An rrs keeps the sum only until it is sent.
                    into = plan.temporary(target) if kind == "rrs" else target
                    events.append(_Event([[], source] if kind.startswith("rr") else [[]], into))
                    ends[_number(block, "recv"), rank, channel, "recv"].append(events[0])
                    source = into
                if kind in ("s", "rcs", "rrs", "rrcs"):
                    events.append(_Event([source], []))
                    ends[rank, _number(block, "send"), channel, "send"].append(events[-1])
                elif kind in ("cpy", "re"):
                    events.append(_Event([source] if kind == "cpy" else [target, source], target))
                elif kind not in ("r", "rrc", "nop"):
                    raise ScheduleError(f"rank {rank}, thread block {number}: a step '{kind}' of MSCCL has no counterpart here")
                steps[place] = events
                if _number(step, "depid") >= 0:
                    depends.append((place, (rank, _number(step, "depid"), _number(step, "deps"))))
    messages: dict[int, _Event] = {}
    for sender, receiver, channel, end in list(ends):
        sends, receives = ends[sender, receiver, channel, "send"], ends[sender, receiver, channel, "recv"]
        if len(sends) != len(receives):
            raise ScheduleError(f"rank {sender} sends {len(sends)} messages to rank {receiver} on channel {channel}, which receives {len(receives)}")
        for one, other in zip(sends, receives):
            if id(one) not in messages:
                message = _Event([one.sources[0], *other.sources[1:]], other.target)
                messages[id(one)] = messages[id(other)] = message
    where = {place: [messages.get(id(event), event) for event in events] for place, events in steps.items()}
    blocks: dict[tuple[int, int], list] = defaultdict(list)
    for place in sorted(where):
        blocks[place[:2]].append(place)
    waits: dict[tuple[int, int, int], list[list[_Event]]] = defaultdict(list)
    for place, other in depends:
        if other not in where:
            raise ScheduleError(f"rank {place[0]}, thread block {place[1]} waits for a step that does not exist: block {other[1]}, step {other[2]}")
        waits[place] += [where[step] for step in blocks[other[:2]] if step <= other]
    for places in blocks.values():
        before: list[_Event] = []
        for place in places:
            for group in waits[place]:
                before += group
            for event in where[place]:
                plan.add(event, before)
                before.append(event)
    return plan.algorithm()


def _text(element: ElementTree.Element, name: str) -> str:
    if (value := element.get(name)) is None:
        raise ScheduleError(f"this is no XML of MSCCL: a {element.tag} has no {name}")
    return value


def _number(element: ElementTree.Element, name: str) -> int:
    try:
        return int(_text(element, name))
    except ValueError as error:
        raise ScheduleError(f"this is no XML of MSCCL: the {name} of a {element.tag} is no number") from error


def from_plan(text: str) -> Algorithm:
    """A plan of MSCCL++ whose ranks put and get chunks, copy and add."""
    try:
        form = json.loads(text)
        gpus = {gpu["id"]: gpu for gpu in form["gpus"]}
        plan = _Plan(form.get("name", "mscclpp"), form.get("collective", ""), len(gpus), {rank: max(gpu["input_chunks"], gpu["output_chunks"]) for rank, gpu in gpus.items()})
    except (ValueError, KeyError, TypeError) as error:
        raise ScheduleError(f"this is no plan of MSCCL++ ({type(error).__name__}: {error}); write a plan of an older version anew") from error
    programs = {(rank, block["id"]): (gpu, block, list(block["ops"])) for rank, gpu in gpus.items() for block in gpu["threadblocks"]}
    before: dict[tuple, list[_Event]] = {place: [] for place in programs}
    signals: dict[tuple, list[list[_Event]]] = defaultdict(list)  # what had happened at each signal, by sender, receiver and channel
    moved = True
    while moved and any(ops for *_, ops in programs.values()):
        moved = False
        for place, (gpu, block, ops) in programs.items():
            while ops and _run(plan, place, gpu, block, ops[0], before[place], signals):
                ops.pop(0)
                moved = True
    for (rank, number), (*_, ops) in programs.items():
        if ops:
            raise ScheduleError(f"rank {rank}, thread block {number} waits for a signal that nobody sends: {ops[0]['name']}, with {len(ops)} steps to go")
    return plan.algorithm()


def _run(plan: _Plan, place: tuple, gpu: dict, block: dict, op: dict, before: list[_Event], signals: dict) -> bool:
    """Runs one step of a thread block; False if it must wait."""
    rank, name = place[0], op["name"]

    def peers() -> list[int]:
        channels = [channel for kind in block.get("channels", []) if kind["channel_type"] == op.get("channel_type") for channel in kind["channel_ids"]]
        connected = [kind["connected_to"] for kind in gpu["channels"] if kind.get("channel_type", kind.get("type")) == op.get("channel_type")]
        return [connected[0][channels[number]] for number in op["channel_ids"]]

    def cells(buffer: dict) -> list[Cell]:
        if "buffer_id" in buffer:
            ids = [number for group in block.get("remote_buffer_refs", []) for number in group["remote_buffer_ids"]]
            remote = gpu["remote_buffers"][ids[buffer["buffer_id"]]]
            owner, kind = remote["rank"], remote["type"]
        else:
            owner, kind = rank, buffer["type"]
        return plan.cells(owner, kind, buffer["index"], buffer["size"])

    def happen(sources: list, target: list) -> None:
        event = _Event(sources, target)
        plan.add(event, before)
        before.append(event)

    if name in ("nop", "flush"):
        return True
    if name in ("signal", "relaxed_signal"):
        for peer in peers():
            signals[rank, peer].append(list(before))
        return True
    if name in ("wait", "relaxed_wait"):
        waited = peers()
        if not all(signals[peer, rank] for peer in waited):
            return False
        for peer in waited:
            before += signals[peer, rank].pop(0)
        return True
    sources, targets = [cells(one) for one in op.get("src_buff", [])], [cells(one) for one in op.get("dst_buff", [])]
    if name in ("copy", "put", "get", "pws", "pwsf"):
        for source, target in zip(sources, targets):
            happen([source], target)
        if name in ("pws", "pwsf"):
            for peer in peers():
                signals[rank, peer].append(list(before))
        return True
    if name in ("re", "reduce", "rre", "res", "rres"):
        local = [source if source[0][0] == rank else plan.temporary([(rank, *cell[1:]) for cell in sources[0]]) for source in sources]
        for source, here in zip(sources, local):
            if source is not here:
                happen([source], here)
        happen(local, targets[0])
        for target in targets[1:]:
            happen([targets[0]], target)
        return True
    raise ScheduleError(f"rank {rank}, thread block {place[1]}: an operation '{name}' of MSCCL++ has no counterpart here")


class _Plan:
    """Collects what happens, then puts it into rounds."""

    def __init__(self, name: str, collective: str, size: int, chunks: dict[int, int]) -> None:
        if collective not in _COLLECTIVES:
            raise ScheduleError(f"a plan for '{collective}' has no counterpart here; there are {', '.join(_COLLECTIVES)}")
        self._name = name
        self._collective = _COLLECTIVES[collective]
        self._size = size
        self._chunks = chunks.get(0, 0)
        if sorted(chunks) != list(range(size)) or len(set(chunks.values())) > 1:
            raise ScheduleError("its GPUs are not numbered from 0, or differ in their chunks")
        if self._collective != "all_reduce" and self._chunks != size:
            raise ScheduleError(f"it has {self._chunks} chunks on {size} ranks; {self._collective} has one chunk for each rank here: write it with one instance")
        self._events: dict[_Event, None] = {}  # in the order in which they were found
        self._temporaries = 0

    def cells(self, rank: int, buffer: str, first: int, count: int) -> list[Cell]:
        """Chunks by the numbers that they have here. In place, which must work, the output is the input, or the input a part of it."""
        if (self._collective, buffer) in (("all_gather", "i"), ("reduce_scatter", "o")):
            first += rank
        if buffer == "o" and self._collective != "all_to_all":
            buffer = "i"
        return [(rank, buffer, first + i) for i in range(count)]

    def temporary(self, like: list[Cell]) -> list[Cell]:
        self._temporaries += len(like)
        return [(rank, "t", self._temporaries + i) for i, (rank, *_) in enumerate(like)]

    def add(self, event: _Event, before: list[_Event]) -> None:
        """In program order of one thread block: after what conflicts with it, and with messages between the same ranks in their order."""
        self._events[event] = None
        reads, writes = self._cells(event)
        for other in before:
            if other is event:
                continue
            other_reads, other_writes = self._cells(other)
            conflict = writes & (other_reads | other_writes) or reads & other_writes
            event.after.append((other, 1 if conflict else 0))

    @staticmethod
    def _cells(event: _Event) -> tuple[set[Cell], set[Cell]]:
        return {cell for source in event.sources for cell in source}, set(event.target)

    def algorithm(self) -> Algorithm:
        for turn in range(len(self._events) + 2):
            changed = False
            for event in self._events:
                needed = max((other.round + later for other, later in event.after), default=0)
                if needed > event.round:
                    event.round, changed = needed, True
            if not changed:
                break
        else:
            raise ScheduleError("its thread blocks wait for each other in a circle, or need more messages in flight than a round has")
        placing = _Placing(self._collective, self._size, self._chunks)
        ranks = [schedule.to_dict() for schedule in placing.run(list(self._events))]

        def plan(topology: Topology) -> list:
            if len(topology.hosts) != self._size:
                raise ScheduleError(f"it was written for {self._size} ranks, and there are {len(topology.hosts)}; write one for as many")
            return [ranks]

        return Algorithm(self._collective, "".join(c if c.isalnum() or c in "_.-" else "_" for c in self._name), plan,
                         equal_chunks=self._collective == "all_to_all" and placing.uses_scratch)


class _Placing:
    """Finds where a buffer's chunk lies here, round by round. MSCCL writes to the input, too; a schedule here never does.

    A written chunk lies in the output if the collective has that chunk in its output, else in scratch memory. Later steps read it there.
    """

    def __init__(self, collective: str, size: int, chunks: int) -> None:
        self._collective = collective
        self._chunks = chunks
        self._schedules = [Schedule(chunks) for _ in range(size)]
        self._places: dict[Cell, Chunks] = {}
        self._scratch: dict[tuple[Cell, Chunks], Chunks] = {}
        self._likes: dict[tuple[int, Chunks], Chunks] = {}  # of scratch memory: the chunk that it is as large as

    @property
    def uses_scratch(self) -> bool:
        return bool(self._scratch)

    def run(self, events: list[_Event]) -> list[Schedule]:
        rounds: dict[int, list[_Event]] = defaultdict(list)
        for event in events:
            rounds[event.round].append(event)
        for number in range(max(rounds, default=0) + 1):
            steps: list[list[str]] = [[] for _ in self._schedules]
            written = {}
            for event in rounds[number]:
                for cell, *sources in zip(event.target, *event.sources):
                    places = [self._read(source) for source in sources]
                    written[cell] = self._write(cell, self._likes.get((sources[0][0], places[0]), places[0]))
                    self._step(steps, sources, places, cell[0], written[cell])
            self._places |= written
            for schedule, made in zip(self._schedules, steps):
                schedule.round(*made)
        self._keep_inputs()
        return self._schedules

    @staticmethod
    def _step(steps: list[list[str]], sources: list[Cell], places: list[Chunks], rank: int, to: Chunks) -> None:
        peer = sources[0][0]
        if peer == rank:
            steps[rank].append(copy(places[0], to) if len(places) == 1 else reduce(places, to))
            return
        steps[peer].append(send(rank, places[0]))
        steps[rank].append(recv(peer, to) if len(places) == 1 else recv_reduce(peer, places[1], to))

    def _read(self, cell: Cell) -> Chunks:
        rank, buffer, chunk = cell
        if cell in self._places:
            return self._places[cell]
        if buffer == "i" and (self._collective != "all_gather" or chunk == rank):
            return Chunks("in", chunk)
        raise ScheduleError(f"rank {rank} reads chunk {chunk} of buffer '{buffer}' before anything is written there")

    def _write(self, cell: Cell, content: Chunks) -> Chunks:
        rank, buffer, chunk = cell
        if buffer == "o" or buffer == "i" and (self._collective in ("all_reduce", "all_gather") or chunk == rank):
            return Chunks("out", chunk)
        like = Chunks("out" if self._collective == "all_gather" else "in", content.first)
        if (cell, like) not in self._scratch:
            place = self._scratch[cell, like] = self._schedules[rank].scratch(like)
            self._likes[rank, place] = like
        return self._scratch[cell, like]

    def _keep_inputs(self) -> None:
        """What nobody writes is in the output already if input and output are the same memory, and is copied if not."""
        for rank, schedule in enumerate(self._schedules):
            for chunk in {"all_reduce": range(self._chunks), "all_gather": [rank]}.get(self._collective, []):
                if (rank, "i", chunk) not in self._places:
                    schedule.rounds[0].append(copy(Chunks("in", chunk), Chunks("out", chunk)))
