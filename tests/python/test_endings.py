"""A rank that ends, or destroys its groups, because of an exception: what the other ranks are told."""

import contextlib
import re
import sys
import textwrap
import unittest
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing import ProcessRaisedException, start_processes

import hccl_like
from hccl_like import _endings
from conftest import slow_after_first
from ranks import run_ranks
from test_untold import lines_of, program

LEFT = r"""\[HCCL-LIKE-402\]: aborted: group 0 was aborted on rank 1: it left the group because of ValueError: no more data \(\S*<string>:\d+\)"""


@pytest.mark.parametrize(
    "leaves, code",
    [
        ("""
        try:
            raise ValueError("no more data")
        finally:
            dist.destroy_process_group()
        """, 1),
        pytest.param("""
        try:
            raise ValueError("no more data")
        except ValueError:
            dist.destroy_process_group(dist.group.WORLD)
            sys.exit(7)
        """, 7, marks=pytest.mark.slow),
    ],
    ids=["finally", "except"])  # fmt: skip
def test_a_rank_that_destroys_its_groups_because_of_an_exception_is_reported_as_that(leaves, code):
    (ours, said), (guilty, theirs) = program("""
    if rank == 1:
    """ + leaves + """
    dist.all_reduce(torch.ones(4))
    """)
    assert (ours, guilty) == (1, code), theirs
    (line,) = lines_of(said, "DistBackendError: ")
    assert re.search(LEFT, line), line
    assert hccl_like.failure(line).culprit == 1


def test_an_exit_without_an_error_is_no_reason():
    (_, said), _ = program("""
    if rank == 1:
        try:
            sys.exit(0)
        finally:
            dist.destroy_process_group()
    dist.all_reduce(torch.ones(4))
    """)
    (line,) = lines_of(said, "DistBackendError: ")
    assert "lost rank 1" in line and "it left the group" in line and "because of" not in line, line


def raised(program):
    with pytest.raises(BaseException) as caught:
        exec(textwrap.dedent(program), {"sys": sys})
    return caught.value


class Unprintable(Exception):
    def __str__(self):
        raise TypeError


EXIT_WITH = """
try:
    raise {}
except {}:
    sys.exit({})
"""


@pytest.mark.parametrize(
    "error, fault",
    [
        (raised(EXIT_WITH.format("ValueError", "ValueError", 7)), ValueError),
        (raised("raise SystemExit('bad option')"), SystemExit),
        (raised("next(iter(()))"), StopIteration),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (raised(EXIT_WITH.format("ValueError", "ValueError", 0)), None),
        (raised("sys.exit()"), None),
        (raised("sys.exit(7)"), None),
        (None, None),
    ],
    ids=repr)  # fmt: skip
def test_a_fault_is_an_exception_and_no_exit_code(error, fault):
    found = _endings._fault(error)
    assert found is None if fault is None else isinstance(found, fault)


def test_a_reason_has_the_first_line_of_the_message_and_the_line_of_the_program():
    assert _endings._reason("because of", raised("\nraise ValueError('no\\nmore')")) == "because of ValueError: no (<string>:2)"
    assert _endings._reason("because of", Unprintable()) == "because of Unprintable"


@pytest.mark.parametrize("error", [StopIteration(), GeneratorExit(), unittest.SkipTest("not here"), SystemExit(0), ValueError("no")], ids=repr)
def test_groups_that_are_destroyed_after_an_orderly_exception_are_closed_as_ever(error, monkeypatch):
    reasons = []
    monkeypatch.setattr(_endings, "_GRACE_SECONDS", 0)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setitem(sys.modules, "hccl_like._C", SimpleNamespace(_close_all_groups=reasons.append))
    destroyed = []
    try:
        raise error
    except BaseException:
        _endings._explaining(destroyed.append)()
    assert destroyed == [None]
    assert len(reasons) == isinstance(error, ValueError)


def leaves_others_at_work(rank, size):
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        tensor = torch.zeros(4)
        dist.recv(tensor, 2)
        assert tensor.tolist() == [2.0] * 4
        store.set("received", "")
    elif rank == 1:
        _endings.time = SimpleNamespace(sleep=lambda seconds: (store.set("leaving", ""), store.wait(["received"])))
        try:
            raise ValueError("enough")
        except ValueError:
            dist.destroy_process_group()
        with contextlib.suppress(dist.DistError):  # rank 0, which serves the store, may have ended
            store.set("leaving", "")
    else:
        store.wait(["leaving"])
        dist.send(torch.full((4,), 2.0), 0)


def test_a_rank_that_leaves_because_of_an_exception_lets_the_others_finish_their_calls():
    run_ranks(leaves_others_at_work, 3)


@pytest.mark.parametrize("again", slow_after_first(["raise", "raise RuntimeError('step failed')"]))
def test_a_rank_that_destroys_its_groups_because_a_call_failed_leaves_the_first_failure_as_it_is(again):
    (code, said), (other, theirs) = program(f"""
    if rank == 0:
        try:
            try:
                dist.all_reduce(torch.ones(4))
            except dist.DistBackendError as error:
                {again}
        finally:
            dist.destroy_process_group()
            store.set("left", "")
            store.wait(["over"])
    store.wait(["left"])
    try:
        dist.all_reduce(torch.ones(4))
    finally:
        store.set("over", "")
    """)
    assert code == other == 1
    (line,) = lines_of(theirs, "DistBackendError: ")
    assert re.search(r"\[HCCL-LIKE-202\]: .*reached its timeout", line) and "because of" not in line, line


def spawned(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("hccl-like", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=90))
    if rank == 1:
        raise ValueError("no more data")
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_reduce(torch.ones(4))
    with open(f"{folder}/told", "w") as told:
        told.write(str(caught.value))
    dist.destroy_process_group()


@pytest.mark.parametrize("start_method", slow_after_first(["spawn", "fork"]))
def test_a_spawned_rank_that_ends_by_an_exception_is_reported_as_that(start_method, tmp_path):
    context = start_processes(spawned, (str(tmp_path),), nprocs=2, join=False, start_method=start_method)
    for process in context.processes:
        process.join(60)
    assert [process.exitcode for process in context.processes] == [0, 1]
    assert re.search(
        r"\[HCCL-LIKE-402\]: aborted: group 0 was aborted on rank 1: its program ended with ValueError: no more data "
        r"\(python/test_endings.py:\d+\)",
        (tmp_path / "told").read_text())
    with pytest.raises(ProcessRaisedException, match="ValueError: no more data"):
        context.join()
