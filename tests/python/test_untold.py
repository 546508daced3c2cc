"""Failures that no call and no wait would raise: of the last call of a program on a device, and of a program that ends itself."""

import os
import re
import socket
import subprocess
import sys
import textwrap
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import hccl_like
from conftest import slow_after_first
from ranks import run_ranks


USE = """
    dist.barrier()
    dist.group.WORLD._get_backend(torch.device("cpu"))._set_default_timeout(timedelta(seconds=1))
"""


def program(body, ranks=2, uses=True, **environment):
    """Runs a program with `rank`, `dist` and `torch` on several ranks; (exit code, what it wrote to standard error) of each.

    With `uses`, it has made a call and set a time-out of a second before.
    """
    text = textwrap.dedent("""
        import os, sys, time
        from datetime import timedelta
        import torch, torch.distributed as dist
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        listener = int(os.environ["LISTENER"])
        store = dist.TCPStore("127.0.0.1", int(os.environ["PORT"]), is_master=rank == 0, wait_for_workers=False,
                              master_listen_fd=None if rank else listener)
        dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=90))
    """) + textwrap.dedent(USE if uses else "") + textwrap.dedent(body)
    with socket.create_server(("127.0.0.1", 0), backlog=ranks) as listener:
        shared = {"WORLD_SIZE": ranks, "PORT": listener.getsockname()[1], "LISTENER": listener.fileno(), "OMP_NUM_THREADS": 1}
        children = [
            subprocess.Popen(
                [sys.executable, "-c", text], stderr=subprocess.PIPE, text=True, pass_fds=[listener.fileno()],
                env={**os.environ, **{name: str(value) for name, value in {**shared, **environment, "RANK": rank}.items()}})
            for rank in range(ranks)]
    try:
        said = [child.communicate(timeout=180)[1] for child in children]
    finally:
        for child in children:
            child.kill()
    return [(child.returncode, text) for child, text in zip(children, said)]


LAST_CALL = """
    if rank == 0:
        tensor = torch.ones(4, device="sim")
        dist.all_reduce(tensor)
        assert tensor.tolist() != [2.0] * 4
"""
STAY = """
    else:
        store.wait(["over"])
"""
FAILED = r"\[HCCL-LIKE-201\].*rank 0 of group 0: all_reduce #2 \(float32, sum, 16 bytes\) reached its timeout after \d+ ms, waiting for rank 1"


def lines_of(text, of):
    return [line for line in text.splitlines() if of in line]


def test_a_last_call_that_times_out_is_raised_by_destroy_process_group(sim):
    (code, said), _ = program(LAST_CALL + """
        from torch.distributed import destroy_process_group
        try:
            dist.destroy_process_group()
        except dist.DistBackendError as error:
            print(error, file=sys.stderr)
            assert not dist.is_initialized()
        finally:
            store.set("over", "")
    """ + STAY)
    assert code == 0, said
    assert re.search(FAILED, said), said


def test_that_ends_the_program_with_an_error_if_nobody_catches_it(sim):
    (code, said), _ = program(LAST_CALL + """
        store.set("over", "")
        dist.destroy_process_group()
    """ + STAY)
    assert code == 1 and re.search("torch.distributed.DistBackendError: .*" + FAILED, said), said


@pytest.mark.slow
def test_another_exception_keeps_its_place(sim):
    (code, said), _ = program(LAST_CALL + """
        store.set("over", "")
        try:
            raise ValueError("the program's own")
        finally:
            dist.destroy_process_group()
    """ + STAY)
    assert code == 1 and said.count("Traceback") == 1 and "ValueError: the program's own" in said, said
    assert len(lines_of(said, "a call failed that nobody has waited for")) == 1, said


@pytest.mark.parametrize("synchronize", slow_after_first(["torch.accelerator.synchronize()", "torch.sim.synchronize()"]))
def test_it_is_raised_by_synchronize(sim, synchronize):
    (code, said), _ = program(LAST_CALL + f"""
        try:
            {synchronize}
        except dist.DistBackendError as error:
            print(error, file=sys.stderr)
        finally:
            store.set("over", "")
        dist.destroy_process_group()  # is told once
    """ + STAY)
    assert code == 0 and len(re.findall(FAILED, said)) == 1, said


def test_else_it_is_one_line_and_the_exit_code(sim):
    (code, said), _ = program(LAST_CALL + """
        store.set("over", "")
    """ + STAY)
    assert code == 1, said
    (line,) = lines_of(said, "a call failed that nobody has waited for")
    assert re.match("hccl-like " + FAILED, line), line
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_exit_code_of_the_program_itself_stays(sim):
    (code, said), _ = program(LAST_CALL + """
        store.set("over", "")
        sys.exit(7)
    """ + STAY)
    assert code == 7 and len(lines_of(said, "nobody has waited for")) == 1, said


def test_a_lost_peer_is_noticed_too(sim):
    (code, said), (killed, _) = program(LAST_CALL.replace("if rank == 0:", "if rank == 1:\n        os.kill(os.getpid(), 9)\n    else:"))
    assert killed == -9 and code == 1, said
    assert re.search(r"\[HCCL-LIKE-301\]: a call failed that nobody has waited for.*peer lost \(rank 1\)", said), said


def test_work_on_the_host_that_nobody_waits_for_is_noticed_too():
    (code, said), _ = program("""
    if rank == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        while not work.is_completed():
            time.sleep(0.01)
        store.set("over", "")
    """ + STAY)
    assert code == 1 and len(lines_of(said, "nobody has waited for")) == 1, said


def told_already(rank, size, device):
    if rank == 1:
        time.sleep(1.5)
        return
    tensor = torch.ones(4, device=device)
    dist.all_reduce(tensor)
    tensor.cpu()
    with pytest.raises(dist.DistBackendError, match="reached its timeout after"):
        dist.all_reduce(tensor)
    other = torch.ones(1)
    dist.destroy_process_group()  # silent
    assert other.item() == 1


def test_what_a_call_has_raised_is_not_told_again(sim):
    run_ranks(told_already, 2, "sim", group_timeout=1)


def gives_up(rank, size, device):
    group = dist.new_group(timeout=timedelta(seconds=20))
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["given up"])
        dist.destroy_process_group()  # the other rank's call can no longer end
        return
    work = dist.all_reduce(torch.ones(4, device=device), group=group, async_op=True)
    with pytest.raises(dist.DistBackendError, match="is not over after the 100 ms"):
        work.wait(timedelta(milliseconds=100))
    store.set("given up", "")
    while work.exception() is None:
        time.sleep(0.01)
    dist.destroy_process_group()  # silent


def test_a_call_whose_wait_has_timed_out_is_told_already(device):
    run_ranks(gives_up, 2, device)


def test_a_rank_that_ends_by_an_exception_is_reported_as_that():
    (code, said), (guilty, theirs) = program("""
    if rank == 1:
        raise ValueError("no more data")
    dist.all_reduce(torch.ones(4))
    """)
    assert guilty == 1 and theirs.count("ValueError: no more data") == 1
    assert code == 1
    (line,) = lines_of(said, "DistBackendError: ")
    assert re.search(
        r"\[HCCL-LIKE-402\]: aborted: group 0 was aborted on rank 1: its program ended with ValueError: no more data \(\S*<string>:\d+\)",
        line), line
    assert hccl_like.failure(line).culprit == 1
    assert "same" not in line


@pytest.mark.slow
def test_a_rank_that_ends_in_order_and_is_missed_is_named():
    (code, said), (other, _) = program("""
    if rank == 0:
        dist.all_reduce(torch.ones(4))
    """)
    assert (code, other) == (1, 0)
    (line,) = lines_of(said, "DistBackendError: ")
    assert "lost rank 1" in line and "its program ended, while this rank still waited for it" in line, line


@pytest.mark.parametrize("end", slow_after_first(["os.kill(os.getpid(), 9)", "sys.exit(0)"]))
def test_the_end_of_the_rank_that_serves_the_store_is_one_line(end):
    _, (code, said) = program(f"""
    if rank == 0:
        {end}
    try:
        dist.recv(torch.ones(3), 0)
    except dist.DistBackendError as error:
        print(error, file=sys.stderr)
    time.sleep(2)  # the look-out looks twice a second
    """)
    assert code == 0, said
    assert len(lines_of(said, "the store at 127.0.0.1")) == 1, said
    assert "frame #" not in said and "[c10d]" not in said, said


GROUPS = """
    first = dist.new_group(timeout=timedelta(seconds=1))
    second = dist.new_group(timeout=timedelta(seconds=1))
    if rank == 0:
"""
SECOND_CALL = """
        tensor = torch.ones(4, device="sim")
        dist.all_reduce(tensor, group=second)
        tensor.cpu()
        store.set("over", "")
"""


@pytest.mark.parametrize("told", [
    """
        try:
            dist.all_reduce(torch.ones(4), group=first)
        except dist.DistBackendError:
            pass
    """,
    """
        future = dist.all_reduce(torch.ones(4), group=first, async_op=True).get_future()
        while not future.done():
            time.sleep(0.01)
    """,
], ids=["another group has failed", "a future that nobody looked at"])
def test_the_failure_of_a_group_is_told_whatever_befell_another(sim, told):
    body = GROUPS + textwrap.indent(textwrap.dedent(told), " " * 8) + SECOND_CALL + STAY
    (code, said), _ = program(body)
    assert code == 1, said
    assert any("all_reduce #1 (float32, sum, 16 bytes)" in line for line in lines_of(said, "nobody has waited for")), said


def test_a_store_before_on_the_same_port_is_not_taken_for_this_one():
    (_, said), (_, others) = program("""
        before = store
        dist.barrier()
        dist.destroy_process_group()
        port = int(os.environ["PORT"])
        if rank == 0:
            before.wait(["leaves"])
            del before, store
        else:
            os.close(listener)  # which would take connections
            before.set("leaves", "")
            while True:  # until its server has gone
                try:
                    before.check(["leaves"])
                    time.sleep(0.01)
                except Exception:
                    break
        store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
        dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=1))
        if rank == 1:
            try:
                dist.all_reduce(torch.ones(4))
            finally:
                store.set("over", "")
        else:
            store.wait(["over"])
            time.sleep(1)
    """)
    assert "reached its timeout" in others, others
    assert not lines_of(others, "has ended with the process that served it"), others
    assert "| rank" in others or "rank 0" in others, others
