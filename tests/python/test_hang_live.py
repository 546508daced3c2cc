"""hccl-like hang on running processes: of a healthy job and of jobs made ill."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from jobs import job

from hccl_like import cli
from hccl_like.hang import _processes

@pytest.fixture(scope="module")
def ill(tmp_path_factory):
    """Rank 2 loads data; the others wait for it in call 3. Rank 0 can be asked through its worker server only."""
    folder = tmp_path_factory.mktemp("ill")
    with job(folder, first={"HCCL_LIKE_DUMP_SIGNAL": "", "TORCH_WORKER_SERVER_SOCKET": f"{folder}/server"}) as ranks:
        yield ranks


def hang(capsys, ranks, *arguments):
    code = cli.main(["hang", "--after", "0.5", *arguments, "--pid", *(str(rank.pid) for rank in ranks)])
    said = capsys.readouterr()
    return code, (said.out or said.err).splitlines()


def test_a_job_that_goes_on_has_no_hang(tmp_path, capsys):
    with job(tmp_path, "none", size=2) as ranks:
        code, lines = hang(capsys, ranks)
    assert (code, lines[0]) == (0, "no hang: no rank waits in a call")


def test_the_rank_that_loads_data_is_named(ill, capsys, monkeypatch):
    monkeypatch.setattr(_processes, "_py_spy", lambda: None)
    code, lines = hang(capsys, ill)
    assert code == 1
    assert lines[0] == (f"rank 2 (host {os.uname().nodename}, pid {ill[2].pid}) never entered all_reduce #3 of group default_pg; "
                        "its last call there is broadcast #2")  # fmt: skip
    assert "hint: py-spy is not installed, so Python stacks are not shown: pip install py-spy" in lines


@pytest.mark.skipif(_processes._py_spy() is None, reason="py-spy is not installed: requirements/test.txt has it")
def test_with_py_spy_its_line_is_told(ill, capsys):
    code, lines = hang(capsys, ill)
    assert code == 1
    assert "; it is in loads_data, python/hanging_job.py:" in lines[0]
    (waits,) = [line for line in lines if line.startswith("  rank 0 waits for rank 2")]
    assert "called at python/hanging_job.py:" in waits
    assert any(line.startswith("  main (") for line in lines[lines.index("Python of rank 2, innermost first") :])


def test_the_jobs_of_this_host_are_found(ill):
    (found,) = [ranks for ranks in _processes.jobs().values() if ill[0].pid in [rank.pid for rank in ranks]]
    assert [(rank.number, rank.pid) for rank in found] == [(number, rank.pid) for number, rank in enumerate(ill)]


def test_a_stopped_rank_is_named(tmp_path, capsys):
    with job(tmp_path, "none", size=2) as ranks:
        os.kill(ranks[1].pid, signal.SIGSTOP)
        code, lines = hang(capsys, ranks)
    assert code == 1
    assert lines[0].startswith(f"rank 1 (host {os.uname().nodename}, pid {ranks[1].pid}) is stopped by a signal, ")


def test_a_rank_that_is_not_asked_for_its_calls_is_told_how(tmp_path, capsys):
    with job(tmp_path, size=2, HCCL_LIKE_DUMP_SIGNAL="") as ranks:
        code, lines = hang(capsys, ranks)
        assert all(rank.poll() is None for rank in ranks), "a signal that nobody listens to ends a process"
    assert (code, lines[0]) == (2, "cannot tell: there is no record of any call")
    assert any("it was started without HCCL_LIKE_DUMP_SIGNAL=USR2" in line for line in lines)


def test_processes_of_two_jobs_are_not_mixed(capsys, monkeypatch):
    monkeypatch.setattr(_processes, "named", lambda pids: [_processes.Rank(0, pid, {}) for pid in pids])
    assert cli.main(["hang", "--pid", "71", "72"]) == 2
    assert "two of these processes have the same rank" in capsys.readouterr().err


def test_of_several_jobs_the_user_names_one(tmp_path, capsys, monkeypatch):
    ranks = [_processes.Rank(0, 71, {}), _processes.Rank(0, 72, {})]
    monkeypatch.setattr(_processes, "jobs", lambda: {"MASTER_PORT=1": ranks[:1], "MASTER_PORT=2": ranks[1:]})
    assert cli.main(["hang"]) == 2
    assert "\n  MASTER_PORT=1: --pid 71\n  MASTER_PORT=2: --pid 72" in capsys.readouterr().err


@pytest.mark.parametrize("pid, told", [(str(2**22 + 1), "there is no process"), (str(os.getpid()), "is no rank that can be looked at")])
def test_a_process_that_is_no_rank_is_refused(capsys, pid, told, monkeypatch):
    assert cli.main(["hang", "--pid", pid]) == 2
    assert told in capsys.readouterr().err


def test_a_process_that_does_not_listen_to_the_signal_does_not_get_it(capsys):
    environment = {"RANK": "0", "HCCL_LIKE_DUMP_SIGNAL": "USR2", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "60"], env=environment) as process:
        try:
            deadline = time.monotonic() + 20
            while not Path(f"/proc/{process.pid}/environ").read_bytes() and time.monotonic() < deadline:
                time.sleep(0.01)  # exec() tells Popen() before it shows the environment
            code, lines = hang(capsys, [process])
            assert code == 2 and process.poll() is None
            assert any("it does not listen to signal USR2: it has made no group yet" in line for line in lines)
        finally:
            process.kill()
