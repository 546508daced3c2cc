"""hccl-like trace: the merged file, its clocks, and who waited for whom."""

import collections
import gzip
import json
import os
import time

import pytest
import torch
import torch.distributed as dist

import hccl_like
from dumps import SECOND, START, call, write
from hccl_like import _dumps, cli
from hccl_like.trace import _clocks, _matching
from ranks import run_ranks


def strict(path):
    """The trace, which must be JSON as the standard has it."""

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def merged(capsys, tmp_path, *arguments):
    """The exit code, the summary by rank, and the events."""
    out = tmp_path / "job.json"
    code = cli.main(["trace", str(tmp_path), "-o", str(out), "--json", *map(str, arguments)])
    summary = json.loads(capsys.readouterr().out)
    return code, {rank["rank"]: rank for rank in summary["ranks"]}, strict(out)["traceEvents"]


def slices(events, name=None):
    return [event for event in events if event["ph"] == "X" and name in (None, event["name"])]


def check_nesting(events):
    """Slices of a thread lie beside each other or one within the other, as viewers need it."""
    threads = collections.defaultdict(list)
    for event in slices(events):
        threads[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
    for thread in threads.values():
        open_ends = []
        for begin, length in sorted(thread):
            end = begin - length
            while open_ends and open_ends[-1] <= begin + 0.0015:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 0.0015, (begin, end, open_ends)
            open_ends.append(end)


def check_flows(events):
    """Every arrow has one beginning and one end, both within a slice."""
    ends = collections.defaultdict(list)
    for event in events:
        if event["ph"] in "sf" and event["cat"] == "hccl-like":
            ends[event["id"]].append(event["ph"])
            assert any(
                one["pid"] == event["pid"] and one["tid"] == event["tid"] and one["ts"] <= event["ts"] <= one["ts"] + one["dur"] + 0.0015
                for one in slices(events)
            ), event
    assert ends and all(phases == ["s", "f"] for phases in ends.values())


def rank_2_comes_late(rank, size, device, folder):
    pair = dist.new_group([0, 1], group_desc="pair")
    for turn in range(3):
        dist.barrier()
        if rank == 2:
            for other in (0, 1):
                while not os.path.exists(f"{folder}/in{other}.{turn}"):
                    time.sleep(0.001)
        work = dist.all_reduce(torch.ones(3, device=device), async_op=True)
        open(f"{folder}/in{rank}.{turn}", "w").close()
        work.wait()
        if rank < 2:
            dist.broadcast(torch.ones(4, device=device), 0, group=pair)
            message = torch.ones(1, device=device)
            dist.send(message, 1) if rank == 0 else dist.recv(message, 0)
    works = [dist.all_reduce(torch.ones(1000, device=device), async_op=True) for _ in range(3)]
    for work in works:
        work.wait()
    dist.barrier()
    hccl_like.write_flight_recorder()


def test_the_late_rank_of_a_real_job_is_shown(device, tmp_path, capsys):
    (tmp_path / "dumps").mkdir()
    run_ranks(rank_2_comes_late, 3, device, str(tmp_path), environment={"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dumps/trace_"})
    code, ranks, events = merged(capsys, tmp_path / "dumps")
    assert code == 0
    check_nesting(events)
    check_flows(events)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {"group default_pg", "group pair", "group default_pg, messages"} <= set(names.values())
    assert {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"} == {"rank 0", "rank 1", "rank 2"}
    assert len(slices(events, "all_reduce")) == 3 * 6 and len(slices(events, "send")) == 3
    assert all(rank["aligned_by_calls"] > 0 for rank in ranks.values())
    if device == "cpu":  # on a device a rank comes when its stream does
        for rank in (0, 1):
            late = [event for event in slices(events, "all_reduce") if event["pid"] == rank and event["args"]["number"] in (2, 4, 6)]
            waits = [event for event in slices(events, "waits for rank 2") if event["pid"] == rank]
            assert all(any(wait["ts"] >= event["ts"] and wait["ts"] < event["ts"] + event["dur"] for wait in waits) for event in late)
        assert ranks[2]["kept_others_waiting_us"] > 0


def test_a_call_whose_end_is_not_known_makes_nobody_wait(tmp_path, capsys):
    """On a device a call may be over before the recorder has heard of it."""
    pair = {"0": ("default_pg", [0, 1])}
    write(tmp_path, 0, [call(1), {**call(2, at=1, took=9, late=9), "retired": False}], pair)
    write(tmp_path, 1, [call(1), call(2, at=4)], pair)
    _, ranks, events = merged(capsys, tmp_path)
    assert ranks[0]["waited_us"] == 0
    ends = [event["args"].get("end") for event in slices(events, "all_reduce") if event["pid"] == 0]
    assert ends == [None, "when the dump was made, at the latest"]
    check_flows(events)


def test_the_summary_names_the_rank_that_kept_others_waiting(tmp_path, capsys):
    write(tmp_path, 0, [call(1, at=1, took=3)])
    write(tmp_path, 1, [call(1, at=3, took=1)])
    write(tmp_path, 2, [call(1, at=2, took=2)])
    assert cli.main(["trace", str(tmp_path), "-o", str(tmp_path / "job.json")]) == 0
    assert capsys.readouterr().out.startswith("rank 1 kept others waiting most, 3000.0 ms; 3 calls of 3 ranks are in ")


def skewed(folder, seconds, calls=9):
    """Rank 1's clock is ahead, and it leaves each call some microseconds after rank 0."""
    for rank, ahead in ((0, 0.0), (1, seconds)):
        late = [(7 * number % 5) * 1e-6 * rank for number in range(calls)]
        write(folder, rank, [call(n + 1, at=n + ahead, took=0.001 + late[n]) for n in range(calls)], {"0": ("default_pg", [0, 1])})


def test_clocks_that_differ_are_aligned_by_the_ends_of_calls(tmp_path, capsys):
    skewed(tmp_path, 2.5)
    code, ranks, events = merged(capsys, tmp_path)
    assert code == 0
    assert ranks[1]["clock_us"] == pytest.approx(-2.5e6, abs=5) and ranks[0]["clock_us"] == 0
    begins = {rank: [event["ts"] for event in slices(events, "all_reduce") if event["pid"] == rank] for rank in (0, 1)}
    assert begins[1] == pytest.approx(begins[0], abs=5)


def test_a_difference_that_calls_do_not_contradict_is_none(tmp_path, capsys):
    """Rank 1 leaves all calls 900 us later, and one call is recorded as if it had left before rank 0 came."""
    pair = {"0": ("default_pg", [0, 1])}
    write(tmp_path, 0, [call(n, at=n) for n in range(1, 12)], pair)
    write(tmp_path, 1, [call(n, at=n - (0.01 if n == 5 else 0), took=0.0019) for n in range(1, 12)], pair)
    assert merged(capsys, tmp_path)[1][1]["clock_us"] == 0


def test_clocks_are_aligned_by_way_of_a_third_rank():
    groups = {"a": _dumps.Group("a", "a", (0, 1)), "b": _dumps.Group("b", "b", (1, 2))}
    parts = {0: ("a", 0), 1: ("ab", 5), 2: ("b", 7)}

    def dump(rank):
        names, ahead = parts[rank]
        records = [_record(rank, groups[name].key, START + round((number + ahead) * SECOND)) for name in names for number in range(3)]
        return _dumps.Dump(rank, "", 0, {group.key: group for group in groups.values()},
                           sorted(records, key=lambda record: record.created), True)  # fmt: skip

    clocks = _clocks.align([0, 1, 2], _matching.calls([dump(rank) for rank in range(3)]))
    assert [clocks[rank].offset for rank in range(3)] == [0, -5 * SECOND, -7 * SECOND]


def _record(rank, group, time):
    number = (time // SECOND) % 100
    return _dumps.Record(rank, group, number - {0: 0, 1: 5, 2: 7}[rank], "barrier", None, False, "completed", True, time, time, time + 1000,
                         (), (), "")  # fmt: skip


def test_a_rank_that_never_came_is_in_the_picture(tmp_path, capsys):
    write(tmp_path, 0, [call(1), call(2, at=1, state="started", late=4)])
    write(tmp_path, 1, [call(1), call(2, at=2, state="started", late=3)])
    write(tmp_path, 2, [call(1)])
    code, _, events = merged(capsys, tmp_path)
    waits = slices(events, "waits for rank 2, which never came")
    assert code == 0
    assert {event["pid"]: event["dur"] for event in waits} == {0: 4e6, 1: 3e6}
    assert len(slices(events, "all_reduce (not over)")) == 2
    check_nesting(events)


def test_a_missing_rank_and_an_unknown_clock_are_told(tmp_path, capsys):
    write(tmp_path, 0, [call(1, state="started")])
    write(tmp_path, 1, [call(1, state="started")])
    assert cli.main(["trace", str(tmp_path), "-o", str(tmp_path / "job.json")]) == 1
    told = capsys.readouterr().err
    assert "problem: there is no dump of rank 2" in told
    assert "problem: rank 1 ended no call together with another rank, so its clock is taken as it is" in told


def test_files_that_are_no_dumps_give_no_trace(tmp_path, capsys):
    (tmp_path / "trace_0").write_text("nothing")
    assert cli.main(["trace", str(tmp_path), "-o", str(tmp_path / "job.json")]) == 2
    assert "trace_0: not a dump of the flight recorder" in capsys.readouterr().err
    assert not (tmp_path / "job.json").exists()


def test_profiles_come_beside_the_calls_on_the_same_clock(tmp_path, capsys):
    skewed(tmp_path, 2.5)
    profiles = []
    for rank in (0, 1):
        at = 1e6 + (2.5e6 if rank else 0)  # the second call, on the rank's own clock
        document = {"distributedInfo": {"rank": rank}, "baseTimeNanoseconds": START, "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 88, "tid": 0, "args": {"name": "python"}},
            {"ph": "X", "name": "hccl-like:all_reduce", "pid": 88, "tid": 1, "ts": at, "dur": 900.0},
            {"ph": "s", "name": "ac2g", "cat": "ac2g", "id": 1, "pid": 88, "tid": 1, "ts": at},
        ]}  # fmt: skip
        profiles.append(tmp_path / f"profile{rank}.json.gz")
        profiles[-1].write_bytes(gzip.compress(json.dumps(document).encode()))
    code, _, events = merged(capsys, tmp_path, "--profile", *profiles)
    assert code == 0
    theirs = slices(events, "hccl-like:all_reduce")
    assert len({event["pid"] for event in theirs}) == 2 and not {event["pid"] for event in theirs} & {0, 1}
    for rank, event in enumerate(theirs):
        second = sorted(one["ts"] for one in slices(events, "all_reduce") if one["pid"] == rank)[1]
        assert event["ts"] == pytest.approx(second, abs=5)
    names = [event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "process_name"]
    assert "rank 0: python" in names and "rank 1: python" in names
    ids = [event["id"] for event in events if event["ph"] == "s"]
    assert len(set(ids)) == len(ids)


def profiled(rank, size, folder):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(3):
            dist.all_reduce(torch.ones(3))
    profile.export_chrome_trace(f"{folder}/profile{rank}.json")
    dist.barrier()
    hccl_like.write_flight_recorder()


def test_torch_s_own_profiles_lie_over_the_calls_that_they_saw(tmp_path, capsys):
    (tmp_path / "dumps").mkdir()
    run_ranks(profiled, 2, str(tmp_path), environment={"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dumps/trace_"})
    code, _, events = merged(capsys, tmp_path / "dumps", "--profile", tmp_path / "profile0.json", tmp_path / "profile1.json")
    assert code == 0
    calls, seen = slices(events, "all_reduce"), slices(events, "hccl-like:all_reduce")
    assert len(calls) == len(seen) == 6
    for call, event in zip(sorted(calls, key=lambda one: (one["pid"], one["ts"])), sorted(seen, key=lambda one: (one["pid"], one["ts"]))):
        # The profiler converts the processor's counter to time, to some microseconds.
        assert event["ts"] - 1000 < call["ts"] and call["ts"] + call["dur"] < event["ts"] + event["dur"] + 1000


def test_a_profile_of_no_rank_is_refused(tmp_path, capsys):
    write(tmp_path, 0, [call(1)])
    (tmp_path / "profile.json").write_text('{"traceEvents": []}')
    assert cli.main(["trace", str(tmp_path / "trace_0"), "--profile", str(tmp_path / "profile.json"), "-o", str(tmp_path / "job")]) == 2
    assert "profile.json: it does not tell its rank" in capsys.readouterr().err
