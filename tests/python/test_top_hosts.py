"""hccl-like top --all-hosts: ranks of other hosts, of a healthy job and of ill ones."""

import contextlib
import io
import json
import os
import signal
import struct
import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

from hccl_like import cli
from hccl_like.top import _file, _others, _show, _view


def top(*arguments):
    """The exit code and the lines, where only this process is of this host: namespaces share /proc."""
    _file.processes = lambda: ([_file.of_process(os.getpid())], [])
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        code = cli.main(["top", "--all-hosts", "--once", "--interval", "0.5", *arguments])
    return code, out.getvalue().splitlines()


def goes_on(rank, size, *arguments):
    """What rank 0 is shown while all ranks make calls."""
    said = []
    looks = threading.Thread(target=lambda: said.append(top(*arguments)))
    if rank == 0:
        looks.start()
    while True:
        more = torch.tensor([float(rank == 0 and looks.is_alive())])
        dist.all_reduce(more)
        if not more.item():
            return said
        time.sleep(0.002)


@pytest.mark.parametrize("environment", [{}, {"HCCL_LIKE_SECRET": "0123456789abcdef" * 4, "HCCL_LIKE_ENCRYPT": "1"}], ids=["", "with a secret"])
def test_ranks_of_other_hosts_are_shown_with_their_hosts(environment, make_hosts):
    ((code, lines),) = run_ranks(goes_on, 3, hosts=make_hosts(2), layout=[0, 1, 1], environment=environment)[0]
    assert code == 0, lines
    assert lines[1].startswith("job j") and ": 3 of 3 ranks have made calls here" in lines[1]
    rows = [line.split() for line in lines[3:6]]
    assert [row[:2] for row in rows] == [["0", "host0"], ["1", "host1"], ["2", "host1"]]
    assert all(float(row[4].replace(",", "")) > 0 for row in rows), lines
    assert not [line for line in lines if "not on this host" in line]


def test_json_has_them_too(make_hosts):
    ((code, lines),) = run_ranks(goes_on, 2, "--json", hosts=make_hosts(2))[0]
    told = json.loads(lines[0])
    assert (code, told["elsewhere"], [row["host"] for row in told["rows"]]) == (0, [], ["host0", "host1"])
    assert told["rows"][1]["calls"]["all_reduce"]["over"] > 0


def test_without_it_the_last_line_says_how(make_hosts):
    def here(rank, size):
        dist.all_reduce(torch.ones(1))
        _file.processes = lambda: ([_file.of_process(os.getpid())], [])
        with contextlib.redirect_stdout(io.StringIO()) as out:
            cli.main(["top", "--once", "--interval", "0.1"])
        dist.barrier()
        return out.getvalue().splitlines()[-1]

    assert run_ranks(here, 2, hosts=make_hosts(2))[0].endswith("hccl-like top --all-hosts shows those of other hosts")


def stays_away(rank, size):
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        time.sleep(0.1)
        said = dist.get_backend_config()  # anything but a call of the group
        while not dist.distributed_c10d._get_default_store().check(["looked"]):
            time.sleep(0.05)
        dist.all_reduce(torch.ones(1))
        return said
    work = dist.all_reduce(torch.ones(1), async_op=True)
    time.sleep(0.8)
    said = top()
    dist.distributed_c10d._get_default_store().set("looked", "")
    work.wait()
    return said


def test_a_rank_of_another_host_that_stays_away_is_named(make_hosts):
    code, lines = run_ranks(stays_away, 2, hosts=make_hosts(2))[0]
    assert code == 0 and lines[0].startswith("rank 1 keeps rank 0 waiting, which is in all_reduce #2 of group 0 for "), lines


def is_stopped(rank, size, folder):
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        if os.fork() == 0:  # whoever is stopped has to be woken
            while not (folder / "looked").exists():
                time.sleep(0.05)
            os.kill(os.getppid(), signal.SIGCONT)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGSTOP)
        dist.barrier()
        return None
    time.sleep(0.3)
    said = top()
    (folder / "looked").touch()
    dist.barrier()
    return said


def test_a_rank_of_another_host_that_does_not_answer_is_named(tmp_path, make_hosts):
    code, lines = run_ranks(is_stopped, 2, tmp_path, hosts=make_hosts(2))[0]
    assert code == 0 and lines[0].startswith("rank 1 (host1) does not answer: "), lines


def ends(rank, size):
    """Threads and descriptors are as before once nobody asks any more and the groups are gone."""
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        assert len(list(_file.files(os.getpid(), _others._NAME))) == 1
        assert top()[0] == 0
    dist.barrier()
    dist.destroy_process_group()
    return list(_file.files(os.getpid(), _others._NAME))


def test_nothing_is_left_when_the_groups_end(make_hosts):
    assert run_ranks(ends, 2, hosts=make_hosts(2)) == [[], []]


def alone(rank, size):
    dist.all_reduce(torch.ones(1))
    files = list(_file.files(os.getpid(), _others._NAME))
    dist.barrier()
    return files


def test_ranks_of_one_host_keep_no_file_for_questions():
    assert run_ranks(alone, 2) == [[], []]


def test_an_answer_that_is_cut_off_is_refused():
    whole = struct.pack("=4I", 3, 5, 9, 0) + b"hostb" + b"no answer"
    assert _others._parse(whole) == ([], {3: "rank 3 (hostb) does not answer: no answer"})
    with pytest.raises(_file.Refused, match="cut off"):
        _others._parse(whole[:-1])


def test_a_file_that_is_no_question_file_is_refused():
    forged = os.memfd_create("hccl-like-questions")
    os.fchmod(forged, 0o600)
    me = _file.Process(os.getpid(), 0, 2, 1 << 32, 0, 0, 0)
    try:
        os.write(forged, b"GARBAGE!" * 10)
        with pytest.raises(_file.Refused, match="does not begin as one"):
            _others.ask([me])
        os.pwrite(forged, b"HCCLask\0" + struct.pack("=II", 9, 0), 0)
        with pytest.raises(_file.Refused, match="has version 9, and this hccl-like reads version 1"):
            _others.ask([me])
    finally:
        os.close(forged)
    with pytest.raises(_file.Refused, match="cannot ask other hosts"):
        _others.ask([me])


def test_ranks_of_two_hosts_may_have_one_process_id():
    def one(rank, host, at, over=1):
        group = _file.Group(1, 5, "dp", rank, 2, rank, "all_reduce", over, over, -1, 0, 0, 0, {"all_reduce": _file.Calls(over, 0, 8, 0)})
        return _file.Process(os.getpid(), rank, 2, 1 << 32, 0, 0, at, [group], host=host)

    second = 10**9
    seen = _view.view([one(0, "", 0), one(1, "hostb", 77 * second)], [one(0, "", second, 11), one(1, "hostb", 78 * second, 21)])
    assert seen.seconds == pytest.approx(1) and [row.calls_per_s for row in seen.rows] == pytest.approx([10, 20])
    assert _show.text(seen).splitlines()[2].split()[:3] == ["rank", "host", "pid"]
