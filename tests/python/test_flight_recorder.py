"""The flight recorder: what it keeps of calls, its dumps, and what torch's analyser makes of them."""

import inspect
import json
import os
import pickle
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.flight_recorder.components import types

import fresh
import hccl_like
from ranks import run_ranks


def entries():
    return hccl_like.dump_flight_recorder()["entries"]


def names(some):
    return [entry["profiling_name"] for entry in some]


def analyse(folder, *arguments):
    """What torch's analyser says about the dumps in a folder. PyTorch 2.12's takes records of torch's own backends alone."""
    if '"hccl"' not in inspect.getsource(types):
        pytest.skip("the analyser of this torch refuses records of other backends than torch's own")
    command = ["-m", "torch.distributed.flight_recorder.fr_trace", str(folder), *arguments]
    answer = fresh.run(command)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout + answer.stderr


def write_here(rank, folder):
    with open(os.path.join(folder, f"trace_{rank}"), "wb") as file:
        pickle.dump(hccl_like.dump_flight_recorder(), file)


def what_a_call_leaves(rank, size, device):
    start = time.time_ns()
    dist.all_reduce(torch.ones(3, 4, device=device))
    if rank == 0:
        dist.send(torch.ones(5, dtype=torch.float64, device=device), 1)
    else:
        dist.recv(torch.empty(5, dtype=torch.float64, device=device), 0)
    dist.barrier()
    first, message, barrier = entries()
    assert first["profiling_name"] == "hccl:all_reduce"
    assert first["process_group"] == ("0", "default_pg")
    assert first["input_sizes"] == first["output_sizes"] == [[3, 4]]
    assert first["input_dtypes"] == ["Float"]
    assert first["record_id"] == 1
    assert (first["collective_seq_id"], first["op_id"], first["is_p2p"]) == (1, 1, False)
    assert first["timeout_ms"] == 30_000
    assert message["profiling_name"] == ("hccl:send 0->1" if rank == 0 else "hccl:recv 1<-0")
    assert (message["collective_seq_id"], message["op_id"], message["is_p2p"]) == (1, 2, True)
    assert message["input_dtypes"] == ["Double"]
    assert barrier["profiling_name"] == "hccl:barrier"
    assert barrier["input_sizes"] == []
    assert barrier["collective_seq_id"] == 2
    for entry in (first, barrier):
        assert entry["state"] == "completed"
        assert start < entry["time_created_ns"] <= entry["time_discovered_started_ns"]
        assert entry["time_discovered_started_ns"] <= entry["time_discovered_completed_ns"]
        assert 0 <= entry.get("duration_ms", 0) < 30_000, "in stream order known when the next call comes by"
    dump = hccl_like.dump_flight_recorder(format="json")
    assert names(dump["entries"]) == names(entries())
    assert dump["pg_config"]["0"]["ranks"] == "[0, 1]"
    assert dump["pg_status"]["0"]["last_completed_collective"] == "2"


def test_every_call_leaves_an_entry(device):
    run_ranks(what_a_call_leaves, 2, device)


def states(rank, size, device):
    if rank == 0:
        work = dist.all_reduce(torch.ones(3, device=device), async_op=True)
        (running,) = entries()
        dist.send(torch.ones(1), 1)
        work.wait()
        while not work.is_completed():
            pass
        assert running["state"] in ("started", "scheduled")
        assert not running["retired"]
        assert entries()[0]["state"] == "completed"
    else:
        dist.recv(torch.ones(1), 0)
        dist.all_reduce(torch.ones(3, device=device))


def test_the_state_of_a_call_is_that_of_the_moment(device):
    run_ranks(states, 2, device)


def ring(rank, size):
    for n in range(1, 12):
        dist.all_reduce(torch.ones(n))
    kept = entries()
    assert [entry["record_id"] for entry in kept] == [8, 9, 10, 11], "the last ones, oldest first"
    assert [entry["input_sizes"] for entry in kept] == [[[8]], [[9]], [[10]], [[11]]]


def test_the_ring_has_the_size_that_torch_s_setting_says():
    run_ranks(ring, 2, environment={"TORCH_FR_BUFFER_SIZE": "4"})


def slot_used_again(rank, size):
    """Every call of this ring of one entry takes the slot of the call before it."""

    def shapes_of_the_last():
        (entry,) = entries()
        return entry["profiling_name"], entry["input_sizes"], entry["output_sizes"]

    one, both = torch.ones(3), torch.empty(6)
    for _ in range(2):
        dist.all_gather_into_tensor(both, one)
        assert shapes_of_the_last() == ("hccl:_all_gather_base", [[3]], [[6]])
        dist.all_reduce(one)
        assert shapes_of_the_last() == ("hccl:all_reduce", [[3]], [[3]])
        parts = [torch.empty(2), torch.empty(4)]
        dist.all_gather(parts, parts[rank])
        assert shapes_of_the_last() == ("hccl:all_gather_v", [[2], [4]], [[2], [4]])
        dist.reduce_scatter(torch.empty(2 + 2 * rank), [torch.ones(2), torch.ones(4)])
        assert shapes_of_the_last() == ("hccl:reduce_scatter_v", [[2], [4]], [[2], [4]])
        dist.barrier()
        assert shapes_of_the_last() == ("hccl:barrier", [], [])
        dist.all_to_all_single(both, torch.ones(6))
        assert shapes_of_the_last() == ("hccl:all_to_all", [[6]], [[6]])


def test_an_entry_says_nothing_of_the_call_that_had_its_slot():
    run_ranks(slot_used_again, 2, environment={"TORCH_FR_BUFFER_SIZE": "1"})


def off(rank, size):
    dist.all_reduce(torch.ones(1))
    assert entries() == []


def test_nothing_is_kept_with_a_size_of_none():
    run_ranks(off, 2, environment={"TORCH_FR_BUFFER_SIZE": "0"})


def this_function(rank, size):
    dist.all_reduce(torch.ones(1))
    frames = [frame["name"] for frame in entries()[0]["frames"]]
    assert "this_function" in frames


def test_stacks_are_kept_when_asked_for():
    run_ranks(this_function, 2, environment={"HCCL_LIKE_FLIGHT_STACKS": "1"})


def without_stacks(rank, size):
    dist.all_reduce(torch.ones(1))
    assert "frames" not in entries()[0]


def test_stacks_are_not_kept_by_default():
    run_ranks(without_stacks, 2)


def blocks(rank, size):
    with dist._coalescing_manager(device=torch.device("cpu")):
        dist.broadcast(torch.ones(4), 0)
        dist.broadcast(torch.ones(5), 0)
    operations = [dist.P2POp(dist.isend, torch.ones(2), 1 - rank), dist.P2POp(dist.irecv, torch.empty(2), 1 - rank)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    found = entries()
    assert names(found) == [
        "hccl:broadcast",
        "hccl:broadcast",
        "hccl:coalesced",
        f"hccl:send {rank}->{1 - rank}",
        f"hccl:recv {rank}<-{1 - rank}",
        "hccl:coalesced",
    ]
    assert [entry["collective_seq_id"] for entry in found] == [1] * 6
    assert [entry["op_id"] for entry in found] == [1, 2, 3, 4, 5, 6]
    assert [entry["is_p2p"] for entry in found] == [False] * 3 + [True] * 3
    assert len({entry["p2p_seq_id"] for entry in found[3:]}) == 1
    assert all(entry["state"] == "completed" for entry in found)


def test_the_calls_of_a_block_are_kept_one_by_one_and_share_their_number():
    run_ranks(blocks, 2)


def everything(rank, size, device, folder):
    """Every collective that there is, some with parts of different sizes."""
    ones = torch.ones(4, device=device)
    empty = lambda n: torch.empty(n, device=device)  # noqa: E731
    dist.all_reduce(ones)
    dist.all_reduce(ones, async_op=True).wait()
    dist.all_reduce_coalesced([ones, ones.clone()])
    dist.broadcast(ones, 0)
    dist.reduce(ones, 1)
    dist.all_gather([empty(4) for _ in range(size)], ones)
    dist.all_gather([empty(3), empty(5)], empty(3 + 2 * rank))
    dist.all_gather_into_tensor(empty(4 * size), ones)
    dist.all_gather_coalesced([[empty(4), empty(2)] for _ in range(size)], [ones, empty(2)])
    with dist._coalescing_manager(device=torch.device(device)):
        dist.all_gather_into_tensor(empty(4 * size), ones)
        dist.all_gather_into_tensor(empty(6 * size), empty(6))
    dist.gather(ones, [empty(4) for _ in range(size)] if rank == 0 else None, 0)
    dist.scatter(empty(4), [ones for _ in range(size)] if rank == 1 else None, 1)
    dist.reduce_scatter(empty(4), [ones for _ in range(size)])
    dist.reduce_scatter(empty(1 + rank), [empty(1), empty(2)])
    dist.reduce_scatter_tensor(empty(2), ones)
    dist.all_to_all([empty(2), empty(2)], [empty(2), empty(2)])
    dist.all_to_all_single(empty(2 * (rank + 1)), empty(3), [rank + 1] * 2, [1, 2])
    dist.all_to_all_single(empty(4), empty(4))
    if rank == 0:
        dist.send(ones, 1)
    else:
        dist.recv(ones, 0)
    pair = dist.new_group([0, 1], group_desc="pair")
    dist.broadcast(torch.ones(2, dtype=torch.complex64, device=device), 1, group=pair)
    dist.barrier()
    torch.accelerator.synchronize() if device != "cpu" else None
    write_here(rank, folder)


def test_torch_s_analyser_finds_nothing_wrong_with_a_good_run(device, tmp_path):
    run_ranks(everything, 2, device, str(tmp_path))
    said = analyse(tmp_path)
    for word in ("mismatch", "Not all ranks", "has errors", "does not have"):
        assert word not in said, said


def disagree(rank, size, folder):
    dist.all_reduce(torch.ones(2))
    try:
        dist.all_reduce(torch.ones(5 + rank))
        raise AssertionError("ranks with different sizes went on")
    except dist.DistBackendError:
        pass
    write_here(rank, folder)


def test_torch_s_analyser_finds_the_call_that_ranks_disagree_about(tmp_path):
    run_ranks(disagree, 2, str(tmp_path), environment={"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path) + "/trace_"})
    said = analyse(tmp_path)
    assert "Collective sequence number: 2 has errors" in said
    assert "[[5]]" in said and "[[6]]" in said


def left_out(rank, size, dumps):
    dist.all_reduce(torch.ones(2))
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="timeout"):
            dist.all_reduce(torch.ones(3))
    else:
        deadline = time.monotonic() + 20
        while not os.path.exists(f"{dumps}0") and time.monotonic() < deadline:
            time.sleep(0.02)
        assert hccl_like.write_flight_recorder() == f"{dumps}1"
    path = f"{dumps}{rank}"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_time_out_writes_dumps_that_tell_who_was_missing(tmp_path):
    dumps = str(tmp_path / "deep" / "down" / "rank_")
    run_ranks(left_out, 2, dumps, group_timeout=1, environment={"TORCH_FR_DUMP_TEMP_FILE": dumps})
    said = analyse(tmp_path / "deep" / "down")
    assert "Not all ranks joining collective, sequence number: 2" in said
    assert "missing ranks: {1}" in said
    with open(dumps + "0", "rb") as file:
        dump = pickle.load(file)
    failed = dump["entries"][1]
    assert (failed["state"], failed["retired"]) == ("started", True)
    assert dump["pg_status"]["0"]["last_completed_collective"] == 1
    assert sorted(os.listdir(tmp_path / "deep" / "down")) == ["rank_0", "rank_1"]


def no_dump(rank, size):
    if rank == 0:
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(3), async_op=True).wait()


def test_no_dump_is_written_when_the_user_wants_none(tmp_path):
    environment = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_", "HCCL_LIKE_FLIGHT_DUMP": "0"}
    run_ranks(no_dump, 2, group_timeout=1, environment=environment)
    assert os.listdir(tmp_path) == []


def aborted(rank, size):
    dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(3))


def test_an_abort_of_one_s_own_is_no_failure_to_write_down(tmp_path):
    run_ranks(aborted, 1, environment={"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_"})
    assert os.listdir(tmp_path) == []


def written_on_request(rank, size):
    dist.all_reduce(torch.ones(3))
    path = hccl_like.write_flight_recorder()
    with open(path, "rb") as file:
        assert names(pickle.load(file)["entries"]) == ["hccl:all_reduce"]
    return path


def test_a_dump_can_be_asked_for(tmp_path):
    paths = run_ranks(written_on_request, 2, environment={"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_"})
    assert paths == [f"{tmp_path}/rank_0", f"{tmp_path}/rank_1"]


def test_formats_are_pickle_and_json():
    with pytest.raises(ValueError, match="there is no format 'xml'"):
        hccl_like.dump_flight_recorder(format="xml")
    assert json.dumps(hccl_like.dump_flight_recorder(format="json"))


def test_the_benchmark_of_its_cost_runs_both_jobs():
    bench = Path(__file__).parents[2] / "bench" / "observing.py"
    said = subprocess.run([sys.executable, bench, "--jobs", "1", "--batches", "3"], check=True, capture_output=True, text=True).stdout
    assert re.fullmatch(r"2 ranks: [\d.]+ us without, [\d.]+ us with; [+-][\d.]+ % \(by pair of jobs: [+-][\d.]+\)\n", said)
