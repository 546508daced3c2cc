"""Errors have a number that docs/errors.md explains, say who saw them first, and reach torchrun."""

import json
import os
import re
import runpy
import signal
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import hccl_like
from ranks import run_ranks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"


def failure_of(call):
    with pytest.raises(Exception) as caught:
        call()
    return hccl_like.failure(caught.value)


def a_rank_is_killed(rank, size, folder):
    os.environ["TORCHELASTIC_ERROR_FILE"] = f"{folder}/{rank}/error.json"
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    failure = failure_of(lambda: dist.all_reduce(torch.ones(1 << 20)))
    assert failure.number in (301, 302)
    assert failure.seen_here == (failure.number == 301)
    assert (failure.kind, failure.culprit) == ("peer lost", 1)
    assert (failure.operation, failure.sequence) == ("all_reduce", 2)
    assert failure.host
    written = json.load(open(f"{folder}/{rank}/error.json"))["message"]
    assert f"[HCCL-LIKE-{failure.number}]: " in written["message"]
    assert written["message"].split(": ", 1)[1] == written["extraInfo"]["py_callstack"]
    assert int(written["extraInfo"]["timestamp"]) > 0
    # The survivors go on, so that was not what may end them.
    group = dist.shrink_group([1], shrink_flags=1)
    assert not os.path.exists(f"{folder}/{rank}/error.json")
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [2, 2, 2]


def test_a_death_is_told_with_number_rank_host_and_call_and_is_in_torchrun_s_file(tmp_path):
    run_ranks(a_rank_is_killed, 3, str(tmp_path))


def there_is_a_file(rank, size, folder):
    os.environ["TORCHELASTIC_ERROR_FILE"] = f"{folder}/error.json"
    if rank == 0:
        open(f"{folder}/error.json", "w").write("mine")
        failure = failure_of(lambda: dist.all_reduce(torch.ones(3)))
        assert failure.kind == "mismatch"
    else:
        failure = failure_of(lambda: dist.all_reduce(torch.ones(4)))
    assert failure.number in (501, 502)
    assert (failure.operation, failure.sequence) == ("all_reduce", 1)


def test_an_error_file_that_is_there_is_left_alone(tmp_path):
    run_ranks(there_is_a_file, 2, str(tmp_path))
    assert (tmp_path / "error.json").read_text() == "mine"


def waits_and_aborts(rank, size):
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        failure = failure_of(lambda: work.wait(timedelta(milliseconds=50)))
        assert (failure.number, failure.kind) == (203, "timeout")
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
        assert failure_of(work.wait).number == 401
    else:
        failure = failure_of(lambda: dist.recv(torch.ones(1), 0))
        assert (failure.number, failure.kind, failure.culprit) == (402, "aborted", 0)


def test_a_wait_that_was_given_up_and_an_abort_have_numbers_of_their_own():
    run_ranks(waits_and_aborts, 2)


def has_a_nan(rank, size, device):
    dist.all_reduce(torch.ones(3, device=device))
    tensor = torch.ones(4, 5, device=device)
    if rank == 1:
        tensor[2, 3] = float("nan")
    failure = failure_of(lambda: (dist.all_reduce(tensor), tensor.cpu(), dist.barrier()))
    assert failure.number == (801 if rank == 1 else 802)
    assert "the input of rank 1 to all_reduce #2 has a NaN, the first at index [2, 3]" in failure.message


def test_a_nan_is_found_where_it_enters(device):
    run_ranks(has_a_nan, 2, device, environment={"HCCL_LIKE_NAN_CHECK": "1"})


def test_the_page_has_every_number_and_no_other():
    source = (PAGE.parents[1] / "core" / "base" / "error.cc").read_text()
    hundreds = [int(number) for number in re.findall(r"\d+", source.split("kHundreds{")[1].split("}")[0])]
    wanted = {number for number in hundreds if number % 100} | {h + i for h in hundreds if h % 100 == 0 for i in (1, 2)}
    wanted |= {203, 211, 311}
    assert {int(number) for number in re.findall(r"^\| HCCL-LIKE-(\d+) ", PAGE.read_text(), re.M)} == wanted


def test_the_table_of_the_page_is_up_to_date():
    assert runpy.run_path(str(PAGE.parent / "site" / "errors.py"))["page"]() == PAGE.read_text(), "python docs/site/errors.py"


@pytest.mark.parametrize("number, advice", [
    (301, "look at the end of that rank's own log (killed for memory? crashed?). Go on by shrink_group or a new group, or let torchrun restart"),
    (302, "look at the end of that rank's own log (killed for memory? crashed?). Go on by shrink_group or a new group, or let torchrun restart; the "
          "message has rank, host and call"),
    (999, "")])  # fmt: skip
def test_a_failure_has_the_page_s_advice(number, advice):
    assert hccl_like.failure(f"[HCCL-LIKE-{number}]: something").advice == advice


MISMATCH = "hccl-like barrier [HCCL-LIKE-501]: mismatch: ranks 2 and 4 of group 0 disagree about call #12"


@pytest.mark.parametrize(
    "rest, operation",
    [
        (", all_reduce of float32 (sum): rank 2 passed 4 elements, rank 4 passed 5 elements. Every rank must ...", "all_reduce"),
        (", barrier: they differ in secret. Every rank must ...", "barrier"),
        (", an unknown call (20 bytes on both): they differ in secret. Every rank must ...", None),
        (": rank 2 passed 1 element to all_reduce of float64 (sum), rank 4 called barrier. Every rank must ...", None),
    ],
)
def test_a_mismatch_has_the_number_of_the_call_and_its_operation_if_the_ranks_agree_about_that(rest, operation):
    failure = hccl_like.failure(MISMATCH + rest)
    assert (failure.operation, failure.sequence) == (operation, 12)


def test_an_error_of_another_kind_is_no_failure_of_ours():
    assert hccl_like.failure(ValueError("something else")) is None
