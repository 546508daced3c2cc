"""Strangers at the doors while ranks come together: before a door opens, while its rank waits for the others, when it is full."""

import os
import random
import select
import signal
import socket
import struct
import threading
import time

import torch.distributed as dist

from . import needs
from .case import Case, Measure
from .intruder import Doorkeeper, Intruder, News, bytes_told, descriptors, many_descriptors, stay
from .job import Outcome, Rank
from .strangers import GARBAGE, HALF, LOG, MANY, MEASURES, call_until

FIRST_PORT = 23_800  # the hosts are this job's own: nobody else is there
VISIT = 2.5  # seconds; all ranks come meanwhile
ASLEEP = 1.0  # seconds in which a rank looks at no door
SHORT_QUEUE = 16  # connections that a kernel keeps for a rank that does not accept them
HALF_OPEN = 20_000  # connections that are begun, and never confirmed
SOMEBODY = [f"10.77.0.{host}" for host in range(100, 200)]  # addresses that nobody has


def _at(told: dict) -> tuple[str, int]:
    return told["address"], told["port"]


def _crowd(words: list[bytes]):
    """As soon as the door opens and until the group is made: each says its words and stays."""

    def visit(news: News) -> dict:
        told = news.wait()
        many_descriptors()
        connections, end = [], time.monotonic() + VISIT
        while time.monotonic() < end:
            time.sleep(0.001)
            if len(connections) == told["count"]:
                continue
            try:
                connections.append(socket.create_connection(_at(told), timeout=5))
                connections[-1].sendall(words[len(connections) % len(words)])
            except OSError:
                pass  # the door is not open yet, or this one was shown it
        return stay(connections)

    return visit


def _burst(news: News) -> dict:
    """More connections at once than the kernel keeps, again and again, which say nothing."""
    told = news.wait()
    many_descriptors()
    made, heard, end = 0, 0, time.monotonic() + VISIT
    while time.monotonic() < end:
        connections = [socket.socket() for _ in range(4 * SHORT_QUEUE)]
        for one in connections:
            one.setblocking(False)
            one.connect_ex(_at(told))
        time.sleep(0.3)
        _, through, _ = select.select([], connections, [], 0)
        made += sum(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 for one in through)
        heard += bytes_told(connections)
        for one in connections:
            one.close()
    time.sleep(1.5)
    return {"made": made, "told": heard}


def _half_open(news: News) -> dict:
    """Connections from addresses that nobody has: the kernel answers, and hears no more of them."""
    told = news.wait()
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as wire:
        end = time.monotonic() + VISIT
        for number in range(told["count"] * HALF_OPEN // MANY):
            if time.monotonic() > end:
                break
            wire.sendto(_syn(SOMEBODY[number % len(SOMEBODY)], *_at(told)), (told["address"], 0))
            if number % 40 == 0:
                time.sleep(0.002)
    time.sleep(max(0.0, end - time.monotonic()))
    return {"made": 0, "told": 0}


def _syn(source: str, address: str, port: int) -> bytes:
    """A packet of IPv4 that begins a connection."""
    ends = socket.inet_aton(source) + socket.inet_aton(address)
    tcp = struct.pack("!HHIIBBHHH", random.randrange(1024, 65536), port, random.getrandbits(32), 0, 5 << 4, 2, 64_000, 0, 0)
    total = sum(struct.unpack("!16H", ends + struct.pack("!HH", socket.IPPROTO_TCP, len(tcp)) + tcp))
    total = (total & 0xFFFF) + (total >> 16)
    tcp = tcp[:16] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + tcp[18:]
    # The kernel fills in what it is for the kernel to say: length, number and sum.
    return struct.pack("!BBHHHBBH8s", 0x45, 0, 0, 0, 0, 64, socket.IPPROTO_TCP, 0, ends) + tcp


def _sleeps(rank: Rank) -> None:
    """Rank 1 stops while it waits for the others."""
    if rank.rank == 1:
        pid = os.getpid()
        if os.fork() == 0:
            time.sleep(0.4)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(ASLEEP)
            os.kill(pid, signal.SIGCONT)
            os._exit(0)


def _kernel_counts(name: str) -> int:
    """Of the network of this host: TcpExt of /proc/net/netstat."""
    with open("/proc/net/netstat") as lines:
        names, values = [line.split() for line in lines if line.startswith("TcpExt:")]
    return int(values[names.index(name)])


def _arriving(visit, meanwhile=lambda rank: None, queue: int = 0, counter: str = ""):
    """A group is made in peace, and once more with a visitor at each door. `queue`: what the kernel keeps of connections that are
    not accepted; `counter`: what it counts when there are more."""

    def function(rank: Rank) -> Outcome:
        if queue:
            with open("/proc/sys/net/core/somaxconn", "w") as setting:
                setting.write(str(queue))
        intruder = Intruder(visit)
        rank.begin()
        keeper = Doorkeeper(os.path.join(rank.folder, f"door.{rank.rank}"))
        tensor = rank.ones(1000)
        dist.all_reduce(tensor)
        rank.meet("in peace")
        calm, dropped = descriptors(), _kernel_counts(counter) if counter else 0
        dist.destroy_process_group()
        rank.meet("alone")
        # From the other host: with two ranks on each, the first two ports of each are theirs.
        other = rank.hosts[1 - rank.host.number].address()
        intruder.send_in(address=other, port=FIRST_PORT + rank.rank % 2, count=MANY // 10 if rank.quick else MANY)
        time.sleep(0.4 * rank.rank)
        meanwhile(rank)

        def job():
            if rank.rank == rank.size - 1:
                rank.fault_now()
            rank.join()
            dist.all_reduce(tensor.fill_(1))
            assert tensor.eq(rank.size).all()
            rank.figures["joined"] = rank.since_fault()
            rank.figures["calls"] = call_until(rank, tensor, intruder.is_done)
            ends = time.monotonic() + 2  # for those whom the kernel had kept
            call_until(rank, tensor, lambda: descriptors() <= calm - 2 or time.monotonic() > ends)
            rank.figures["descriptors"] = descriptors() + 2 - calm  # the visitor's pipes are closed
            rank.figures["told"] = intruder.answer["told"]
            # Of all doors together: who stood at which is not known here.
            made, refused = rank.ones(1).fill_(intruder.answer["made"]), rank.ones(1).fill_(sum(keeper.refused().values()))
            dist.all_reduce(made)
            dist.all_reduce(refused)
            rank.figures |= {"made": made.item(), "counted": refused.item(), "uncounted": made.item() - refused.item()}
            if counter:
                rank.figures["dropped"] = _kernel_counts(counter) - dropped
            with open(os.path.join(rank.folder, "log")) as log:
                rank.figures["logged"] = sum("refused" in line and "connection" in line for line in log)

        outcome = rank.attempt(job)
        keeper.close()
        return outcome

    return function


JOINED = Measure("joined", "the group works after the last rank has come, in", 3, "s")
COUNTED = Measure("counted", "attempts that were counted", SHORT_QUEUE, at_least=True)
HERE = {"kind": "done", "within": None, "hosts": 2, "needs": needs.network_namespaces, "slack": 20,
        "environment": {**LOG, "HCCL_LIKE_PORT_RANGE": f"{FIRST_PORT}-{FIRST_PORT + 1}"}}
_, DESCRIPTORS, TOLD, UNCOUNTED, LOGGED = MEASURES
ALL = (JOINED, DESCRIPTORS, TOLD, UNCOUNTED, LOGGED)
CASES = [
    Case("held-at-init", f"{MANY:,} strangers at each door say nothing while a group is made", _arriving(_crowd([b""])), measures=ALL, **HERE),
    Case("garbage-at-init", f"{MANY:,} strangers at each door say something else, or begin as a peer would, while a group is made",
         _arriving(_crowd([*GARBAGE, HALF])), measures=ALL, **HERE),
    Case("backlog-at-init", "strangers fill the kernel's queue before the door while its rank is stopped and a group is made",
         _arriving(_burst, _sleeps, SHORT_QUEUE, "ListenOverflows"), **HERE,
         measures=(JOINED, DESCRIPTORS, TOLD, COUNTED, LOGGED,
                   Measure("dropped", "connections for which the kernel had no place", 1, of="max", at_least=True))),
    Case("half-open-at-init", f"{HALF_OPEN:,} connections to each door are begun and never confirmed while a group is made",
         _arriving(_half_open, queue=64, counter="TCPReqQFullDoCookies"), **HERE,
         measures=(JOINED, DESCRIPTORS, TOLD,
                   Measure("dropped", "of which the kernel kept nothing", 1, at_least=True))),
]
