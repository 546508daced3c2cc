"""The comparison of a benchmark with an earlier run: intervals, verdicts, exit codes."""

import itertools
import json
import random

import pytest

import fresh
from hccl_like.bench import baseline

CONFIG = {"collective": "all_reduce", "ranks": 2, "device": "cpu", "backend": "gloo", "compare": None, "op": "sum", "sync": False,
          "dirty": False, "blocking": 1, "agg_iters": 1, "average": 1, "pin": False, "passes": 7}  # fmt: skip
ENVIRONMENT = {"processor": "a processor", "cores": 2}


def row(times, size=4096, others=None):
    block = {"time_us": sorted(times)[len(times) // 2], "passes_us": list(times)}
    if others:
        block["reference_passes_us"] = list(others)
    return {"size": size, "type": "float", "redop": "sum", "root": -1, "out_of_place": None, "in_place": block}


def verdict(new, old, tolerance=0.1):
    (found,) = baseline.compare([new], [old], tolerance)
    return found


@pytest.mark.parametrize("new, old", [(3, 4), (5, 5), (7, 2)])
def test_rank_sums_are_counted_as_by_hand(new, old):
    counted = [0] * (new * old + 1)
    for places in itertools.combinations(range(new + old), new):
        counted[sum(place - number for number, place in enumerate(places))] += 1
    assert list(baseline._rank_sums(new, old)) == counted


def test_the_interval_is_that_of_the_rank_sum_test():
    """With five against five only the extreme order has less than half a per cent: 1 of 252."""
    ratio, low, high = baseline.interval([10, 11, 12, 13, 14], [1, 1, 1, 1, 2])
    assert (ratio, low, high) == (11, 5, 14)
    assert baseline.interval([10, 11, 12], [1, 1, 1])[1:] == (0.0, float("inf"))


STEADY = (100, 101, 99, 100, 102, 98, 100)


@pytest.mark.parametrize("new, said", [
    ([time * 1.3 for time in STEADY], "slower"), ([time / 1.3 for time in STEADY], "faster"), (STEADY, "same"),
    ([time * 1.05 for time in STEADY], "same"), ([100, 150, 80, 200, 130, 90, 160], "unsure")])  # fmt: skip
def test_a_regression_is_told_from_noise(new, said):
    assert verdict(row(new), row(STEADY)).verdict == said


def test_the_interval_holds_as_often_as_it_says():
    """Of 2,000 pairs of runs without a difference, 1 % may be found to differ; 2 % would be a wrong interval."""
    draw = random.Random(1)
    outside = 0
    for _ in range(2000):
        new, old = ([draw.lognormvariate(0, 0.5) for _ in range(7)] for _ in range(2))
        _, low, high = baseline.interval(new, old)
        outside += not low <= 1 <= high
    assert outside <= 40
    assert outside > 0, "an interval that is never wrong is too wide"


def test_a_machine_that_is_slower_for_both_backends_is_no_regression():
    twice = [2 * time for time in STEADY]
    assert verdict(row(twice, others=twice), row(STEADY, others=STEADY)).verdict == "same"
    assert verdict(row(twice, others=STEADY), row(STEADY, others=STEADY)).verdict == "slower"


def test_a_run_with_too_much_noise_is_not_called_right():
    noisy = [100, 150, 80, 200, 130, 90, 160]
    assert ": UNSURE; of 1 rows" in baseline.lines(baseline.compare([row(noisy)], [row(STEADY)], 0.1), "old.json")[-1]


def test_the_last_line_counts_the_verdicts():
    rows = baseline.compare([row([2 * time for time in STEADY]), row(STEADY, 8)], [row(STEADY), row(STEADY, 8)], 0.1)
    told = baseline.lines(rows, "old.json")
    assert told[0] == "#   4 KiB float sum in_place: 200.00 us, was 100.00: 2.000 times [1.960, 2.041], slower"
    assert told[-1] == "# Baseline             : SLOWER; of 2 rows 1 slower, 0 faster, 1 same, 0 unsure than old.json (99% confidence)"


@pytest.mark.parametrize("config, environment, results, why", [
    ({"collective": "barrier"}, {}, [row(STEADY)], "collective is 'all_reduce' and was 'barrier'"),
    ({"dirty": True}, {}, [row(STEADY)], "dirty is False and was True"),
    ({}, {"cores": 8}, [row(STEADY)], "cores is 2 and was 8"),
    ({}, {}, [row(STEADY[:1])], "7 passes against 1 in"),
    ({}, {}, [], "is no file that -J wrote with --passes"),
])  # fmt: skip
def test_a_run_that_cannot_be_compared_is_refused(tmp_path, config, environment, results, why):
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"config": CONFIG | config, "environment": ENVIRONMENT | environment, "results": results}))
    with pytest.raises(baseline.NotComparable, match=why):
        baseline.read(str(file), CONFIG, ENVIRONMENT)


def block(time, **more):
    return {"time_us": time, "p99_us": 2 * time, "algbw": 1.0, "busbw": 1.0, "wrong": 0, **more}


def test_passes_are_merged_to_medians_and_wrong_elements_add_up():
    rows = [{"size": 8, "foreign": load, "in_place": block(time, wrong=wrong, floor_us=None), "out_of_place": None}
            for time, wrong, load in ((1.0, 0, 0.1), (9.0, 2, None), (2.0, 1, 0.3))]  # fmt: skip
    merged = baseline.merge(rows)
    assert merged["in_place"]["time_us"] == 2.0 and merged["in_place"]["passes_us"] == [1.0, 9.0, 2.0]
    assert merged["in_place"]["wrong"] == 3 and merged["foreign"] == pytest.approx(0.2) and merged["out_of_place"] is None


def bench(*arguments):
    command = ["-m", "hccl_like", "bench", "all_reduce", "--backend", "gloo", "-b", "64", "-e", "64", "-n", "3", *map(str, arguments)]
    return fresh.run(command)


@pytest.mark.slow
def test_a_run_is_held_against_its_baseline_and_the_exit_code_tells(tmp_path):
    file = tmp_path / "old.json"
    done = bench("--passes", 7, "-J", file)
    assert done.returncode == 0, done.stderr
    old = json.loads(file.read_text())
    assert len(old["results"][0]["in_place"]["passes_us"]) == 7

    found = old["results"][0]["in_place"]
    found["passes_us"] = [time / 1000 for time in found["passes_us"]]  # as if it had been that fast
    file.write_text(json.dumps(old))
    done = bench("--baseline", file, "-J", tmp_path / "new.json")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "# Baseline             : SLOWER; of 1 rows 1 slower" in done.stdout
    (verdict,) = json.loads((tmp_path / "new.json").read_text())["baseline"]["rows"]
    assert verdict["verdict"] == "slower"


def test_a_baseline_of_another_run_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "old.json").write_text("{}")
    done = bench("-g", 2, "--baseline", tmp_path / "old.json")
    assert done.returncode == 2
    assert "old.json is no file that -J wrote with --passes" in done.stderr
    assert "# Avg bus bandwidth" not in done.stdout
