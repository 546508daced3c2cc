"""hccl-like doctor under a launcher: rank 0 names the rank that differs from the others."""

import json
import os
import resource
import subprocess
import sys
import time

import pytest

from hccl_like.doctor import _job
from hccl_like.doctor._findings import Findings
from ranks import run_ranks


def alike(count=3, **other):
    """What ranks of one host tell; `other`: name to (rank, value)."""
    told = {}
    for rank in range(count):
        compared = {"PyTorch": ("must be alike", "2.13.0"), "open files": ("should be alike", "65536"), "cores": ("should be alike", "8")}
        told[rank] = {"host": "hosta", "pid": 100 + rank, "boot": "b", "net": "n", "cores": 8.0, "compared": compared}
    for name, (rank, value) in other.items():
        name = name.replace("_", " ")
        told[rank]["compared"][name] = (told[rank]["compared"][name][0], value)
    return told


def test_the_rank_with_another_version_is_a_problem():
    findings = Findings()
    _job.judge(alike(PyTorch=(1, "2.12.1")), findings)
    assert findings.problems == ["rank 1 (hosta) differs in PyTorch: 2.12.1; the others have 2.13.0"]
    assert findings.hints == []


def test_another_limit_is_a_hint():
    findings = Findings()
    _job.judge(alike(open_files=(2, "1024")), findings)
    assert findings.hints == ["rank 2 (hosta) differs in open files: 1024; the others have 65536"]
    assert findings.problems == []


def test_more_ranks_than_cores_is_a_hint():
    told = alike(9)
    findings = Findings()
    _job.judge(told, findings)
    assert findings.hints == ["hosta has 9 ranks for 8 cores: ranks that wait take time from those that compute"]


def test_a_clock_that_is_off_is_a_hint():
    findings = Findings()
    _job.judge_clocks({1: 0.001, 2: -3.2}, alike(), findings)
    assert len(findings.hints) == 1 and findings.hints[0].startswith("the clock of rank 2 (hosta) is 3.2 s behind the others': ")
    findings = Findings()
    _job.judge_clocks({1: 5.0, 2: 5.001}, alike(), findings)
    assert len(findings.hints) == 1 and findings.hints[0].startswith("the clock of rank 0 (hosta) is 5.0 s behind the others': ")


# ------------------------------------------------------------------------------------------------------------ real ranks


def examined(rank, size, listener, port, ill):
    """What rank `rank` finds out; one of them is ill."""
    address = listener.getsockname()[0]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR=address, MASTER_PORT=str(port))
    listener.close()
    _job._LATE = 3.0
    if rank == 1 and ill == "files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (777, 777))
    if rank == 1 and ill == "clock":
        real = time.time
        _job.time.time = lambda: real() + 100
    if rank == 1 and ill == "absent":
        time.sleep(4.5)
        return None
    findings = Findings()
    _job.examine("cpu", findings)
    return findings.problems, findings.hints


def examine(ill, size=3, **options):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return run_ranks(examined, size, port, ill, group=False, **options)


def test_a_job_in_order_has_no_problem():
    every = examine("nobody")
    assert [problems for problems, _ in every] == [[], [], []]
    assert [hint for hint in every[0][1] if "cores:" not in hint] == []


def test_a_rank_with_other_settings_is_named():
    every = examine("settings", environment=lambda rank: {"HCCL_LIKE_SLICE_BYTES": "4K"} if rank == 1 else {})
    problems = every[0][0]
    assert every[1][0] == problems and every[2][0] == problems  # all exit alike
    assert any(one.startswith("rank 1 ") and "HCCL_LIKE_SLICE_BYTES=4096" in one for one in problems), problems


def test_a_rank_with_few_descriptors_is_named():
    _, hints = examine("files")[0]
    assert any(one.startswith("rank 1 ") and "differs in open files: 777" in one for one in hints), hints


def test_a_rank_with_another_clock_is_named():
    _, hints = examine("clock")[0]
    assert any(one.startswith("the clock of rank 1 ") and "100.0 s ahead of the others'" in one for one in hints), hints


def test_a_rank_that_does_not_come_is_named():
    every = examine("absent")
    assert every[1] is None
    assert every[0][0] == ["rank 1 never came to the store within 3 s; 2 of 3 ranks did"] == every[2][0]


def test_a_port_that_a_firewall_closes_is_named(make_hosts):
    hosts = make_hosts(2)
    hosts[1].drop(port="40000-40003")
    hosts[0].drop(port="40000-40003")
    every = run_ranks(examined, 2, 29733, "nobody", hosts=hosts, group=False, environment={"HCCL_LIKE_PORT_RANGE": "40000-40003"})
    assert any("40000" in one and "no answer" in one for one in every[0][0]), every


@pytest.mark.slow
def test_the_command_under_torchrun_says_first_who_is_odd(tmp_path):
    report = tmp_path / "found.json"
    odd = tmp_path / "odd.sh"
    odd.write_text('#!/bin/sh\n[ "$RANK" = 1 ] && export HCCL_LIKE_SLICE_BYTES=4K\n'
                   f'exec {sys.executable} -m hccl_like.doctor --device cpu --json {report}.$RANK\n')
    odd.chmod(0o755)
    told = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", "--no-python", str(odd)],
        capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    assert told.returncode != 0
    first = told.stdout.splitlines()[0]
    assert first.startswith("problem: rank 1 ") and "HCCL_LIKE_SLICE_BYTES=4096" in first, told.stdout
    assert json.loads((tmp_path / "found.json.0").read_text())["problems"]
