"""Who is where when a call runs into its time-out, and what a rank says when it is asked by a signal."""

import inspect
import os
import pickle
import re
import signal
import stat
import time

import torch
import torch.distributed as dist

from ranks import run_ranks

TABLE = "ran into its time-out; where its"
HERE = "python/test_time_out_table.py"


def by_default(folder):
    return {"HCCL_LIKE_DEBUG_FILE": f"{folder}/log", "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/trace_"}


def log_of(folder):
    return by_default(folder) | {"HCCL_LIKE_REPORT_MS": "4000"}  # a busy machine


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.02)


def lines_of(function):
    """Where a program that is in `function` may be."""
    lines, first = inspect.getsourcelines(function)
    return "|".join(f"{HERE}:{first + number}" for number in range(len(lines)))


def one_rank_loads_data(rank, size, folder):
    dist.all_reduce(torch.ones(3))
    dist.broadcast(torch.ones(5), 1)
    start = time.monotonic()
    if rank == 2:
        wait_for(f"{folder}/over")
    else:
        try:
            dist.all_reduce(torch.ones(7))
            raise AssertionError("a rank was missing")
        except dist.DistBackendError as error:
            text = str(error)
        assert "[HCCL-LIKE-201]" in text or "[HCCL-LIKE-202]" in text, text
        assert "rank 2" in text or "ranks 2" in text, text
        if "HCCL_LIKE_REPORT_MS" in os.environ and os.environ["HCCL_LIKE_REPORT_MS"] != "0":  # with time enough
            where = rf"Rank 2 \(\S+:\d+\) never made it; its last is broadcast #2; it is at \S*({lines_of(wait_for)})\."
            assert re.search(where, text), text
        assert time.monotonic() - start < 15
        open(f"{folder}/done{rank}", "w").close()
        if rank == 0:
            wait_for(f"{folder}/done1")
            open(f"{folder}/over", "w").close()


def rows(log):
    return {line.split()[0]: line for line in log.split(TABLE)[1].splitlines()[2:] if re.match(r" +\d+ ", line)}


def test_a_time_out_ends_with_one_table_of_who_is_where(tmp_path):
    run_ranks(one_rank_loads_data, 3, str(tmp_path), environment=log_of(tmp_path), group_timeout=1)
    log = (tmp_path / "log").read_text()
    assert log.count(TABLE) == 1
    table = rows(log)
    assert "never made it; its last is broadcast #2" in table["2"]
    assert all("in it" in table[rank] for rank in "01")
    # One of them may have been told by the other before its own time was over.
    assert any("rank 2" in table[rank] for rank in "01")
    assert re.search(r"^  rank  process +all_reduce #3 +since +waits for +program at$", log, re.M)
    # In the call since its time-out of a second, and since about as long out of any.
    assert all(0.9 <= float(re.search(r" (\d+\.\d) s ", table[rank])[1]) < 15 for rank in "012"), log
    assert re.search(rf"({lines_of(wait_for)})$", table["2"])
    assert all(re.search(rf"({lines_of(one_rank_loads_data)})$", table[rank]) for rank in "01")
    assert re.search("rank 2: broadcast #2 done; all_reduce #1 done", log)
    assert re.search(r"rank 0: all_reduce #3 failed at \S+; broadcast #2 done", log)


def test_there_is_one_by_default(tmp_path):
    run_ranks(one_rank_loads_data, 3, str(tmp_path), environment=by_default(tmp_path), group_timeout=1)
    assert (tmp_path / "log").read_text().count(TABLE) == 1


def test_there_is_none_if_nobody_wants_it(tmp_path):
    run_ranks(one_rank_loads_data, 3, str(tmp_path), environment=by_default(tmp_path) | {"HCCL_LIKE_REPORT_MS": "0"}, group_timeout=1)
    log = tmp_path / "log"
    assert not log.exists() or TABLE not in log.read_text()


def test_with_call_sites_past_calls_have_their_lines(tmp_path):
    environment = log_of(tmp_path) | {"HCCL_LIKE_CALL_SITES": "1"}
    run_ranks(one_rank_loads_data, 3, str(tmp_path), environment=environment, group_timeout=1)
    log = (tmp_path / "log").read_text()
    begin = inspect.getsourcelines(one_rank_loads_data)[1]
    assert f"rank 2: broadcast #2 done at {HERE}:{begin + 2}; all_reduce #1 done at {HERE}:{begin + 1}" in log


def one_rank_is_stopped(rank, size, folder):
    dist.barrier()
    if rank == 0:
        with open(f"{folder}/pid0", "w") as file:
            file.write(str(os.getpid()))
        dist.recv(torch.ones(3), 1)
        return
    wait_for(f"{folder}/pid0")
    if rank == 1:
        other = os.fork()
        if other == 0:  # whoever is stopped has to be woken
            wait_for(f"{folder}/told")
            os.kill(os.getppid(), signal.SIGCONT)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    start = time.monotonic()
    try:
        dist.recv(torch.ones(3), 1)
    except dist.DistBackendError:
        assert time.monotonic() - start < 10
    finally:
        open(f"{folder}/told", "w").close()


def test_a_stopped_rank_gives_no_answer(tmp_path):
    outcome = None
    try:
        run_ranks(one_rank_is_stopped, 3, str(tmp_path), environment=log_of(tmp_path) | {"HCCL_LIKE_REPORT_MS": "1000"}, group_timeout=1)
    except AssertionError as error:  # rank 0 raises, too
        outcome = str(error)
    assert "reached its timeout after" in outcome
    log = (tmp_path / "log").read_text()
    assert "no answer" in rows(log)["1"]
    assert "in recv #1 from 1" in rows(log)["2"]


def a_signal_comes(rank, size, folder):
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGUSR2)
        wait_for(f"{folder}/trace_1")
    dist.barrier()


def test_a_signal_has_the_flight_recorder_written(tmp_path):
    run_ranks(a_signal_comes, 2, str(tmp_path), environment=log_of(tmp_path) | {"HCCL_LIKE_DUMP_SIGNAL": "USR2"})
    assert not (tmp_path / "trace_0").exists()
    path = tmp_path / "trace_1"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry["profiling_name"] for entry in pickle.loads(path.read_bytes())["entries"]] == ["hccl:all_reduce"]
