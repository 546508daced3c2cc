"""hccl-like top and ps: of a healthy job, of jobs made ill, and of files that are no counter files."""

import contextlib
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import time

import pytest
from jobs import job

from hccl_like import cli
from hccl_like.top import _file, _show, _view
from hccl_like.top._file import Calls, Group, Process


def top(capsys, ranks, *arguments):
    code = cli.main(["top", "--once", "--interval", "0.5", *arguments, str(ranks[0].pid)])
    said = capsys.readouterr()
    return code, (said.out or said.err).splitlines()


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    with job(tmp_path_factory.mktemp("healthy"), "none", size=2) as ranks:
        yield ranks


def test_a_healthy_job_is_shown_with_its_rates(healthy, capsys):
    code, lines = top(capsys, healthy)
    assert (code, lines[0]) == (0, "no rank keeps the others waiting")
    rows = [line.split() for line in lines[3:5]]
    assert [row[:3] for row in rows] == [["0", str(healthy[0].pid), "0"], ["1", str(healthy[1].pid), "0"]]
    assert all(int(row[3].replace(",", "")) > 10 and row[-1] == "0" for row in rows)


def test_json_has_the_counters_of_each_collective(healthy, capsys):
    assert cli.main(["top", "--once", "--interval", "0.2", "--json", str(healthy[0].pid)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["size"], told["elsewhere"], told["slow"]) == (2, [], [])
    (row,) = [row for row in told["rows"] if row["rank"] == 0]
    assert row["calls"]["broadcast"]["over"] == 1 and row["calls"]["broadcast"]["bytes"] == 20
    calls = row["calls"]["all_reduce"]
    assert calls["bytes"] == 12 * calls["over"] and calls["failed"] == 0 and calls["nanoseconds"] > 0


def test_ps_lists_the_job_by_a_name_that_top_takes(healthy, capsys):
    assert cli.main(["ps", "--json"]) == 0
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    (ours,) = [one for one in jobs if healthy[0].pid in [process["pid"] for process in one["processes"]]]
    assert [process["pid"] for process in ours["processes"]] == [rank.pid for rank in healthy]
    assert cli.main(["top", "--once", "--interval", "0.1", ours["job"]]) == 0
    capsys.readouterr()
    assert cli.main(["ps"]) == 0
    assert f"0:{healthy[0].pid} 1:{healthy[1].pid}" in capsys.readouterr().out


def test_the_job_is_not_changed_and_its_file_is_its_own(healthy, capsys):
    paths = [path for rank in healthy for path in _file.files(rank.pid)]
    assert len(paths) == 2
    for path in paths:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with pytest.raises(PermissionError), open(path, "r+b", buffering=0) as file:
            file.write(b"x")  # sealed against writers
    assert all(rank.poll() is None for rank in healthy)


def test_plain_lines_come_again_and_again_until_the_job_ends(tmp_path):
    with job(tmp_path, "none", size=2) as ranks:
        shown = subprocess.Popen([sys.executable, "-m", "hccl_like.cli", "top", "-n", "0.1", str(ranks[0].pid)], stdout=subprocess.PIPE, text=True)
        seen = 0
        while seen < 3:
            seen += shown.stdout.readline().startswith("no rank keeps")
        for rank in ranks:
            rank.kill()
        assert shown.wait(timeout=20) == 0
        shown.stdout.close()


def test_on_a_terminal_it_is_drawn_in_place_until_ctrl_c(healthy):
    pytest.importorskip("rich")
    terminal, end = os.openpty()
    shown = subprocess.Popen([sys.executable, "-m", "hccl_like.cli", "top", "-n", "0.1", str(healthy[0].pid)], stdin=end, stdout=end, stderr=end,
                             env={**os.environ, "TERM": "xterm", "COLUMNS": "150"})  # fmt: skip
    os.close(end)
    seen = b""
    while seen.count(b"no rank keeps the others waiting") < 3:
        seen += os.read(terminal, 4096)
    shown.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the other end is closed
        while os.read(terminal, 4096):
            pass
    assert shown.wait(timeout=20) == 0
    os.close(terminal)
    assert b"\x1b[1A" in seen  # the cursor goes up again


def test_the_rank_that_sleeps_is_named_in_the_first_line(tmp_path, capsys):
    with job(tmp_path, "slow", size=2) as ranks:
        code, lines = top(capsys, ranks)
    assert code == 0
    assert lines[0].startswith("rank 1 comes last: the others wait for it ")
    assert any(line.startswith("waited for most: rank 1 ") for line in lines)


def test_the_rank_that_never_makes_the_call_is_named(tmp_path, capsys):
    with job(tmp_path, "data", size=3) as ranks:
        time.sleep(0.6)  # what hangs began before the first look
        code, lines = top(capsys, ranks)
    assert code == 0
    assert lines[0].startswith("rank 2 keeps ranks 0 and 1 waiting, which are in all_reduce #3 of group 0 for ")


def test_a_dead_process_leaves_nothing_to_show_or_sweep(tmp_path, capsys):
    with job(tmp_path, "none", size=2) as ranks:
        ranks[1].kill()
        ranks[1].wait()
        assert ranks[1].pid not in [one.pid for one in _file.processes()[0]]
        code, _ = top(capsys, [ranks[1]])
    assert code == 2


@pytest.mark.parametrize("wanted, told", [
    (str(2**22 + 1), "there is no process"), (str(os.getpid()), "has no counters that can be read"),
    ("jffffffffff", "there is no job jffffffffff on this host; hccl-like ps lists the jobs")])  # fmt: skip
def test_what_is_no_job_is_told_in_a_sentence(capsys, wanted, told):
    assert cli.main(["top", "--once", wanted]) == 2
    assert told in capsys.readouterr().err


def test_without_a_job_both_say_so(capsys, monkeypatch):
    monkeypatch.setattr(_file, "processes", lambda: ([], []))
    assert cli.main(["top"]) == 2
    assert cli.main(["ps"]) == 1
    said = capsys.readouterr()
    assert "no job of yours on this host uses hccl-like now" in said.err and said.out == said.err.removeprefix("hccl-like top: ")


def test_of_several_jobs_the_user_names_one(capsys, monkeypatch):
    monkeypatch.setattr(_file, "processes", lambda: ([process(0, job=1 << 32), process(0, job=2 << 32)], []))
    assert cli.main(["top"]) == 2
    assert "several jobs run on this host; name one of them:\n  j00000001: 1 ranks" in capsys.readouterr().err


@pytest.mark.parametrize("content, told", [
    (b"", "0 bytes, less than its header"),
    (b"GARBAGE!" + bytes(2000), "does not begin as one"),
    (b"HCCLcnt\0" + struct.pack("=I", 99) + bytes(2000), "has version 99, and this hccl-like reads version 3"),
    (b"HCCLcnt\0" + struct.pack("=11I", 3, 512, 704, 128, 11, 64, 7, 0, 2, 256, 64) + bytes(2000), "cut off"),
    (b"HCCLcnt\0" + struct.pack("=11I", 3, 512, 704, 1, 11, 64, 7, 0, 2, 2**31, 64) + bytes(2000), "cut off"),
    (b"HCCLcnt\0" + struct.pack("=11I", 3, 512, 704, 1, 2**31, 64, 7, 0, 2, 1, 64) + bytes(2000), "sizes are impossible"),
    (b"HCCLcnt\0" + struct.pack("=11I", 3, 512, 704, 1, 11, 64, 7, 0, 2, 1, 0) + bytes(2000), "sizes are impossible"),
])  # fmt: skip
def test_a_file_that_is_none_is_refused_in_a_sentence(content, told):
    with pytest.raises(_file.Refused, match="the file of process 7 .*" + told):
        _file.parse(content, "the file of process 7", 7)


def test_a_forged_file_of_a_process_is_refused_and_hides_no_other(healthy, capsys):
    forged = os.memfd_create("hccl-like-counters")
    try:
        os.write(forged, b"GARBAGE!" * 1000)
        os.fchmod(forged, 0o600)
        assert cli.main(["top", "--once", str(os.getpid())]) == 2
        assert f"the counter file of process {os.getpid()} is refused: it does not begin as one" in capsys.readouterr().err
        assert cli.main(["ps"]) == 0
        said = capsys.readouterr()
        assert f"0:{healthy[0].pid}" in said.out and f"process {os.getpid()} is refused" in said.err
        os.fchmod(forged, 0o666)
        assert cli.main(["top", "--once", str(os.getpid())]) == 2
        assert "others than the owner of the process may write it" in capsys.readouterr().err
    finally:
        os.close(forged)


def test_a_process_that_inherited_a_file_does_not_pass_for_its_owner(healthy):
    (path,) = _file.files(healthy[0].pid)
    with open(path, "rb") as file:
        content = file.read()
    assert _file.parse(content, "it", healthy[0].pid) is not None
    assert _file.parse(content, "it", os.getpid()) is None


def test_messages_are_shown_with_their_transport(tmp_path, capsys):
    with job(tmp_path, "none", size=2, HCCL_LIKE_BOARD="0") as ranks:
        code, lines = top(capsys, ranks)
    assert code == 0
    assert "2 connections carry messages" in lines
    first = lines[lines.index("2 connections carry messages") + 2].split()
    assert first[:3] in (["0", "1", "shm"], ["1", "0", "shm"]) and int(first[3].replace(",", "")) > 10


def group(rank=0, size=2, collectives=1, running=0, nanoseconds=0, latest="all_reduce", peer=-1, name="dp", progress_ns=0):
    return Group(1, 5, name, rank, size, rank, latest, collectives, collectives, peer, running, progress_ns, 0,
                 {"all_reduce": Calls(collectives, 0, 8 * collectives, nanoseconds)})  # fmt: skip


def process(rank, groups=(), size=2, at=0, job=1 << 32):
    return Process(os.getpid() + rank, rank, size, job, 0, 0, at, list(groups))


def test_the_rank_that_is_in_calls_the_least_comes_last(monkeypatch):
    monkeypatch.setattr(_view._processes, "state", lambda pid: "runs")
    before = [process(0, [group(0)]), process(1, [group(1)])]
    now = [process(0, [group(0, collectives=11, nanoseconds=10**8)], at=10**9), process(1, [group(1, collectives=11, nanoseconds=9 * 10**8)], at=10**9)]
    seen = _view.view(before, now)
    assert seen.lag[0] == (0, pytest.approx(0.8)) and seen.slow == [0]
    assert [row.calls_per_s for row in seen.rows] == pytest.approx([10, 10])
    assert [row.waited for row in seen.rows] == pytest.approx([0, 0.8])


def test_a_receive_waits_for_its_peer():
    now = [process(0, [group(0, latest="recv", peer=1, running=1)], at=10**9), process(1, [group(1)], at=10**9)]
    assert [row.waits_for for row in _view.view(now, now).rows] == [[1], []]


def test_ranks_of_other_hosts_are_named_in_the_last_line():
    now = [process(rank, [group(rank, size=6)], size=6, at=10**9) for rank in (0, 1, 4)]
    seen = _view.view(now, now)
    assert seen.elsewhere == [2, 3, 5]
    assert _show.text(seen).splitlines()[-1].startswith("ranks 2-3, 5 of 6 ranks not on this host")


def test_a_name_cannot_move_the_cursor():
    assert _file.text(b"a\x1b[2Jb\xff\0rest") == "a?[2Jb\ufffd"


@pytest.mark.parametrize("number, told", [(0, "0"), (999, "999"), (1500, "1.5 k"), (2.5e6, "2.5 M"), (7e12, "7.0 T")])
def test_amounts(number, told):
    assert _show.amount(number) == told


@pytest.mark.parametrize("command", ["top", "ps"])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    assert f"examples: hccl-like {command}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("interval", ["0", "nan", "soon"])
def test_an_impossible_interval_is_refused(interval, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["top", "-n", interval])
    assert ended.value.code == 2 and "is no interval" in capsys.readouterr().err
