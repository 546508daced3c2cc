"""The faults of bench/chaos.py, in a minute of what it can do for hours."""

import json
import os
import subprocess
import sys
from pathlib import Path

CHAOS = Path(__file__).resolve().parents[2] / "bench" / "chaos.py"


def test_no_fault_ends_in_a_hang_a_crash_or_silence(tmp_path):
    results = tmp_path / "chaos.json"
    command = [sys.executable, str(CHAOS), "--timeout", "2", "--churn", "4", "--patience", "3", "--json", str(results)]
    run = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    cases = {result["case"]: result for result in json.loads(results.read_text())["results"]}
    assert all(result["problems"] == [] for result in cases.values())
    assert {"kill", "stop", "differ-root", "garbage", "churn"} <= cases.keys()
    assert cases["churn"]["figures"]["kills"] >= 2
    killed = cases["kill"]["outcomes"]
    assert [outcome["kind"] for outcome in killed] == ["raised", "died", "raised", "raised"]


def test_a_case_that_does_not_hold_is_told(tmp_path):
    run = subprocess.run([sys.executable, str(CHAOS), "--timeout", "3", "--backend", "gloo", "differ-operation"],
                         capture_output=True, text=True, timeout=100)
    assert run.returncode == 1
    assert "FAILS  differ-operation" in run.stdout
    assert "rank 0 done (must be raised)" in run.stdout
