"""Who gets into a job: secrets, forged entries of the store, strangers at the doors. What ranks see of it."""

import os
import re
import socket
import stat
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import fresh
from ranks import make_store, run_ranks

SECRET = "0123456789abcdef" * 4


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return str(path)


def join(rank, size, listener, seconds=20):
    """What init_process_group and a first call raise; empty if nothing."""
    store = make_store(rank, listener)
    try:
        dist.init_process_group(
            "hccl-like", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=seconds)
        )
        tensor = torch.full((1000,), float(rank + 1))
        dist.all_reduce(tensor)
        assert tensor.eq(sum(range(1, size + 1))).all()
        text = ""
    except Exception as error:
        text = str(error)
    store.set(f"left{rank}", "")
    if rank == 0:
        store.wait([f"left{other}" for other in range(size)], timedelta(seconds=30))
    return text


def texts(size=3, **environment):
    def mine(rank):
        values = {name: value(rank) if callable(value) else value for name, value in environment.items()}
        return {name: value for name, value in values.items() if value is not None}

    return run_ranks(join, size, group=False, environment=mine)


@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
def test_ranks_with_one_secret_meet(secret_file, transports):
    from_file = texts(
        HCCL_LIKE_SECRET_FILE=lambda rank: secret_file if rank < 2 else None,
        HCCL_LIKE_SECRET=lambda rank: SECRET if rank == 2 else None,
        HCCL_LIKE_TRANSPORTS=transports,
    )
    assert from_file == ["", "", ""]


def test_a_rank_of_another_secret_is_named_and_nobody_waits_for_it():
    found = texts(HCCL_LIKE_SECRET=lambda rank: SECRET if rank != 1 else SECRET[::-1])
    for rank in (0, 2):
        assert re.search(rf"rank {rank} \(.*\) cannot join rank 1 \(.*, process \d+\): its record in the store", found[rank])
        assert "HCCL_LIKE_SECRET_FILE" in found[rank]
    assert "rank 0's entry in the store is not authentic" in found[1]
    assert not any(SECRET in text or SECRET[::-1] in text for text in found)


def test_a_secret_that_others_may_read_is_refused_with_the_command_that_mends_it(secret_file):
    os.chmod(secret_file, 0o644)
    for text in texts(size=2, HCCL_LIKE_SECRET_FILE=secret_file):
        assert f"chmod 600 {secret_file}" in text
    assert stat.S_IMODE(os.stat(secret_file).st_mode) == 0o644


def test_between_hosts_a_secret_can_be_demanded(make_hosts, secret_file):
    hosts = make_hosts(2)
    required = {"HCCL_LIKE_REQUIRE_AUTH": "1"}
    for text in run_ranks(join, 2, group=False, hosts=hosts, environment=required):
        assert "HCCL_LIKE_REQUIRE_AUTH=1, and the job has no secret" in text
    required["HCCL_LIKE_SECRET_FILE"] = secret_file
    assert run_ranks(join, 2, group=False, hosts=hosts, environment=required) == ["", ""]
    # One host needs none.
    assert texts(size=2, HCCL_LIKE_REQUIRE_AUTH="1") == ["", ""]


def with_a_forger(rank, size, listener):
    """Rank 2 comes late; before that somebody has written over its record and rank 1's."""
    if rank != 2:
        return join(rank, size, listener)
    # Only rank 0 may use the listening socket; a client needs its address.
    forger = dist.TCPStore(*listener.getsockname()[:2], is_master=False, wait_for_workers=False)
    deadline = time.monotonic() + 20
    while not (own := [key for key in forger.list_keys() if re.search(r"hccl_like/3/[0-9a-f]{16}/0$", key)]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    forger.set(own[0][:-1] + "1", "forged")
    forger.set(own[0][:-1] + "2", '{"protocol": 2}')
    return join(rank, size, listener)


def test_forged_entries_of_the_store_do_not_keep_ranks_apart(secret_file):
    environment = {"HCCL_LIKE_SECRET_FILE": secret_file}
    assert run_ranks(with_a_forger, 3, group=False, environment=environment) == ["", "", ""]


def strangers(ports, stop):
    """Holds a thousand connections, says garbage on others, and comes again."""
    held = []
    while not stop.is_set():
        for port in ports:
            try:
                one = socket.create_connection(("127.0.0.1", port), timeout=1)
            except OSError:
                continue
            if len(held) < 1000 and len(held) % 3:
                one.setblocking(False)
                held.append(one)
                continue
            held.append(one)
            try:
                one.sendall(b"hccl-like hello 02" + os.urandom(128) if len(held) % 2 else b"GET / HTTP/1.1\r\n\r\n")
            except OSError:
                pass
            if len(held) > 1000:
                held.pop(0).close()
    for one in held:
        one.close()


def calls_meanwhile(rank, size, listener):
    text = join(rank, size, listener)
    before = len(os.listdir("/proc/self/fd"))
    tensor = torch.ones(1000)
    for _ in range(200):
        dist.all_reduce(tensor)
        tensor.fill_(1)
    after = len(os.listdir("/proc/self/fd"))
    dist.destroy_process_group()
    return text, after - before


def test_strangers_at_the_doors_change_nothing(secret_file):
    # None that the system gives to those who connect: they would meet themselves there, and keep it from the ranks.
    ports = range(23700, 23703)
    stop = threading.Event()
    crowd = threading.Thread(target=strangers, args=(ports, stop))
    crowd.start()
    try:
        found = run_ranks(
            calls_meanwhile,
            3,
            group=False,
            environment={
                "HCCL_LIKE_SECRET_FILE": secret_file,
                "HCCL_LIKE_PORT_RANGE": "23700-23702",
                "HCCL_LIKE_TRANSPORTS": "tcp",
            },
        )
    finally:
        stop.set()
        crowd.join()
    for text, descriptors in found:
        assert text == ""
        assert descriptors <= 64, "strangers take no more than 64 places, for a second"


def large_calls(rank, size):
    """Larger than a frame and than all buffers, in both directions at once; odd sizes."""
    for count in (1, 16_383, 3_000_001):
        tensor = torch.arange(count, dtype=torch.float64) + rank
        dist.all_reduce(tensor)
        assert tensor.equal(size * torch.arange(count, dtype=torch.float64) + sum(range(size)))
        parts = [torch.full((count,), float(rank * size + other)) for other in range(size)]
        out = [torch.empty(count) for _ in range(size)]
        dist.all_to_all(out, parts)
        for other, part in enumerate(out):
            assert part.eq(other * size + rank).all()


@pytest.mark.parametrize("transports", ["tcp", "shm,tcp", "fabric,tcp"])
def test_encrypted_connections_carry_the_same(secret_file, transports, tmp_path):
    environment = {"HCCL_LIKE_SECRET_FILE": secret_file, "HCCL_LIKE_ENCRYPT": "1", "HCCL_LIKE_TRANSPORTS": transports}
    log = tmp_path / "log"
    run_ranks(large_calls, 3, environment={**environment, "HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": str(log)})
    assert ("encrypted tcp" in log.read_text()) == (transports == "tcp")
    assert SECRET not in log.read_text()


def test_encryption_is_the_same_on_all_ranks_and_needs_a_secret(secret_file):
    for text in texts(HCCL_LIKE_SECRET_FILE=secret_file, HCCL_LIKE_ENCRYPT=lambda rank: "1" if rank == 1 else None):
        assert re.search(r"HCCL_LIKE_ENCRYPT is not set on rank 0 \(.*\) and 1 on rank 1 \(.*set it alike on all ranks", text)
    for text in texts(size=2, HCCL_LIKE_ENCRYPT="1"):
        assert "HCCL_LIKE_ENCRYPT=1 needs a secret that is not in the store" in text


def test_the_secret_is_shown_by_no_command(secret_file):
    environment = {**os.environ, "HCCL_LIKE_SECRET": SECRET, "HCCL_LIKE_DEBUG": "TRACE"}
    shown = fresh.run(["-m", "hccl_like", "settings"], env=environment)
    assert SECRET not in shown.stdout + shown.stderr
    assert "HCCL_LIKE_SECRET" in shown.stdout and "(set)" in shown.stdout
