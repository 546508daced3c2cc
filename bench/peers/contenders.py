"""Who is measured: each one starts, measures a row when it is its turn, and stops."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from libraries import HERE, LIBRARIES, ROOT, commands, environment, install, placed
from servers import Answer, Refused, Server

START_SECONDS = 60
ROW_SECONDS = 60


@dataclass(frozen=True)
class Row:
    collective: str
    type: str  # as hccl_like_perf calls it
    size: int
    ranks: int
    hosts: int = 0  # network namespaces with a rank each; 0: all ranks are on one host


@dataclass(frozen=True)
class Effort:
    """How often a row is repeated in one turn."""

    warmup: int
    iterations: int
    batch: int  # operations under one reading of the clock

    @staticmethod
    def of(size: int, slow: bool) -> "Effort":
        if size <= 1024:
            return Effort(3, 20, 1) if slow else Effort(3, 40, 50)
        iterations = max(7, min(150, (1 << 27) // size))
        # A cache that just holds what moves takes some ten operations to do so.
        return Effort(2, min(iterations, 10), 1) if slow else Effort(10 if size < 1 << 26 else 3, iterations, 1)


class Raw:
    """TCP itself, between hosts: see raw_tcp_bench.cc."""

    name = "raw TCP"

    def __init__(self, program: Path, hosts, connections: int = 1):
        self._program, self._hosts, self._connections = program, hosts, connections

    def start(self) -> None:
        if not self._hosts:
            raise Refused("there is no network on one host")
        if not self._program.exists():
            raise Refused(f"{self._program} is not built")

    def measure(self, row: Row, first: bool) -> tuple[Answer, None]:
        if row.collective != "all_reduce":
            raise Refused("it moves the bytes of all_reduce only")
        names = ",".join(host.name for host in self._hosts)
        command = [self._program, names, row.size, self._connections]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=ROW_SECONDS)
        if done.returncode:
            raise Refused((done.stderr.strip() or "no reason given").splitlines()[-1])
        return Answer(*[float(done.stdout)] * 3, 0), None

    def stop(self) -> None:
        pass


class Served:
    """Ranks stay alive between their turns, asleep."""

    slow = False

    def __init__(self, name: str, ranks: int, logs: Path):
        self.name, self._ranks, self._logs = name, ranks, logs
        self._server: Server | None = None

    def _launch(self, start: list[list[str]], variables: dict) -> None:
        self._server = Server(self.name.replace(" ", "-"), start, self._ranks, variables, self._logs / f"{self.name}.log")
        try:
            self._server.start(START_SECONDS)
        except Refused:
            self.stop()
            raise

    def measure(self, row: Row, first: bool) -> tuple[Answer, None]:
        if self._server is None:
            raise Refused("it ended in an earlier row")
        effort = Effort.of(row.size, self.slow)
        try:
            answer = self._server.measure(row.collective, row.type, row.size, effort.warmup, effort.iterations,
                                          effort.batch, ROW_SECONDS)
        except Refused as refusal:
            if refusal.fatal:
                self.stop()
            raise
        return answer, None

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._server = None


class Ours(Served):
    """Ours without Python, by where the buffers lie."""

    def __init__(self, perf: Path, memory: str, ranks: int, logs: Path, hosts=None):
        super().__init__(memory, ranks, logs)
        self._perf, self._program, self._hosts = perf, perf.with_name("hccl_like_serve"), hosts

    def start(self) -> None:
        for program in (self._program, self._perf):
            if not program.exists():
                raise Refused(f"{program} is not built")
        names = [",".join(host.name for host in self._hosts)] if self._hosts else []
        self._launch([[str(self._program), "{pipes}", str(self._ranks), self.name, *names]], dict(os.environ))

    def measure(self, row: Row, first: bool) -> tuple[Answer, float | None]:
        answer, _ = super().measure(row, first)
        return answer, self._floor(row) if self.name == "mapped" and not self._hosts else None

    def _floor(self, row: Row) -> float | None:
        """Of memory alone: the benchmark measures it beside a few calls, after as many untimed ones as the contenders make."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "row.json"
            form = "in-place" if row.collective in ("all_reduce", "broadcast") else "out-of-place"
            command = [self._perf, row.collective, "-g", row.ranks, "-b", row.size, "-e", row.size, "-d", row.type, "-n", 10,
                       "-w", Effort.of(row.size, False).warmup, "-c", 0, "--dirty", "--pin", "--memory", "mapped", "--floor", "--form", form, "-J", file]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=ROW_SECONDS)
            if not file.exists():
                lines = (done.stderr.strip() or "no reason given").splitlines()
                raise Refused(lines[-1])
            result = json.loads(file.read_text())["results"][0]
        return (result["in_place"] or result["out_of_place"]).get("floor_us")


class Peer(Served):
    def __init__(self, name: str, ranks: int, under: Path, hosts=None):
        super().__init__(LIBRARIES[name].title, ranks, under)
        self._library, self._under, self._hosts = LIBRARIES[name], under, hosts

    def start(self) -> None:
        variables = environment(self._library, self._under, self._ranks, len(os.sched_getaffinity(0)), self._hosts)
        if variables is None:
            raise Refused("it only spins: milliseconds a call with more ranks than cores")
        if reason := install(self._library, self._under):
            raise Refused(reason)
        self._launch(commands(self._library, self._under, self._ranks, self._hosts), variables)


class Torch(Served):
    """A backend of torch.distributed, in the Python that runs this."""

    def __init__(self, name: str, backend: str, ranks: int, logs: Path, hosts=None, device: str = "cpu"):
        super().__init__(name, ranks, logs)
        self._backend, self._device, self._hosts = backend, device, hosts
        self.slow = backend == "gloo"

    def start(self) -> None:
        start = [[sys.executable, str(HERE / "torch_serve.py"), "{pipes}", str(rank), str(self._ranks), self._backend,
                  self._device] for rank in range(self._ranks)]
        interface = {"GLOO_SOCKET_IFNAME": "eth0"} if self._hosts else {}
        self._launch(placed(start, self._hosts), {**os.environ, "OMP_NUM_THREADS": "1", **interface})


def all_of(names: list[str], ranks: int, perf: Path, under: Path, hosts=None) -> list:
    """The contenders by the names that the command line takes."""
    known = {
        "mapped": lambda: Ours(perf, "mapped", ranks, under, hosts),
        "ordinary": lambda: Ours(perf, "ordinary", ranks, under, hosts),
        "raw": lambda: Raw(perf.with_name("raw_tcp"), hosts),
        "gloo": lambda: Torch("gloo", "gloo", ranks, under, hosts),
        "torch": lambda: Torch("hccl-like in torch", "hccl-like", ranks, under, hosts),
        "fake": lambda: Torch("fake in torch", "fake", ranks, under, hosts),
        **{name: (lambda name=name: Peer(name, ranks, under, hosts)) for name in LIBRARIES},
    }
    return [known[name]() for name in names]


PERF = ROOT / "build" / "release" / "bench" / "hccl_like_perf"
