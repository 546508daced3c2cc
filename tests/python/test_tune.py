"""Profiles: measured, written, read by all ranks, and compared."""

import json
import re

import pytest
import torch
import torch.distributed as dist

from hccl_like import cli, tune
from ranks import RankFailed, run_ranks

LAYOUT = [0, 0, 1]


def measured(rank, size, path):
    result = tune.tune(["all_reduce", "reduce"], max_bytes=1024, seconds=0.001)
    if rank == 0:
        tune.write(path, result)
        tune.write(path, {"layout": "9x9", "collectives": {"reduce": [{"bytes": 8, "best": "chain"}]}})
    return result


def test_ranks_agree_on_what_was_measured_and_it_can_be_used(make_hosts, tmp_path):
    hosts, path = make_hosts(2), str(tmp_path / "profile.json")
    results = run_ranks(measured, 3, path, hosts=hosts, layout=LAYOUT)
    assert results[0]["layout"] == "0,0,1"
    best = [[(row["bytes"], row["best"]) for row in one["collectives"]["all_reduce"]] for one in results]
    assert best[0] == best[1] == best[2]
    assert [size for size, _ in best[0]] == [8, 64, 512]
    profile = json.load(open(path))
    assert set(profile["layouts"]) == {"0,0,1", "9x9"}
    assert [tuple(row) for row in profile["layouts"]["0,0,1"]["all_reduce"]] == best[0]
    run_ranks(sums, 3, hosts=hosts, layout=LAYOUT, environment={"HCCL_LIKE_PROFILE": path})


def by_command(rank, size, path):
    return tune.main(["--output", path, "--collectives", "broadcast,all_to_all", "--max-bytes", "8", "--milliseconds", "0.1"])


def test_the_command_writes_a_profile(make_hosts, tmp_path):
    path = str(tmp_path / "profile.json")
    assert run_ranks(by_command, 3, path, hosts=make_hosts(2), layout=LAYOUT) == [0, 0, 0]
    assert set(json.load(open(path))["layouts"]["0,0,1"]) == {"broadcast", "all_to_all"}


def test_the_command_is_started_on_all_ranks(monkeypatch, capsys):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit):
        tune.main([])
    assert "torchrun" in capsys.readouterr().err


def sums(rank, size):
    for many in (1, 100, 100_000):
        tensor = torch.full((many,), float(rank + 1))
        dist.all_reduce(tensor)
        assert tensor.eq(size * (size + 1) / 2).all()
    return True


def write_profile(path, layout, algorithm):
    path.write_text(json.dumps({"hccl_like_profile": 1, "layouts": {layout: {"all_reduce": [[8, algorithm]]}}}))
    return str(path)


def trace(rank, size):
    dist.all_reduce(torch.ones(1000))


@pytest.mark.parametrize("algorithm", ["ring", "leaders_one_shot"])
def test_the_profile_decides(algorithm, make_hosts, tmp_path):
    log = tmp_path / "log"
    environment = {
        "HCCL_LIKE_PROFILE": write_profile(tmp_path / "profile.json", "0,0,1", algorithm),
        "HCCL_LIKE_DEBUG": "TRACE",
        "HCCL_LIKE_DEBUG_FILE": f"{log}-%p",
    }
    run_ranks(trace, 3, hosts=make_hosts(2), layout=LAYOUT, environment=environment)
    text = "".join(file.read_text() for file in tmp_path.glob("log-*"))
    assert f"all_reduce of 4000 bytes on 3 ranks: {algorithm} in" in text


def test_ranks_with_different_profiles_are_told(tmp_path):
    paths = [write_profile(tmp_path / f"{name}.json", "2x2", name) for name in ("ring", "direct")]
    with pytest.raises(RankFailed, match=r"HCCL_LIKE_PROFILE is a file with checksum \d+ on rank 0 .* and a file with checksum"):
        run_ranks(sums, 2, environment=lambda rank: {"HCCL_LIKE_PROFILE": paths[rank]})


def test_ranks_with_different_settings_are_told():
    with pytest.raises(RankFailed, match=r"HCCL_LIKE_SLICE_BYTES is not set on rank 0 \(.*\) and 4096 on rank 1 \(.*\); set it alike"):
        run_ranks(sums, 2, environment=lambda rank: {"HCCL_LIKE_SLICE_BYTES": "4096"} if rank else {})


@pytest.mark.parametrize("text", [None, "{}", '{"hccl_like_profile": 1, "layouts": {"2x2": {"all_reduce": [[8, "quantum"]]}}}'])
def test_a_file_that_is_no_profile_is_named(text, tmp_path):
    path = tmp_path / "profile.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RankFailed, match=f"HCCL_LIKE_PROFILE: {path}"):
        run_ranks(sums, 2, environment={"HCCL_LIKE_PROFILE": str(path)})


def on_one_host(rank, size, path):
    assert tune.main(["--output", path, "--collectives", "all_reduce,broadcast", "--max-bytes", "32768", "--milliseconds", "0.1"]) == 0
    return tune.tune(["all_reduce"], max_bytes=32768, seconds=0.0001)


def test_on_one_host_paths_are_measured_beside_algorithms(tmp_path, capfd, monkeypatch):
    path = tmp_path / "profile.json"
    results = run_ranks(on_one_host, 2, str(path))
    assert results[0] == results[1] and results[0]["layout"] == "1x2"
    rows = results[0]["collectives"]["all_reduce"]
    assert [(row["bytes"], row["way"], row["model"]) for row in rows] == [
        (8, "board", "path board"), (64, "board", "path board"), (512, "board", "path board"), (4096, "board", "path board"), (32768, "direct", "path direct")]
    assert all({row["model"], "ring", "direct"} <= set(row["seconds"]) for row in rows)
    said = capfd.readouterr().out
    assert len(re.findall(r"^HCCL_LIKE_ALGO=all_reduce:|^all_reduce(: nothing to set| of \d+ bytes takes)", said, re.M)) == 1
    profile = json.loads(path.read_text())
    assert profile["layouts"] == {} and set(profile["measured"]) == {"1x2"}
    run_ranks(sums, 2, environment={"HCCL_LIKE_PROFILE": str(path)})  # which chooses nothing
    monkeypatch.setenv("HCCL_LIKE_PROFILE", str(path))
    assert cli.main(["explain", "all_reduce", "32768", "2"]) == 0
    us = dict(profile["measured"]["1x2"]["all_reduce"])[32768]["path direct"] * 1e6
    assert capfd.readouterr().out.startswith(f"the profile {path} has measured this path: {us:.2f} us at 32768 bytes. ")
    assert cli.main(["explain", "all_reduce", "32768", "2", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["way"], told["measured_us"], told["chosen_by_profile"]) == ("direct", pytest.approx(us), None)


def on_a_device(rank, size, path):
    return tune.main(["--output", path, "--collectives", "all_reduce", "--max-bytes", "64", "--milliseconds", "0.1", "--device", "sim"])


def test_a_device_is_measured_by_itself(tmp_path):
    pytest.importorskip("torch_sim")
    path = tmp_path / "profile.json"
    assert run_ranks(on_a_device, 2, str(path), environment=lambda rank: {"LOCAL_RANK": str(rank)}) == [0, 0]
    assert set(json.loads(path.read_text())["measured"]) == {"1x2 sim"}


@pytest.mark.parametrize("times, told", [
    ({"path board": [1e-6, 2e-6], "ring": [1.02e-6, 1e-6]}, ["HCCL_LIKE_ALGO=reduce:ring makes reduce up to 2.0 times as fast, and no size slower"]),
    ({"path board": [1e-6, 2e-6], "ring": [2e-6, 1e-6]},
     ["reduce of 64 bytes takes 2.0 us (path board), by messages 1.0 us (ring); no setting does that for these sizes alone"]),
    ({"path board": [1e-6, 1e-6], "ring": [2e-6, 2e-6]}, ["reduce: nothing to set; the paths without messages are the fastest"]),
    ({"ring": [1e-6, 1e-6]}, [])])  # fmt: skip
def test_the_advice_is_a_setting_that_makes_nothing_slower(times, told):
    rows = [{"bytes": size, "seconds": (seconds := {name: all_[at] for name, all_ in times.items()}), "best": min(seconds, key=seconds.get),
             "way": "board" if "path board" in times else "messages", "model": next(iter(times))} for at, size in enumerate((8, 64))]  # fmt: skip
    assert tune.advice({"layout": "1x2", "collectives": {"reduce": rows}}) == told


def test_one_host_is_tuned_where_its_calls_go_by_messages(tmp_path):
    path = tmp_path / "profile.json"
    for environment, sizes in (({"HCCL_LIKE_DIRECT": "0"}, [32768]), ({"HCCL_LIKE_TRANSPORTS": "tcp"}, [8, 64, 512, 4096, 32768])):
        results = run_ranks(on_one_host, 2, str(path), environment=environment)
        assert [row["bytes"] for row in results[0]["collectives"]["all_reduce"] if row["way"] == "messages"] == sizes
        assert [size for size, _ in json.load(open(path))["layouts"]["1x2"]["broadcast"]] == sizes
