"""examples/recovery: a rank is killed in training, and the others go on from memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import slow_after_first

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "recovery" / "train.py"


def trained(*arguments):
    run = subprocess.run([sys.executable, str(TRAIN), *arguments], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    return {int(rank): result for rank, result in json.loads(run.stdout.splitlines()[-1]).items()}, run.stdout


@pytest.mark.parametrize("device", slow_after_first(["sim", "cpu"]), indirect=True)
def test_survivors_of_a_kill_train_on_from_memory(device):
    results, said = trained("--ranks", "3", "--kill", "1", "--at-step", "5", "--steps", "40", "--device", device)
    assert sorted(results) == [0, 2]
    for result in results.values():
        (recovery,) = result["recoveries"]
        assert recovery["lost"] == [1]
        assert recovery["noticed"] < 5 and recovery["goes_on"] < 15
        assert 6 <= recovery["step"] <= 7
        assert result["same"]
    assert "peer lost [HCCL-LIKE-301]" in said


@pytest.mark.slow
def test_the_rank_with_number_0_and_then_another_are_killed():
    results, _ = trained("--ranks", "4", "--kill", "0", "--kill", "3", "--at-step", "5", "--steps", "40")
    assert sorted(results) == [1, 2]
    assert [recovery["lost"] for recovery in results[1]["recoveries"]] == [[0], [3]]
