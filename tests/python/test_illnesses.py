"""Illnesses that are planted in a job, and the command that names each in its first line. docs/illnesses.md shows the same table."""

import contextlib
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from jobs import job
from ranks import run_ranks

from hccl_like import cli
from hccl_like.doctor import _command, _job, _links

PAGE = Path(__file__).parents[2] / "docs" / "illnesses.md"


@dataclass(frozen=True)
class Illness:
    name: str  # as the page has it
    plant: Callable  # (Bed) to the first line that the command printed
    first: str  # a pattern of that line
    command: str  # as the page has it
    marks: tuple = ()


class Bed:
    """What a planted illness needs: a folder, hosts, and the commands."""

    def __init__(self, folder, request, capsys):
        self.folder, self.request, self.capsys = folder, request, capsys

    def hosts(self, *arguments, **how):
        return self.request.getfixturevalue("make_hosts")(*arguments, **how)

    def said(self, *arguments):
        """The first line that a command prints here."""
        self.capsys.readouterr()
        cli.main([*map(str, arguments)])
        return self.capsys.readouterr().out.splitlines()[0]

    def top(self, ranks, seconds=0.5):
        return self.said("top", "--once", "--interval", seconds, ranks[0].pid)

    def hang(self, ranks):
        return self.said("hang", "--after", "0.5", "--pid", *(rank.pid for rank in ranks))


def examined(rank, size, listener, port, patience, ill):
    """The lines that `python -m hccl_like.doctor` prints on this rank of a job."""
    address = listener.getsockname()[0]
    listener.close()
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR=address, MASTER_PORT=str(port))
    _job._LATE = patience
    ill(rank)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        _command.main(["--device", "cpu"])
    return out.getvalue().splitlines()


def doctor(size, port=0, patience=20.0, ill=lambda rank: None, **how):
    """The first line of rank 0 of a job."""
    with socket.create_server(("127.0.0.1", port)) as free:
        port = free.getsockname()[1]
    return run_ranks(examined, size, port, patience, ill, group=False, timeout=110, **how)[0][0]


def sleeps(bed):
    with job(bed.folder, "slow", size=2) as ranks:
        return bed.top(ranks)


def is_stopped(bed):
    with job(bed.folder, "none", size=2) as ranks:
        os.kill(ranks[1].pid, signal.SIGSTOP)
        time.sleep(0.3)
        return bed.top(ranks)


def dies(bed):
    traces = bed.folder / "traces"
    with job(bed.folder, "none", size=2, TORCH_FR_DUMP_TEMP_FILE=f"{traces}/trace_") as ranks:
        ranks[1].kill()
        ranks[0].wait(timeout=60)
        return bed.said("hang", traces)


def slow_link(bed):
    hosts = bed.hosts(3)
    hosts[2].run(["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "20mbit", "burst", "64kb", "latency", "50ms"])
    return doctor(3, hosts=hosts)


def different_sizes(rank, size):
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:  # the last, so that all ranks have made their calls
        store.wait(["made/0", "made/2"])
    with pytest.raises(dist.DistBackendError):
        work = dist.all_reduce(torch.ones(6 if rank == 1 else 5), async_op=True)
        store.set(f"made/{rank}", "")
        work.wait()


def mismatch(bed):
    run_ranks(different_sizes, 3, environment={"TORCH_FR_DUMP_TEMP_FILE": f"{bed.folder}/trace_"})
    return bed.said("hang", bed.folder)


def wrong_interface(bed):
    bed.request.getfixturevalue("monkeypatch").setenv("HCCL_LIKE_SOCKET_IFNAME", "=ib0")
    return bed.said("doctor", "--device", "cpu", "--no-self-test")


def firewall(bed):
    hosts = bed.hosts(2)
    for host in hosts:
        host.drop(port="40000-40003")
    return doctor(2, hosts=hosts, environment={"HCCL_LIKE_PORT_RANGE": "40000-40003", "HCCL_LIKE_CONNECT_TIMEOUT_MS": "3000"})


FULL = "mount -t tmpfs -o size=1m none /dev/shm && head -c 2m /dev/zero > /dev/shm/full 2> /dev/null; exec \"$@\""


def full_memory(bed):
    doctor = [sys.executable, "-m", "hccl_like", "doctor", "--device", "cpu", "--no-self-test"]
    done = subprocess.run(["unshare", "--mount", "sh", "-c", FULL, "sh", *doctor], capture_output=True, text=True, timeout=120)
    if "unshare" in done.stderr:
        pytest.skip(f"a memory of its own takes root: {done.stderr}")
    return done.stdout.splitlines()[0]


def skewed(rank):
    if rank == 1:
        real = time.time
        _job.time.time = lambda: real() + 100


def clock(bed):
    return doctor(3, ill=skewed)


HOG = "while True: pass"


def hog(bed):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("a hog takes one of two cores")
    with contextlib.ExitStack() as stack:
        ranks = stack.enter_context(job(bed.folder, "busy", size=2))
        for rank, core in zip(ranks, cores):
            os.sched_setaffinity(rank.pid, {core})
        with contextlib.suppress(PermissionError):  # whatever else this machine does shall not slow rank 0 down
            os.setpriority(os.PRIO_PROCESS, ranks[0].pid, -20)
        for _ in range(4):
            one = stack.enter_context(subprocess.Popen([sys.executable, "-c", HOG]))
            stack.callback(one.kill)
            os.sched_setaffinity(one.pid, {cores[1]})
        time.sleep(1)
        return bed.top(ranks, seconds=2)


def two_jobs(bed):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        environment = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        monkeypatch = bed.request.getfixturevalue("monkeypatch")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return bed.said("doctor", "--device", "cpu")


def data_loader(bed):
    with job(bed.folder, "loader", size=3) as ranks:
        return bed.hang(ranks)


needs_nft = pytest.mark.skipif(shutil.which("nft") is None, reason="dropping packets takes nft (nftables)")
needs_tc = pytest.mark.skipif(shutil.which("tc") is None, reason="a slow link takes tc (iproute2)")
HERE = os.uname().nodename

ILLNESSES = [
    Illness("a rank sleeps", sleeps, r"rank 1 comes last: the others wait for it \d+% of the time(;.*)?", "hccl-like top"),
    Illness("a rank is stopped (SIGSTOP)", is_stopped, r"rank 1 \(pid \d+\) is stopped by a signal; rank 0 waits for it", "hccl-like top"),
    Illness("a rank dies", dies, r"rank 1 is gone: rank 0 says: peer lost \(rank 1\): .*", "hccl-like hang /tmp/traces"),
    Illness("one link is slow", slow_link, r"hint: the network (of|out of) rank 2 \(host2\) is slow: [\d.]+ MB/s at best, and [\d.]+ .B/s between others",
            "torchrun ... -m hccl_like.doctor", (needs_tc, pytest.mark.slow)),
    Illness("a call does not match", mismatch, r"rank 1 disagrees with the others about call #2 of group default_pg: ranks 0 and 2 made "
            r"all_reduce of Float \[5\]; rank 1 made all_reduce of Float \[6\]", "hccl-like hang /tmp/traces"),
    Illness("the wrong interface", wrong_interface, r"problem: HCCL_LIKE_SOCKET_IFNAME==ib0 leaves no network interface.*", "hccl-like doctor"),
    Illness("a port behind a firewall", firewall, r"problem: .* 10\.77\.0\.[12]:4000[0-3]: no answer \(a firewall drops this port: .*",
            "torchrun ... -m hccl_like.doctor", (needs_nft, pytest.mark.slow)),
    Illness("shared memory is full", full_memory, r"hint: /dev/shm has 0 B left: .*", "hccl-like doctor", (pytest.mark.slow,)),
    Illness("a clock is off", clock, r"hint: the clock of rank 1 \(.*\) is 100\.0 s ahead of the others': .*", "torchrun ... -m hccl_like.doctor"),
    Illness("another program takes the processor", hog, r"rank 1 comes last: the others wait for it \d+% of the time; it waits for a processor "
            r"\d+% of the time, and process \d+ \(\S+\) takes [\d.]+ of \d+", "hccl-like top", (pytest.mark.slow,)),
    Illness("two jobs use one port", two_jobs, r"problem: rank 0 \(.*\): port \d+, at which rank 0 has to serve the job's store, is taken by process "
            r"\d+ \(.*\): give each job a MASTER_PORT of its own", "torchrun ... -m hccl_like.doctor"),
    Illness("a rank is in its data loader", data_loader, r"rank 2 \(host .*, pid \d+\) never entered all_reduce #3 of group default_pg; its last "
            r"call there is broadcast #2(; it is in a data loader .*)?", "hccl-like hang"),
]


@pytest.mark.parametrize("ill", [pytest.param(ill, id=ill.name, marks=ill.marks) for ill in ILLNESSES])
def test_the_command_names_the_illness_in_its_first_line(ill, tmp_path, request, capsys):
    first = ill.plant(Bed(tmp_path, request, capsys))
    assert re.fullmatch(ill.first, first), first


def test_of_a_healthy_job_no_command_names_one(tmp_path, request, capsys):
    bed = Bed(tmp_path, request, capsys)
    with job(tmp_path, "none", size=2) as ranks:
        well = "no rank keeps the others waiting"  # in one of some looks: this machine may have kept a rank from its processor in another
        lines = [next((line for line in (bed.top(ranks) for _ in range(5)) if line == well), ""), bed.hang(ranks)]
    lines.append(doctor(2))
    assert not [line for line in lines for ill in ILLNESSES if re.fullmatch(ill.first, line)]
    assert lines[:2] == [well, "no hang: no rank waits in a call"]
    assert lines[2] == "everything is in order" or "cores" in lines[2]


@pytest.mark.slow
@needs_tc
def test_of_healthy_hosts_no_link_is_slow(request):
    hosts = request.getfixturevalue("make_hosts")(3)
    assert "is slow" not in doctor(3, hosts=hosts)


def test_the_page_shows_the_table_as_the_commands_print_it():
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in PAGE.read_text().splitlines() if re.match(r"\| [a-z].*`", line)]
    assert [(name, command) for name, command, _ in rows] == [(ill.name, ill.command) for ill in ILLNESSES]
    assert [first for (_, _, first), ill in zip(rows, ILLNESSES) if not re.fullmatch(ill.first, first)] == []


# ------------------------------------------------------------------------------------------------------- which link is slow

NAMES = {0: "rank 0 (a)", 1: "rank 1 (b)", 2: "rank 2 (c)"}


def speeds(slow=(), ranks=NAMES):
    return {(a, b): 1e7 if (a, b) in slow else 1e9 for a in ranks for b in ranks if a != b}


@pytest.mark.parametrize("slow, told", [
    ((), []),
    (((2, 0), (2, 1)), ["the network out of rank 2 (c) is slow: 10 MB/s at best, and 1.0 GB/s between others"]),
    (((2, 0), (2, 1), (0, 2), (1, 2)), ["the network of rank 2 (c) is slow: 10 MB/s at best, and 1.0 GB/s between others"]),
    (((2, 0), (2, 1), (0, 1)), ["the network out of rank 2 (c) is slow: 10 MB/s at best, and 1.0 GB/s between others",
                                "the network from rank 0 (a) to rank 1 (b) is slow: 90 MB/s, and 1.0 GB/s elsewhere"]),
    (((0, 1),), ["the network from rank 0 (a) to rank 1 (b) is slow: 10 MB/s, and 1.0 GB/s elsewhere"])])  # fmt: skip
def test_the_host_or_the_way_that_is_slow_is_named(slow, told):
    found = speeds(slow)
    if len(slow) == 3:
        found[0, 1] = 9e7  # slow, and not by the fault of rank 1
    assert _links.slow(found, NAMES) == told


def test_of_two_hosts_the_slower_way_is_named():
    two = {0: "rank 0 (a)", 1: "rank 1 (b)"}
    assert _links.slow(speeds([(1, 0)], two), two) == ["the network from rank 1 (b) to rank 0 (a) is slow: 10 MB/s, and 1.0 GB/s elsewhere"]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_every_pair_of_hosts_meets_once(count):
    rounds = list(_links.rounds(range(count)))
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(met) == len(set(met)) == count * (count - 1) // 2
    assert all(len({rank for pair in pairs for rank in pair}) == 2 * len(pairs) for pairs in rounds)
