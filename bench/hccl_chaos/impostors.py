"""Strangers who know how a peer speaks: they forge, repeat and redirect, and lack the secret."""

import json
import os
import re
import select
import socket
import time
from datetime import timedelta

import torch.distributed as dist

from . import needs
from .case import Case, Measure, at_the_time_out
from .intruder import HELLO, Intruder, News, bytes_told, hello, knock
from .job import Outcome, Rank
from .strangers import LOG, MEASURES, UNHARMED, visited

SECRET = {"HCCL_LIKE_SECRET": "0123456789abcdef" * 4}  # of these jobs
TCP = {"HCCL_LIKE_TRANSPORTS": "tcp"}
HELLO_BYTES = len(hello("0" * 32))
RECORD = re.compile(r"hccl_like/\d+/[0-9a-f]{16}/(\d+|all)$")


def _forged_hellos(news: News) -> dict:
    """Hellos for the very process, with a tag that was drawn, and for another one."""
    told = news.wait()
    words = [hello(told["id"]), hello(os.urandom(16).hex())]
    connections = [knock(told["port"], words[i % 2]) for i in range(100)]
    time.sleep(1.5)
    return {"made": len(connections), "told": bytes_told(connections)}


def _records(store) -> dict[str, str]:
    return {key: store.get(key).decode(errors="replace") for key in store.list_keys() if RECORD.search(key)}


def _own_id(rank: Rank) -> dict:
    """As the store tells everybody."""
    for text in _records(rank.store()).values():
        if f'"pid":{os.getpid()},' in text and text[16:17] == "{":
            return {"id": re.search(r'"id":"([0-9a-f]{32})"', text)[1]}
    raise LookupError("the store has no record of this process")


def _replayed_hellos(news: News) -> dict:
    """What peers of this rank have said on the wire, heard there and said again."""
    heard: dict[int, set[bytes]] = {}
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as ear:
        ear.bind(("lo", 0))
        while not news.is_there():
            if not select.select([ear, news], [], [], 1)[0]:
                continue
            packet = ear.recv(1 << 16) if select.select([ear], [], [], 0)[0] else b""
            place = packet.find(HELLO)
            words = packet[place : place + HELLO_BYTES]
            if place >= 0 and len(words) == HELLO_BYTES:
                heard.setdefault(_to_port(packet), set()).add(words)
    told = news.wait()
    connections = [knock(told["port"], words) for words in heard.get(told["port"], ()) for _ in range(50)]
    time.sleep(1.5)
    return {"made": len(connections), "told": bytes_told(connections)}


def _to_port(frame: bytes) -> int:
    """Of a frame of Ethernet that has TCP in IPv4 or IPv6."""
    header = 40 if frame[14] >> 4 == 6 else 4 * (frame[14] & 15)
    return int.from_bytes(frame[14 + header + 2 : 14 + header + 4], "big")


def _forge(news: News, store_of) -> dict:
    """Leads all who read the store to a port of its own, and counts what they say there."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as trap:
        trap.settimeout(0)
        store, said, forged, came = store_of(), b"", set(), []
        while not news.is_there():
            for key, text in _records(store).items():
                if f'"port":{trap.getsockname()[1]},' in text:
                    continue
                moved = re.sub(r'"port":\d+', f'"port":{trap.getsockname()[1]}', text)
                store.set(key, re.sub(r'"addresses":\[[^]]*\]', '"addresses":["127.0.0.1"]', moved))
                forged.add(key)
            try:
                came.append(trap.accept()[0])
            except BlockingIOError:
                time.sleep(0.001)
        for one in came:
            one.settimeout(0)
            try:
                said += one.recv(1 << 16)
            except OSError:
                pass
    # A hello shows nothing: no more than that may leave before the other end has proved itself.
    beyond = len(re.sub(re.escape(HELLO) + b"[0-9a-f]{66}" + b"." * 64, b"", said, flags=re.DOTALL))
    return {"forged": len(forged), "said": beyond}


def _forged_at_init(rank: Rank) -> Outcome:
    intruder = Intruder(lambda news: _forge(news, rank.store)) if rank.rank == 0 else None
    if rank.rank == rank.size - 1:  # whoever comes last reads what was forged
        time.sleep(0.5)
    outcome = rank.attempt(lambda: (rank.join(), dist.all_reduce(rank.ones(1000))))
    rank.meet("over")
    if intruder:
        intruder.send_in(end=True)
        while not intruder.is_done():
            time.sleep(0.01)
        outcome.figures |= intruder.answer
    return either(outcome)


def either(outcome: Outcome) -> Outcome:
    """Both an error with a sentence and a right result are an answer."""
    sentence = len(outcome.text.split()) > 4
    kind = "done" if outcome.kind == "raised" and sentence else outcome.kind
    return Outcome(kind, outcome.seconds, outcome.error, outcome.text, outcome.figures)


def _forged_later(rank: Rank) -> Outcome:
    """Every record is forged while the job runs; ranks that were never connected need each other then."""
    rank.begin()
    dist.all_reduce(rank.ones(1000))
    rank.meet("ready")
    if rank.rank == 0:
        store = rank.store()
        for key in _records(store):
            store.set(key, '{"protocol": 2}')
    rank.meet("forged")

    def job():
        tensor = rank.ones(1000)
        if rank.rank < 2:
            dist.send(tensor, rank.rank + 2)
        else:
            dist.recv(tensor.zero_(), rank.rank - 2)
        dist.all_reduce(tensor)
        assert tensor.eq(rank.size).all()

    return rank.attempt(job)


def _joins_twice(rank: Rank) -> Outcome:
    """A stray process comes with the identity of rank 0, by the same store, while the job runs."""
    intruder = Intruder(lambda news: _stray(rank, news)) if rank.rank == 0 else None
    rank.begin()
    tensor = rank.ones(1000)
    dist.all_reduce(tensor)

    def job():
        if intruder:
            intruder.send_in(join=True)
        left = rank.ones(1)
        while left.item():
            dist.all_reduce(tensor.fill_(1))
            assert tensor.eq(rank.size).all()
            left.fill_(0 if intruder is None or intruder.is_done() else 1)
            dist.broadcast(left, 0)
        if intruder:
            rank.figures["stray"] = intruder.answer["seconds"] - rank.timeout

    return rank.attempt(job)


def _stray(rank: Rank, news: News) -> dict:
    news.wait()
    return {"seconds": rank.attempt(rank.join).seconds}


OF_A_PEER = {**UNHARMED, "environment": {**LOG, **TCP, **SECRET}, "ranks": 4}
CASES = [
    Case("forged-hello", "those who lack the key greet as another job's peer does", visited(_forged_hellos, _own_id),
         **{**OF_A_PEER, "environment": {**LOG, **SECRET}}),
    Case("replay", "what peers said on the wire is said again, 50 times each", visited(_replayed_hellos),
         **{**OF_A_PEER, "needs": needs.root,
            "measures": (*MEASURES[:4], Measure("made", "hellos that were said again, of all ranks", 50, at_least=True))}),
    Case("forged-store", "records in the store lead elsewhere while a group is made", _forged_at_init, kind="done",
         environment={**TCP, **SECRET}, within=at_the_time_out,
         measures=(Measure("forged", "records that were forged", 3, at_least=True),
                   Measure("said", "bytes beyond a hello that were said elsewhere", 0))),
    Case("forged-later", "all records in the store are forged while a job runs", _forged_later, kind="done",
         environment={**TCP, **SECRET}),
    Case("stray", "a process comes as a rank that is there", _joins_twice, kind="done", ranks=2, within=None, slack=20,
         measures=(Measure("stray", "the stray process raises after its time-out by", 2, "s"),)),
]
