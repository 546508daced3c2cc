"""hccl-like hang on dumps: of healthy jobs and of jobs made ill."""

import inspect
import json
import os
import pickle
import shutil
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import hccl_like
from dumps import call, write
from hccl_like import cli
from ranks import run_ranks


def hang(capsys, *arguments):
    """The exit code and the lines."""
    code = cli.main(["hang", *map(str, arguments)])
    return code, capsys.readouterr().out.splitlines()


def recorded(folder, **more):
    return {"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/trace_", "HCCL_LIKE_REPORT_MS": "0", **more}


def wait_for(path):
    deadline = time.monotonic() + 20
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.02)


def healthy(rank, size):
    pair = dist.new_group([0, 1], group_desc="pair")
    for _ in range(3):
        dist.all_reduce(torch.ones(3))
        if rank < 2:
            dist.all_gather_into_tensor(torch.ones(4), torch.ones(2), group=pair)
            dist.send(torch.ones(1), 1) if rank == 0 else dist.recv(torch.ones(1), 0)
    dist.barrier()
    hccl_like.write_flight_recorder()


def test_a_healthy_job_has_no_hang(tmp_path, capsys):
    run_ranks(healthy, 3, environment=recorded(tmp_path))
    code, lines = hang(capsys, tmp_path)
    assert (code, lines[0]) == (0, "no hang: no rank waits in a call")


def one_rank_stays_away(rank, size, folder):
    dp = dist.new_group(group_desc="dp", timeout=timedelta(seconds=3))
    dist.all_reduce(torch.ones(3), group=dp)
    dist.broadcast(torch.ones(5), 1, group=dp)
    if rank == 2:
        wait_for(f"{folder}/trace_0")
        wait_for(f"{folder}/trace_1")
        hccl_like.write_flight_recorder()
    else:
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(7), group=dp)


@pytest.fixture(scope="module")
def ill_job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ill")
    run_ranks(one_rank_stays_away, 3, str(folder), environment=recorded(folder, HCCL_LIKE_FLIGHT_STACKS="1"), group_timeout=1)
    return folder


@pytest.fixture
def dumps_of_ill_job(ill_job, tmp_path):
    return shutil.copytree(ill_job, tmp_path / "dumps")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_rank_that_never_came_is_named_with_its_last_call(ill_job, capsys, order):
    code, lines = hang(capsys, *(ill_job / f"trace_{rank}" for rank in order))
    first = inspect.getsourcelines(one_rank_stays_away)[1]
    here = "python/test_hang.py"
    assert code == 1
    assert lines[0] == f"rank 2 never entered all_reduce #3 of group dp; its last call there is broadcast #2 at {here}:{first + 3}"
    for rank in (0, 1):
        (line,) = [line for line in lines if line.startswith(f"  rank {rank} waits for rank 2 in all_reduce #3 of group dp, for ")]
        assert line.endswith(f", at {here}:{first + 10}")
    assert "  the last call that all ranks of group dp ended is broadcast #2" in lines


def test_the_verdict_is_there_as_json(ill_job, capsys):
    code, lines = hang(capsys, ill_job, "--json")
    told = json.loads("\n".join(lines))
    assert (code, told["code"], told["kind"], told["guilty"]) == (1, 1, "missing", [2])
    assert (told["call"]["name"], told["call"]["number"]) == ("all_reduce", 3)
    assert {wait["rank"]: wait["missing"] for wait in told["waits"]} == {0: [2], 1: [2]}
    assert [row["rank"] for row in told["ranks"]] == ["0", "1", "2"]


def test_a_rank_without_a_dump_is_named(dumps_of_ill_job, capsys):
    os.unlink(dumps_of_ill_job / "trace_2")
    code, lines = hang(capsys, dumps_of_ill_job)
    assert code == 1
    assert lines[0].startswith("rank 2 left no dump since all_reduce #3 of group dp was entered by ranks 0 and 1: dead, stopped,")


def test_a_dump_of_an_earlier_time_counts_as_none(dumps_of_ill_job, capsys):
    os.utime(dumps_of_ill_job / "trace_2", (1_000_000_000, 1_000_000_000))
    code, lines = hang(capsys, dumps_of_ill_job)
    assert code == 1 and lines[0].startswith("rank 2 left no dump since all_reduce #3")


def different_sizes(rank, size):
    dist.barrier()
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(5 + rank))


def test_ranks_that_pass_different_sizes_are_named(tmp_path, capsys):
    run_ranks(different_sizes, 2, environment=recorded(tmp_path))
    code, lines = hang(capsys, tmp_path)
    assert code == 1
    assert lines[0] == ("ranks 0 and 1 disagree about call #2 of group default_pg: rank 0 made all_reduce of Float [5]; rank 1 made "
                        "all_reduce of Float [6]")  # fmt: skip


def test_of_ranks_that_disagree_the_odd_one_is_named(tmp_path, capsys):
    for rank in range(3):
        write(tmp_path, rank, [call(1), call(2, at=1, state="started", failed=True, sizes=((6 if rank == 1 else 5,),))])
    code, lines = hang(capsys, tmp_path)
    assert code == 1
    assert lines[0] == ("rank 1 disagrees with the others about call #2 of group default_pg: ranks 0 and 2 made all_reduce of "
                        "Float [5]; rank 1 made all_reduce of Float [6]")  # fmt: skip


def different_calls(rank, size):
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(5)) if rank else dist.broadcast(torch.ones(5), 0)


def test_ranks_that_make_different_calls_are_named(tmp_path, capsys):
    run_ranks(different_calls, 2, environment=recorded(tmp_path))
    code, lines = hang(capsys, tmp_path)
    assert code == 1
    assert lines[0] == ("ranks 0 and 1 disagree about call #1 of group default_pg: rank 0 made broadcast of Float [5]; rank 1 made "
                        "all_reduce of Float [5]")  # fmt: skip


def other_order(rank, size):
    groups = [dist.new_group(group_desc=name, timeout=timedelta(seconds=1)) for name in ("a", "b")]
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(3), group=groups[rank])


def test_ranks_that_wait_for_each_other_in_two_groups_are_named(tmp_path, capsys):
    run_ranks(other_order, 2, environment=recorded(tmp_path), group_timeout=1)
    code, lines = hang(capsys, tmp_path)
    assert code == 1
    assert lines[0] == ("ranks 0 and 1 wait for each other: rank 0 is in all_reduce #1 of group a and waits for rank 1; rank 1 is in "
                        "all_reduce #1 of group b and waits for rank 0")  # fmt: skip


def no_message(rank, size, folder):
    dist.all_reduce(torch.ones(3))
    if rank == 0:
        with pytest.raises(dist.DistBackendError):
            dist.recv(torch.ones(3), 1)
    else:
        wait_for(f"{folder}/trace_0")
        hccl_like.write_flight_recorder()


def test_a_message_that_was_not_sent_is_named(tmp_path, capsys):
    run_ranks(no_message, 2, str(tmp_path), environment=recorded(tmp_path), group_timeout=1)
    code, lines = hang(capsys, tmp_path)
    assert code == 1
    assert lines[0].startswith("rank 1 never sent what rank 0 waits for in recv #1 from rank 1 of group default_pg; its last call is all_reduce #1")


TP = {"0": ("default_pg", [0, 1, 2]), "7": ("tp", [1, 2])}


def test_who_waits_for_a_rank_that_waits_itself_is_not_misled(tmp_path, capsys):
    """Rank 0 waits for 1, which waits for 2 in another group."""
    write(tmp_path, 0, [call(1), call(2, at=1, state="started", failed=True)], TP)
    write(tmp_path, 1, [call(1), call(1, at=1, group="7", description="tp", state="started", failed=True)], TP)
    write(tmp_path, 2, [call(1)], TP)
    code, lines = hang(capsys, tmp_path)
    assert code == 1
    assert lines[0].startswith("rank 2 never entered all_reduce #2 of group default_pg; its last call there is all_reduce #1")
    assert any(line.startswith("  rank 1 waits for rank 2 in all_reduce #1 of group tp") for line in lines)


def test_groups_of_one_name_and_different_ranks_are_not_mixed(tmp_path, capsys):
    pairs = {rank: {"0": ("pair", ranks)} for ranks in ([0, 1], [2, 3]) for rank in ranks}
    first, second = call(1, description="pair"), call(2, at=1, description="pair")
    write(tmp_path, 0, [first, call(2, at=1, description="pair", state="started", failed=True)], pairs[0])
    write(tmp_path, 1, [dict(first)], pairs[1])
    for rank in (2, 3):
        write(tmp_path, rank, [dict(first), dict(second)], pairs[rank])
    code, lines = hang(capsys, tmp_path)
    assert code == 1 and lines[0].startswith("rank 1 never entered all_reduce #2 of group pair; its last call there is all_reduce #1")
    assert lines[1].startswith("  rank 0 waits for rank 1 in all_reduce #2 of group pair")


def test_a_receive_from_any_rank_names_nobody(tmp_path, capsys):
    write(tmp_path, 0, [call(1), call(1, "recv 0<--1", at=1, state="started", failed=True, message=True)])
    write(tmp_path, 1, [call(1)])
    write(tmp_path, 2, [call(1)])
    code, lines = hang(capsys, tmp_path)
    assert code == 2
    assert lines[0].startswith("cannot tell: rank 0 waits in recv #1 from any rank of group default_pg, and no rank is known to be missing")


def test_a_call_that_all_ranks_entered_and_that_failed_cannot_be_explained(tmp_path, capsys):
    for rank in range(3):
        write(tmp_path, rank, [call(1), call(2, at=1, state="started", failed=True)])
    code, lines = hang(capsys, tmp_path)
    assert code == 2
    assert lines[0] == ("cannot tell: every rank entered all_reduce #2 of group default_pg with the same arguments, and it has failed; "
                        "see the ranks' errors")  # fmt: skip


@pytest.mark.parametrize("seconds, code", [("5", 0), ("1", 1)])
def test_a_call_that_has_just_begun_is_no_hang(tmp_path, capsys, seconds, code):
    """Rank 0 has been in its call for three seconds, on the ranks' own clocks."""
    write(tmp_path, 0, [call(1), call(2, at=1, state="started", late=3)])
    write(tmp_path, 1, [call(1)])
    write(tmp_path, 2, [call(1)])
    assert hang(capsys, tmp_path, "--after", seconds)[0] == code


def test_a_ring_that_has_lost_the_call_is_no_rank_that_never_came(tmp_path, capsys):
    write(tmp_path, 0, [call(1), call(2, at=1, state="started", failed=True)])
    write(tmp_path, 1, [call(1), call(2, at=1), call(3, at=2)])
    write(tmp_path, 2, [call(3, at=2)], first=3)
    code, lines = hang(capsys, tmp_path)
    assert code == 2 and lines[0].startswith("cannot tell: every rank entered all_reduce #2")


def test_json_dumps_are_read_too(tmp_path, capsys):
    for rank in range(3):
        path = write(tmp_path, rank, [call(1)] if rank else [call(1), call(2, at=1, state="started", failed=True)])
        dump = pickle.loads(path.read_bytes())
        path.unlink()
        (tmp_path / f"trace_{rank}.json").write_text(json.dumps(dump))
    code, lines = hang(capsys, tmp_path)
    assert code == 1 and lines[0].startswith("ranks 1 and 2 never entered all_reduce #2 of group default_pg")


class Evil:
    def __reduce__(self):
        return os.mkdir, (os.environ["EVIL_FOLDER"],)


def test_a_pickle_that_would_run_something_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("EVIL_FOLDER", str(tmp_path / "made"))
    (tmp_path / "trace_0").write_bytes(pickle.dumps(Evil()))
    assert cli.main(["hang", str(tmp_path)]) == 2
    assert "it names posix.mkdir, which no dump does" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name, content, told", [
    ("trace", b"", "the name of a dump ends in its rank"),
    ("trace_0", b"no pickle", "not a dump of the flight recorder"),
    ("trace_0", b"{}", "not a dump of the flight recorder: KeyError"),
])  # fmt: skip
def test_files_that_are_no_dumps_are_named(tmp_path, capsys, name, content, told):
    (tmp_path / name).write_bytes(content)
    assert cli.main(["hang", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert told in said and f"{tmp_path}/{name}" in said


def test_files_of_two_jobs_are_not_mixed(tmp_path, capsys):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, 0, [call(1)])
    assert cli.main(["hang", str(tmp_path / "one"), str(tmp_path / "two")]) == 2
    assert "both are of rank 0" in capsys.readouterr().err


def test_dumps_without_a_call_tell_nothing(tmp_path, capsys):
    write(tmp_path, 0, [])
    code, lines = hang(capsys, tmp_path)
    assert (code, lines[0]) == (2, "cannot tell: there is no record of any call")


def test_a_rank_without_a_dump_may_hang_alone(tmp_path, capsys):
    write(tmp_path, 0, [call(1)])
    code, lines = hang(capsys, tmp_path)
    assert (code, lines[0]) == (2, "cannot tell: no rank waits, but there is no dump of ranks 1 and 2")
