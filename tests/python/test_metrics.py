"""HCCL_LIKE_METRICS: what Prometheus reads of a healthy job and of one made ill, and what is left when the job ends."""

import json
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from jobs import job
from ranks import RankFailed, run_ranks

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed: requirements/test.txt has it")

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def port():
    """The first of some ports that are free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            found = first.getsockname()[1]
            try:
                for after in (1, 2):
                    socket.create_server(("127.0.0.1", found + after)).close()
            except OSError:
                continue
        return found


def served(port, **more):
    return lambda rank: {"HCCL_LIKE_METRICS": str(port), "LOCAL_RANK": str(rank), **more}


def text_at(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


def values(text):
    """{(metric, collective or ""): value} of the samples."""
    return {(one.name, one.labels.get("collective", "")): one.value for family in parser.text_string_to_metric_families(text) for one in family.samples}


def makes_calls(rank, size, port):
    for _ in range(3):
        dist.all_reduce(torch.ones(2))
    dist.broadcast(torch.ones(5), 0)
    dist.all_reduce(torch.ones(1 << 20), async_op=True).wait()
    text = text_at(port + rank)
    dist.barrier()
    return text


def test_a_healthy_job_is_told_in_prometheus_s_format(port):
    for rank, text in enumerate(run_ranks(makes_calls, 2, port, environment=served(port, HCCL_LIKE_DIRECT="0"))):
        told = values(text)
        assert told["hccl_like_calls_total", "all_reduce"] == 4
        assert told["hccl_like_bytes_total", "all_reduce"] == 3 * 8 + (4 << 20)
        assert told["hccl_like_bytes_total", "broadcast"] == 20
        assert 0 < told["hccl_like_seconds_total", "all_reduce"] < 60
        assert told["hccl_like_failed_calls_total", "all_reduce"] == told["hccl_like_refused_calls_total", ""] == 0
        assert told["hccl_like_in_flight", ""] == told["hccl_like_in_flight_seconds", ""] == 0
        assert told["hccl_like_sent_bytes_total", ""] > 1 << 20, "a large all_reduce is made of messages here"
        (info,) = [one for family in parser.text_string_to_metric_families(text) if family.name == "hccl_like_info" for one in family.samples]
        assert (info.labels["rank"], info.labels["world_size"]) == (str(rank), "2")
        families = [family.name for family in parser.text_string_to_metric_families(text)]
        assert len(set(families)) == len(families), "each metric has one block"


def test_of_a_job_that_hangs_the_rank_that_stays_behind_is_seen(tmp_path, port):
    with job(tmp_path, "data", size=3, HCCL_LIKE_METRICS=str(port)):
        deadline = time.monotonic() + 20
        while (told := [values(text_at(port + rank)) for rank in range(3)])[0]["hccl_like_in_flight_seconds", ""] < 0.3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert [one["hccl_like_collectives_made_total", ""] for one in told] == [3, 3, 2]
    assert [one["hccl_like_in_flight", ""] for one in told] == [1, 1, 0]


def waited_for(port):
    """{peer: seconds that rank 0 waited for it}."""
    families = parser.text_string_to_metric_families(text_at(port))
    return {int(one.labels["peer"]): one.value for family in families for one in family.samples if one.name == "hccl_like_waited_seconds_total"}


def comes_late(rank, size, port, call):
    """Rank 2 makes the call once rank 0 has waited long enough for it."""
    dist.barrier()
    deadline = time.monotonic() + 20
    while rank == 2 and (told := waited_for(port)).get(2, 0) < 0.1 + told.get(1, 0):
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
    if call == "all_reduce":
        dist.all_reduce(torch.ones(2))
    elif rank != 1:
        dist.recv(torch.ones(2), 2) if rank == 0 else dist.send(torch.ones(2), 0)
    dist.barrier()
    told = waited_for(port)
    dist.barrier()  # rank 0, which serves, stays until all have read
    return told


@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
@pytest.mark.parametrize("call", ["all_reduce", "message"])
def test_the_seconds_of_waiting_are_told_by_peer(port, transports, call):
    for told in run_ranks(comes_late, 3, port, call, environment=served(port, HCCL_LIKE_TRANSPORTS=transports)):
        assert 0 not in told or told[0] == 0
        assert told[2] >= 0.1 + told.get(1, 0)


def fails(rank, size, port):
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(3 + rank))
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(3))
    return values(text_at(port + rank))


def test_failed_and_refused_calls_are_told(port):
    for told in run_ranks(fails, 2, port, environment=served(port)):
        assert told["hccl_like_failed_calls_total", "all_reduce"] == 1
        assert told["hccl_like_refused_calls_total", ""] == 1


def ends(rank, size, listener, port):
    threads = threading.active_count(), len(os.listdir("/proc/self/task"))
    dist.init_process_group("hccl-like", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(1))
    child = os.fork()
    if child == 0:
        os._exit(len(os.listdir("/proc/self/task")))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1, "a child of fork() has no thread of it"
    assert ("hccl_like_calls_total", "all_reduce") in values(text_at(port)), "and the parent goes on"
    dist.destroy_process_group()
    with pytest.raises(urllib.error.URLError):
        text_at(port)
    return threads[0] == threading.active_count()


def test_nothing_is_left_after_the_last_group_and_a_fork_does_no_harm(port):
    assert run_ranks(ends, 1, port, environment=served(port), group=False) == [True]


def writes(rank, size, folder):
    dist.all_reduce(torch.ones(2))
    told = values((folder / f"job.{rank}.prom").read_text())
    dist.barrier()
    return told


def test_a_file_is_written_for_each_rank_and_removed_at_the_end(tmp_path):
    where = {"HCCL_LIKE_METRICS": str(tmp_path / "job.prom")}
    for told in run_ranks(writes, 2, tmp_path, environment=lambda rank: {**where, "LOCAL_RANK": str(rank)}):
        assert told["hccl_like_info", ""] == 1
    assert list(tmp_path.iterdir()) == []


def goes_on(rank, size):
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return tensor.item()


def test_a_job_goes_on_where_the_port_is_taken(port, tmp_path):
    with socket.create_server(("127.0.0.1", port)):
        assert run_ranks(goes_on, 2, environment=served(port, HCCL_LIKE_DEBUG_FILE=f"{tmp_path}/log")) == [2, 2]
    told = (tmp_path / "log").read_text()
    assert f"cannot listen at 127.0.0.1:{port}" in told and "LOCAL_RANK" in told


def test_a_setting_that_is_no_place_is_refused():
    with pytest.raises(RankFailed, match="HCCL_LIKE_METRICS: 'everywhere' is not a place for metrics; write a port"):
        run_ranks(goes_on, 1, environment={"HCCL_LIKE_METRICS": "everywhere"})


def test_the_page_and_the_dashboard_name_the_metrics_that_there_are(port):
    (text,) = run_ranks(makes_calls, 1, port, environment=served(port))
    there = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    page = (DOCS / "metrics.md").read_text()
    assert set(re.findall(r"`(hccl_like_\w+)`", page)) == there
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    used = {name for expression in asked for name in re.findall(r"hccl_like_\w+", expression)}
    assert used and used <= there
