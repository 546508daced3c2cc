"""What the test run says of tests that were skipped, or passed at their second try."""

import json
import sys
from datetime import date
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import outcomes  # noqa: E402

NAME = "tests/python/test_x.py::test_y[a b]"


def listed(tmp_path, *lines):
    path = tmp_path / "unstable.txt"
    path.write_text("# a comment\n" + "\n".join(lines) + "\n")
    return path


def test_a_listed_test_is_named_with_its_age_and_another_one_as_new(tmp_path):
    entries = outcomes.known(listed(tmp_path, f"{NAME} | 2026-01-02 | it hung", "S.T | 2026-01-01 | wrong sum"))
    assert list(outcomes.judged([NAME, "S.Ta"], entries, date(2026, 1, 5))) == [
        f"UNSTABLE, listed for 3 days: {NAME}: it hung",
        "UNSTABLE, and NOT in tests/unstable.txt: S.Ta: find out why it failed, or list it",
    ]


@pytest.mark.parametrize(
    "lines, problem",
    [
        (["S.T | 2026-01-01"], ":2: write 'test"),
        (["S.T | yesterday | slow"], ":2: 'yesterday' is no date"),
        ([f"S.T{n} | 2026-01-01 | slow" for n in range(4)], ": 4 tests are listed, and 3 may be"),
    ],
)
def test_a_bad_list_is_refused(lines, problem, tmp_path):
    with pytest.raises(ValueError, match=problem):
        outcomes.known(listed(tmp_path, *lines))


def test_failed_tests_are_found_in_what_pytest_and_ctest_keep(tmp_path):
    (tmp_path / "lastfailed").write_text('{\n  "tests/a.py::b": true, "tests/a.py::c": false\n}')
    (tmp_path / "LastTestsFailed.log").write_text("12:Suite.Name\n7:Suite/Other.Name/0\n")
    assert outcomes.failed(tmp_path / "lastfailed") == ["tests/a.py::b"]
    assert outcomes.failed(tmp_path / "LastTestsFailed.log") == ["Suite.Name", "Suite/Other.Name/0"]


def test_skipped_tests_are_grouped_by_reason():
    pytest_log = """
SKIPPED tests/a.py::b[cpu] - Skipped: no GPU: none at all
SKIPPED tests/a.py::c[two words] - Skipped: no GPU: none at all
SKIPPED [1] tests/d.py:16: could not import 'sklearn': No module named 'sklearn'
"""
    assert outcomes.skipped(pytest_log) == {
        "no GPU: none at all": ["tests/a.py::b[cpu]", "tests/a.py::c[two words]"],
        "could not import 'sklearn': No module named 'sklearn'": ["tests/d.py:16"],
    }
    ctest_log = """
[ RUN      ] S.One
/src/a_test.cc:99: Skipped
only root can

[  SKIPPED ] S.One (0 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] S.One
[       OK ] S.Two (0 ms)
[ RUN      ] S.Three
/src/b_test.cc:1: Skipped
only root can

[  SKIPPED ] S.Three (0 ms)
"""
    assert outcomes.skipped(ctest_log) == {"only root can": ["S.One", "S.Three"]}
    tests = [{"outcome": "skip", "reason": "nccl only"}, {"outcome": "skip", "reason": "nccl only"}, {"outcome": "pass", "reason": ""}]
    assert outcomes.skipped(json.dumps({"tests": tests})) == {"nccl only": ["2 tests"]}
