"""The runner of PyTorch's distributed tests, run on fake tests that behave in every way."""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def command(*arguments):
    return [sys.executable, "-m", "hccl_like.conformance", "--backend", "some-backend", "--world-size", "2", *arguments]


def environment(**more):
    """The fakes are found beside this file, the package as this process finds it."""
    path = os.pathsep.join([str(HERE), *(entry for entry in sys.path if entry)])
    return {**os.environ, "PYTHONPATH": path, **more}


def run(*arguments, **more):
    return subprocess.run(
        command(*arguments),
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """One run of all fakes: (completed process, tests by name, JUnit root, pid file)."""
    folder = tmp_path_factory.mktemp("conformance")
    process = run(
        "--suite", "conformance_fakes", "--timeout", "4", "--jobs", "4",
        "--json", str(folder / "all.json"), "--junit", str(folder / "all.xml"),
        FAKES_PID=str(folder / "pid"),
    )  # fmt: skip
    document = json.loads((folder / "all.json").read_text())
    tests = {test["id"].split(".", 1)[1]: test for test in document["tests"]}
    return process, document, tests, xml.parse(folder / "all.xml").getroot(), folder


def outcome(everything, name):
    test = everything[2]["Fakes." + name]
    return test["outcome"], test["reason"]


def test_a_pass_is_a_pass(everything):
    assert outcome(everything, "test_passes") == ("pass", "")


def test_a_failure_names_its_rank_and_the_first_line_of_its_cause(everything):
    assert outcome(everything, "test_fails_on_rank_1") == ("fail", "rank 1: ValueError: the cause")


def test_the_output_of_failed_ranks_is_kept_and_shown(everything):
    process, _, tests, root, _ = everything
    ranks = tests["Fakes.test_fails_on_rank_1"]["ranks"]
    assert "what rank 1 printed" in ranks[1]["output"] and "and more of it" in ranks[1]["error"]
    assert [rank["exit_code"] for rank in ranks] == [0, 10]
    assert "what rank 1 printed" in process.stdout
    failure = root.find(".//testcase[@name='test_fails_on_rank_1']/failure")
    assert failure.get("message") == "rank 1: ValueError: the cause" and "what rank 1 printed" in failure.text


def test_a_hang_is_ended_and_shows_where_it_hung(everything):
    assert outcome(everything, "test_hangs_on_rank_0") == ("fail", "timed out: rank 0 still running after 4 s")
    assert "test_hangs_on_rank_0" in everything[2]["Fakes.test_hangs_on_rank_0"]["ranks"][0]["output"]


def test_a_killed_rank_fails_the_test_while_the_other_waits(everything):
    assert outcome(everything, "test_is_killed") == ("fail", "rank 1: ended with signal SIGKILL")


def test_the_exit_code_of_every_rank_counts(everything):
    assert outcome(everything, "test_ends_quietly_with_a_code_on_rank_1") == ("fail", "rank 1: ended with exit code 3")
    assert outcome(everything, "test_skips_on_rank_1_only") == (
        "fail",
        "the ranks ended differently: 0: exit code 0, 1: exit code 87 (Skipped due to odd world size.)",
    )


def test_every_skip_has_its_reason(everything):
    assert outcome(everything, "test_skips_with_a_reason") == ("skip", "no such hardware")
    assert outcome(everything, "test_skips_as_torch_does") == ("skip", "Skipped due to odd world size.")
    assert outcome(everything, "test_is_never_started") == ("skip", "switched off")


def test_a_traceback_longer_than_a_pipe_does_not_hang_its_rank(everything):
    ended, reason = outcome(everything, "test_sends_a_long_traceback")
    assert ended == "fail" and reason.startswith("rank 0: ValueError: xxx")


def test_a_process_that_left_its_group_does_not_survive_the_test(everything):
    assert outcome(everything, "test_leaves_a_process_behind") == ("pass", "")
    with pytest.raises(ProcessLookupError):
        os.kill(int((everything[4] / "pid").read_text()), 0)


def test_a_class_may_select_and_skip_its_tests(everything):
    selected = {id: test["outcome"] for id, test in everything[2].items() if id.startswith("SelectedFakes.")}
    assert selected == {"SelectedFakes.test_passes": "pass", "SelectedFakes.test_is_killed": "skip"}
    assert everything[2]["SelectedFakes.test_is_killed"]["reason"] == "not today"


def test_the_numbers_agree_in_json_and_junit_and_the_exit_code_says_failed(everything):
    process, document, tests, root, _ = everything
    assert process.returncode == 1
    assert document["counts"] == {"pass": 3, "fail": 6, "skip": 4, "xfail": 0, "xpass": 0}
    assert (document["backend"], document["device"], document["world_size"]) == ("some-backend", "cpu", 2)
    suite = root.find("testsuite")
    assert [suite.get(key) for key in ("name", "tests", "failures", "skipped")] == ["conformance_fakes", "13", "6", "4"]
    assert len(root.findall(".//testcase")) == len(tests) == 13


def test_failed_tests_run_again_from_the_json_until_the_first_failure(everything):
    process = run("--suite", "conformance_fakes", "--failed-from", str(everything[4] / "all.json"), "--fail-fast", "-k", "test_[e-f]*")
    assert process.returncode == 1
    assert process.stdout.splitlines()[-1] == "0 pass, 1 fail, 0 skip, 0 xfail, 0 xpass"


def test_list_names_tests_and_known_skips_without_running_any():
    process = run("--suite", "conformance_fakes", "--list", "-k", "Selected*")
    assert process.returncode == 0
    assert process.stdout.splitlines() == [
        "conformance_fakes.SelectedFakes.test_passes",
        "conformance_fakes.SelectedFakes.test_is_killed: not today",
    ]


def test_a_suite_that_cannot_be_loaded_is_a_failure_and_the_next_one_runs():
    process = run("--suite", "conformance_broken", "--suite", "conformance_fakes", "-k", "Selected")
    assert process.returncode == 1
    assert "suite conformance_broken cannot be loaded: RuntimeError: no such thing here" in process.stdout
    assert process.stdout.splitlines()[-1] == "1 pass, 0 fail, 1 skip, 0 xfail, 0 xpass"


def test_a_killed_command_takes_its_ranks_with_it(tmp_path):
    pid_file = tmp_path / "pid"
    process = subprocess.Popen(
        command("--suite", "conformance_fakes", "-k", "Fakes.test_hangs*"),
        env=environment(FAKES_HUNG_PID=str(pid_file)),
        stdout=subprocess.DEVNULL,
    )
    wait_until(pid_file.exists)
    rank = int(pid_file.read_text())
    process.kill()
    process.wait(20)
    wait_until(lambda: not is_alive(rank))


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid):
    """A zombie that nobody reaped yet does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
