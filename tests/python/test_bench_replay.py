"""hccl-like bench --replay: the calls of a job again, from its dumps."""

import json
import os

import pytest
import torch
import torch.distributed as dist

import fresh
from hccl_like import _dumps
from hccl_like.bench import replay
from ranks import run_ranks


def worked(rank, size, folder):
    """Calls of several kinds, and one with unequal parts."""
    whole, part = torch.ones(6000), torch.ones(3000)
    dist.all_reduce(whole)
    dist.all_gather_into_tensor(whole, part)
    dist.reduce_scatter_tensor(part, whole)
    dist.broadcast(whole.bfloat16(), 1)
    dist.reduce(part, 0)
    dist.gather(part, [torch.empty(3000), torch.empty(3000)] if rank == 0 else None)
    dist.all_to_all_single(torch.empty(3 + rank * 2), torch.ones(3 + rank * 2), [1 + rank, 2 + rank], [1 + rank, 2 + rank])
    if rank:
        dist.send(part, 0)
    else:
        dist.recv(part, 1)
    dist.all_reduce(part, group=dist.new_group([0, 1]))
    dist.barrier()
    import hccl_like

    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = f"{folder}/job_"
    hccl_like.write_flight_recorder()


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    run_ranks(worked, 2, str(folder), environment={"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/job_"})
    return folder


def command(*arguments):
    return fresh.run(["-m", "hccl_like", "bench", "--replay", *arguments])


def test_all_calls_of_equal_parts_are_planned(dumps):
    plans = replay.plan(_dumps.read_all([str(dumps)]))
    assert [replay._name(record) for record in plans[0]] == [
        "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "recv", "all_reduce", "barrier",
    ]  # fmt: skip
    assert [record.number for record in plans[1] if not record.is_message] == [r.number for r in plans[0] if not r.is_message]


def test_calls_are_made_again(dumps, tmp_path):
    told = command(str(dumps), "-J", str(tmp_path / "rows.json"))
    assert told.returncode == 0, told.stderr
    assert "# 18 calls of 2 ranks, backend hccl-like, device cpu" in told.stdout
    assert "# 2 calls are left out" in told.stdout
    rows = {row["call"]: row for row in json.loads((tmp_path / "rows.json").read_text())}
    assert set(rows) == {
        "all_reduce Float [6000]", "all_gather Float [6000]", "reduce_scatter Float [6000]", "broadcast BFloat16 [6000]", "reduce Float [3000]",
        "gather Float [3000] ...", "recv Float [3000]", "all_reduce Float [3000]", "barrier",
    }  # fmt: skip
    assert all(row["replayed_us"] > 0 for row in rows.values())


@pytest.mark.slow
def test_another_backend_makes_them_too(dumps):
    told = command(str(dumps), "--backend", "gloo", "-n", "1")
    assert told.returncode == 0 and "backend gloo" in told.stdout, told.stderr


def test_what_is_no_dump_is_refused(tmp_path):
    (tmp_path / "trace_0").write_text("nothing")
    told = command(str(tmp_path))
    assert told.returncode == 2 and "not a dump of the flight recorder" in told.stderr and "Traceback" not in told.stderr


def test_the_dump_of_one_rank_alone_is_refused(dumps):
    told = command(str(dumps / "job_1"))
    assert told.returncode == 2 and "there are dumps of ranks 1: a replay takes those of all ranks from 0 on" in told.stderr
