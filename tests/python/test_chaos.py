"""The faults of bench/chaos.py, in one minute of what it can do for hours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).resolve().parents[2] / "bench" / "chaos.py"
# One of each kind; the others run at night.
SOME = "kill stop dies-at-init interrupt differ-shape garbage held forged-store descriptors-2 dev-shm leftovers churn".split()
if os.environ.get("SANITIZED"):
    # A sanitizer that looks at objects makes a pipe to see whether their memory is there.
    SOME.remove("descriptors-2")


# Figures are for an idle machine; here a limit in time only tells a hang from none.
def chaos(tmp_path, *arguments, timeout=400):
    """The exit status, what was printed, and each case's part of the JSON."""
    results = tmp_path / "chaos.json"
    command = [sys.executable, str(CHAOS), "--quick", "--patience", "100", "--json", str(results), *arguments]
    run = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=timeout)
    cases = json.loads(results.read_text())["results"] if results.exists() else []
    return run.returncode, run.stdout + run.stderr[-4000:], {case["case"]: case for case in cases}


def figures(case):
    return {figure["goal"]: figure for figure in case["figures"]}


def test_no_fault_ends_in_a_hang_a_crash_or_silence(tmp_path):
    status, text, cases = chaos(tmp_path, "--timeout", "5", "--churn", "4", *SOME)
    assert status == 0, text
    assert set(cases) == set(SOME)
    assert all(case["problems"] == [] for case in cases.values())
    assert [outcome["kind"] for outcome in cases["kill"]["outcomes"]] == ["raised", "died", "raised", "raised"]
    assert figures(cases["churn"])["the job works again after"]["samples"] >= 2
    assert figures(cases["garbage"])["attempts that were not counted"]["value"] == 0
    if not cases["leftovers"]["skipped"]:
        assert figures(cases["leftovers"])["files, sockets, segments, processes left"]["value"] == 0


@pytest.mark.slow
def test_networks_that_fail_and_much_of_everything(tmp_path):
    status, text, cases = chaos(tmp_path, "--timeout", "6", "--churn", "30", timeout=3000)
    assert status == 0, text
    assert {"silent-host", "outage-cable", "groups", "groups-alive", "calls", "replay"} <= cases.keys()


def test_a_case_that_does_not_hold_is_told(tmp_path):
    status, text, cases = chaos(tmp_path, "--timeout", "3", "--backend", "gloo", "differ-operation")
    assert status == 1
    assert "FAIL  differ-operation" in text
    assert "rank 0 done (must be raised)" in text
    assert "0 cases hold, 1 do not, 0 could not be tried" in text
    assert figures(cases["differ-operation"])["every other rank raises after"]["holds"] is False


def test_hours_are_tries_whose_figures_come_together(tmp_path):
    status, text, cases = chaos(tmp_path, "--timeout", "4", "--hours", "0.0005", "abort")
    assert status == 0, text
    (figure,) = cases["abort"]["figures"]
    assert figure["samples"] == len(cases["abort"]["outcomes"]) and figure["samples"] % 4 == 0


def test_an_unknown_case_is_refused(tmp_path):
    status, text, _ = chaos(tmp_path, "kil")
    assert status == 2 and "no such case: kil; --list names them" in text
