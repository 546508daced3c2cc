"""A rank that can start no more threads: its calls go on without, or raise what could not be started and what to do."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which(os.environ.get("CC", "cc")) or pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("few") / "few_threads.so"
    subprocess.run([compiler, "-shared", "-fPIC", HERE / "few_threads.c", "-o", library, "-ldl"], check=True)
    return library


@pytest.fixture(scope="module")
def program(library, tmp_path_factory):
    """few_threads.py, which forks the ranks of each case that it is asked for, and its log."""
    preload = f"{os.environ.get('LD_PRELOAD', '')} {library}".lstrip()  # a sanitizer's runtime comes first
    # In strict mode the threads of the simulator's own streams come and go, and would be refused before ours.
    environment = {**os.environ, "LD_PRELOAD": preload, "OMP_NUM_THREADS": "1", "TORCH_SIM_STRICT": "0"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with open(tmp_path_factory.mktemp("few") / "log", "a+") as log:
        with subprocess.Popen([sys.executable, HERE / "few_threads.py"], env=environment, stderr=log, **pipes) as running:
            yield running, log
            running.stdin.close()


@pytest.fixture
def said(program):
    """What both ranks of a case of few_threads.py said, and the log of the case."""
    running, log = program

    def run(case):
        begin = os.fstat(log.fileno()).st_size
        running.stdin.write(f"{case}\n")
        running.stdin.flush()
        answer = running.stdout.readline()
        log.seek(begin)
        text = log.read()
        assert answer, text
        outcome = json.loads(answer)
        assert isinstance(outcome, list), outcome
        return *outcome, text

    return run


def refused(text, what, where="system (rank 1):"):
    return f"{where} cannot start the thread that {what}: " in text and "ulimit -u" in text


def test_a_group_that_cannot_be_reached_is_not_made(said):
    (other, took), (own, _), log = said("made with 0")
    assert own.startswith("DistNetworkError: hccl-like could not make process group '0' on rank 1 [HCCL-LIKE-601]")
    assert refused(own, "waits for peers which connect", "system:")
    assert other.startswith("DistBackendError: hccl-like all_reduce [HCCL-LIKE-301]: peer lost (rank 1)")
    assert took < 3
    assert refused(log, "shows peers that this process lives", "than they could be:")


def test_what_is_for_diagnosis_is_gone_without(said):
    (other, _), (own, _), log = said("made with 1")
    assert [other, own] == ["right", "right"]
    assert refused(log, "looks out for questions of other ranks", "WARN")


def test_calls_that_nobody_waits_for_yet_go_on_with_the_wait(said):
    (other, _), (own, _), log = said("nobody waits")
    assert [other, own] == ["right", "right"]
    assert refused(log, "goes on with calls that nobody waits for", "waits for one:")


def test_a_future_is_refused_again_and_again_and_the_call_is_well(said):
    other, own, _ = said("future")
    assert [what for what, _ in other] == [[2, 2, 2], [2, 2, 2], "0", [2, 2, 2]]
    *refusals, (result, _) = own
    assert len(refusals) == 3
    for text, took in refusals:
        assert text.startswith("DistBackendError: hccl-like all_reduce [HCCL-LIKE-601]"), text
        assert refused(text, "completes Futures")
        assert took < 2
    assert result == [2, 2, 2]


def test_a_hook_is_refused_and_the_group_is_well(said):
    other, own, _ = said("hook")
    assert [what for what, _ in other] == [None, "right"]
    assert refused(own[0][0], "completes Futures")
    assert own[1][0] == "right"


def test_a_profiler_goes_without_the_end_of_a_call(said):
    (other, _), (own, _), log = said("profiled")
    assert [other, own] == ["right", "right"]
    assert refused(log, "completes Futures", "whoever waits for it:")


def test_a_time_out_is_told_without_the_table(said):
    _, (own, took), log = said("timed out")
    assert own.startswith("DistBackendError: hccl-like all_reduce [HCCL-LIKE-201]"), own
    assert 4 < took < 8
    assert refused(log, "tells other ranks where this one is", "system:")


@pytest.mark.parametrize(
    "case, thread", [("staged", "stages calls on a device"), ("in a stream", "loads a device plugin")]
)
def test_a_call_on_a_device_is_refused_on_all_ranks(sim, said, case, thread):
    others, own, _ = said(case)
    (first, took), (second, _) = own
    assert first.startswith("DistBackendError: hccl-like all_reduce [HCCL-LIKE-601]"), first
    assert refused(first, thread)
    assert took < 3
    assert second.startswith("DistBackendError: hccl-like all_reduce [HCCL-LIKE-401]: aborted: group 0 was aborted on rank 1")
    (result, _), (told, took) = others
    assert result != "right"
    assert told.startswith("DistBackendError: hccl-like all_reduce [HCCL-LIKE-402]: aborted: group 0 was aborted on rank 1"), told
    assert refused(told, thread, "on rank 1:")
    assert took < 3
