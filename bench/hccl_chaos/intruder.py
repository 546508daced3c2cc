"""Somebody who visits the doors of a rank, in a process of its own: it has nothing of the rank's but what anybody can find out."""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import time
from collections.abc import Callable
from http.client import HTTPConnection

HELLO = b"hccl-like hello 02"  # then whose it is, whom it wants (32 digits each), which rail, 32 fresh bytes, a tag of 32
ID_DIGITS = 32


class News:
    """What an intruder is told once, and when."""

    def __init__(self, pipe: int):
        self._pipe = pipe

    def fileno(self) -> int:
        return self._pipe

    def is_there(self) -> bool:
        return bool(select.select([self._pipe], [], [], 0)[0])

    def wait(self) -> dict:
        with os.fdopen(self._pipe) as pipe:
            text = pipe.read()
        if not text:  # the rank has gone
            os._exit(0)
        return json.loads(text)


class Intruder:
    """Forked before the rank has anything to inherit. `visit(news)` runs from then on; it returns figures."""

    def __init__(self, visit: Callable[[News], dict]):
        self._news, tell = os.pipe()
        hear, self._tell = os.pipe()
        if os.fork() == 0:
            os.close(self._tell)
            os.write(tell, json.dumps(visit(News(hear))).encode())
            os._exit(0)
        os.close(tell)
        os.close(hear)
        self._answer = None

    def send_in(self, **told) -> None:
        os.write(self._tell, json.dumps(told).encode())
        os.close(self._tell)

    def is_done(self) -> bool:
        """Its answer is there; keeps no descriptor then."""
        if self._answer is None:
            os.set_blocking(self._news, False)
            try:
                text = os.read(self._news, 1 << 16)
            except BlockingIOError:
                return False
            os.close(self._news)
            self._answer = json.loads(text or "{}")
        return True

    @property
    def answer(self) -> dict:
        return self._answer or {}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def many_descriptors() -> None:
    """As many as may be had, for a process that holds a thousand connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def listening_ports() -> list[int]:
    """The TCP ports on which this process listens."""
    sockets = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            sockets.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            pass
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/self/net/{table}") as lines:
            for line in list(lines)[1:]:
                field = line.split()
                if field[3] == "0A" and f"socket:[{field[9]}]" in sockets:
                    ports.add(int(field[1].rpartition(":")[2], 16))
    return sorted(ports)


def knock(port: int, words: bytes) -> socket.socket:
    """A connection on which `words` were said, or as much of them as was listened to."""
    one = socket.create_connection(("127.0.0.1", port), timeout=5)
    try:
        one.sendall(words)
    except OSError:
        pass  # it was shown the door
    return one


def bytes_told(connections: list[socket.socket]) -> int:
    """What they were told in all."""
    told = 0
    for one in connections:
        one.settimeout(0)
        try:
            told += len(one.recv(1 << 16))
        except OSError:
            continue
    return told


def stay(connections: list[socket.socket]) -> dict:
    """Until they have been shown out: nobody without a proof stays longer than a second. Closes them."""
    time.sleep(1.5)
    answer = {"made": len(connections), "told": bytes_told(connections)}
    for one in connections:
        one.close()
    return answer


def hello(target: str, tag: bytes | None = None) -> bytes:
    """A well-formed one for the process of that id, as somebody makes it who lacks the key."""
    return HELLO + os.urandom(ID_DIGITS // 2).hex().encode() + target.encode() + b"00" + os.urandom(32) + (tag or os.urandom(32))


class Doorkeeper:
    """What this process says of those it turned away."""

    def __init__(self, path: str):
        from torch._C._distributed_c10d import _WorkerServer

        self._path, self._server = path, _WorkerServer(path)

    def refused(self) -> dict[str, int]:
        connection = HTTPConnection("localhost", timeout=20)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(20)
        connection.sock.connect(self._path)
        connection.request("POST", "/handler/hccl_like_status")
        body = connection.getresponse().read()
        connection.close()
        return json.loads(body).get("refused_connections", {})

    def close(self) -> None:
        self._server.shutdown()


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
