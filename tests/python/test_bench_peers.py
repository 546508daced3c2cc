"""The comparison with other libraries: what must hold, the tables, and the programs that answer for a library."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "peers")]

import compare  # noqa: E402
import libraries  # noqa: E402
import overlap  # noqa: E402
import report  # noqa: E402
import requirements  # noqa: E402
import train_step  # noqa: E402
from contenders import Effort  # noqa: E402
from servers import Refused, Server  # noqa: E402

MIB = 1 << 20


def row(collective="all_reduce", size=MIB, kind="float", ranks=2, floor=None, **times):
    names = {"openmpi": "Open MPI", "impi": "Intel MPI", "mpich": "MPICH", "torch": "hccl-like in torch",
             "fake": "fake in torch"}
    times = {names.get(name, name): time for name, time in times.items()}
    return {"collective": collective, "type": kind, "size": size, "ranks": ranks, "floor": floor, "times": times,
            "refused": {}, "wrong": {}}


def found(rows, text):
    verdict, = (v for v in requirements.verdicts(rows) if text in v.requirement)
    return verdict


def test_the_gain_is_measured_against_the_fastest_peer_of_each_row():
    rows = [row(size=MIB, mapped=10, mpich=40, openmpi=50), row(size=16 * MIB, mapped=10, mpich=200, openmpi=90)]
    verdict = found(rows, "mapped, all_reduce")
    assert verdict.value == pytest.approx(6.0)  # the geometric mean of 4 and 9
    assert verdict.limit == 2.0 and verdict.holds


def test_one_slow_row_is_told_however_good_the_mean_is():
    rows = [row(mapped=1, mpich=100), row("all_gather", mapped=10, impi=7)]
    assert not found(rows, "mapped, 64 KiB to 64 MiB: the worst row").holds


def test_staged_copies_have_limits_of_their_own():
    rows = [row("broadcast", ordinary=10, mpich=10)]
    assert found(rows, "ordinary, broadcast").holds
    assert found(rows, "ordinary, 64 KiB to 64 MiB: the worst row").limit == 0.8


def test_between_hosts_every_row_counts_and_raw_tcp_is_the_measure():
    rows = [{**row(size=size, ordinary=ours, gloo=gloo, openmpi=mpi), "hosts": 2}
            for size, ours, gloo, mpi in ((8, 10, 600, 11), (16 * MIB, 100, 170, 90))]
    for one, raw in zip(rows, (8, 95)):
        one["times"]["raw TCP"] = raw
    assert found(rows, "8 B: over gloo").value == 60
    assert not found(rows, "16 MiB: over gloo").holds
    assert found(rows, "worst row").value == pytest.approx(0.9)
    assert found(rows, "raw TCP's for the same rounds").value == pytest.approx(1.25)
    assert found(rows, "16 MiB: part of raw TCP's speed").value == pytest.approx(0.95)
    assert all("2 hosts" in verdict.requirement for verdict in requirements.verdicts(rows))


def test_latency_counts_at_eight_bytes_and_against_mpi_only():
    rows = [row(size=8, ordinary=0.2, openmpi=0.1, gloo=100), row("barrier", 0, ordinary=0.1, impi=0.15)]
    assert found(rows, "all_reduce, 8 B").value == pytest.approx(0.5)
    assert not found(rows, "all_reduce, 8 B").holds
    assert found(rows, "barrier").holds


def test_a_part_of_the_floor_is_asked_of_mapped_memory_at_16_and_64_mib():
    rows = [row(size=16 * MIB, mapped=100, floor=69), row(size=MIB, mapped=100, floor=10)]
    verdict = found(rows, "floor")
    assert verdict.value == pytest.approx(0.69) and not verdict.holds


def test_through_torch_the_fake_backend_sets_the_limit():
    rows = [row(size=8, torch=7.0, fake=4.0, gloo=140)]
    assert found(rows, "1.5 x fake").holds and found(rows, "1.5 x fake").value == pytest.approx(1.0)
    assert found(rows, "8 B: over gloo").value == pytest.approx(20)


def test_more_ranks_than_cores_are_compared_with_those_that_yield():
    rows = [row(size=8, ranks=4, ordinary=5.0, openmpi=4.0, mpich=0.1, gloo=1000)]
    assert found(rows, "within 1.3 x").value == pytest.approx(0.8)
    assert found(rows, "within 1.3 x").holds
    assert found(rows, "up to 1 MiB: over gloo").value == pytest.approx(200)


def test_what_was_not_measured_is_not_judged():
    assert requirements.verdicts([row(mpich=3), row(mapped=3)]) == []


def test_the_table_marks_the_best_peer_and_says_how_far_ahead_ours_is():
    head, _, line, *rest = report.table([row(size=1 << 16, mapped=2.0, mpich=9, impi=5, floor=1)])
    assert head == "| size | floor | mapped | MPICH | Intel MPI | % of floor | mapped over best peer |"
    assert line == "| 64 KiB | 1.00 | 2.00 | 9.00 | **5.00** | 50 % | 2.50 x |"
    assert "2.50 x" in rest[-1]


def test_only_reductions_are_measured_in_every_type_and_crowds_only_in_all_reduce(monkeypatch):
    monkeypatch.setattr(compare.os, "sched_getaffinity", lambda _: {0, 1})
    rows = compare.rows_of(compare.parse(["--sizes", "8", "64M", "--ranks", "2", "4"]))
    assert {row.type for row in rows if row.collective == "all_gather"} == {"float"}
    assert {row.type for row in rows if row.collective == "reduce_scatter"} == {"float", "bfloat16"}
    assert {(row.collective, row.size) for row in rows if row.ranks == 4} == {("all_reduce", 8)}


def test_small_rows_are_timed_in_batches_and_large_ones_once_in_a_while():
    assert Effort.of(8, slow=False).batch > 1
    assert Effort.of(64 * MIB, slow=False).batch == 1
    assert Effort.of(64 * MIB, slow=False).iterations < Effort.of(MIB, slow=False).iterations
    assert Effort.of(MIB, slow=True).iterations <= 10


def test_a_library_that_only_spins_is_left_out_where_ranks_outnumber_cores(tmp_path):
    mpich, openmpi = libraries.LIBRARIES["mpich"], libraries.LIBRARIES["openmpi"]
    assert libraries.environment(mpich, tmp_path, ranks=4, cores=2) is None
    assert libraries.environment(mpich, tmp_path, ranks=2, cores=2) is not None
    assert libraries.environment(openmpi, tmp_path, ranks=4, cores=2)["OMPI_MCA_mpi_yield_when_idle"] == "1"


def test_a_library_without_a_package_says_where_it_is_looked_for(tmp_path):
    assert str(tmp_path / "ucc") in libraries.install(libraries.LIBRARIES["ucc"], tmp_path)


PROGRAM = """
import os, sys
folder, rank = sys.argv[1], sys.argv[2]
answers = open(f"{folder}/out.{rank}", "w")
print("pid", os.getpid(), file=answers, flush=True)
for line in open(f"{folder}/in.{rank}"):
    if line == "quit\\n":
        break
    if line.startswith("crash"):
        sys.exit("it fell over")
    print("no such thing" if line.startswith("odd") else f"ok {10 + int(rank)} 9 20 1", file=answers, flush=True)
"""


@pytest.fixture
def server(tmp_path):
    commands = [[sys.executable, "-c", PROGRAM, "{pipes}", str(rank)] for rank in range(2)]
    server = Server("sample", commands, 2, None, tmp_path / "log")
    server.start(20)
    yield server
    server.stop()


def test_the_answers_of_all_ranks_make_one(server):
    answer = server.measure("all_reduce", "float", 8, 1, 1, 1, 20)
    assert (answer.median, answer.least, answer.p99, answer.wrong) == (10.5, 9, 20, 2)


def test_a_library_may_refuse_a_row_and_go_on(server):
    with pytest.raises(Refused, match="such thing") as refusal:
        server.measure("odd", "float", 8, 1, 1, 1, 20)
    assert not refusal.value.fatal
    assert server.measure("all_reduce", "float", 8, 1, 1, 1, 20).wrong == 2


def test_a_program_that_ends_is_told_with_its_last_words(server):
    with pytest.raises(Refused, match="it fell over") as refusal:
        server.measure("crash", "float", 8, 1, 1, 1, 20)
    assert refusal.value.fatal


@pytest.mark.slow
def test_a_backend_of_torch_is_compared_row_by_row(tmp_path):
    done = subprocess.run(
        [sys.executable, BENCH / "peers" / "compare.py", "--who", "gloo", "--collectives", "barrier", "all_reduce", "--sizes",
         "4K", "--types", "bfloat16", "--passes", "2", "--peers", tmp_path / "peers", "-J", tmp_path / "r.json",
         "--markdown", tmp_path / "r.md"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "r.json").read_text())
    assert [(r["collective"], r["type"], r["size"]) for r in record["rows"]] == [
        ("barrier", "float", 0), ("all_reduce", "bfloat16", 4096)]
    for one in record["rows"]:
        assert one["times"]["gloo"] > 0 and one["wrong"] == {"gloo": 0} and len(one["passes"]["gloo"]) == 2
    assert "**all_reduce, bfloat16, 2 ranks**" in (tmp_path / "r.md").read_text()


@pytest.mark.slow
def test_an_interrupted_comparison_keeps_its_rows_and_leaves_no_process(tmp_path):
    running = subprocess.Popen(
        [sys.executable, BENCH / "peers" / "compare.py", "--who", "gloo", "--collectives", "barrier", "--passes", "1000000",
         "--peers", tmp_path, "-J", tmp_path / "r.json"], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert running.stdout.readline().startswith("# pass 1: barrier")
    running.terminate()
    said, _ = running.communicate(timeout=60)
    assert "interrupted" in said and running.returncode == 0
    (one,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert one["times"]["gloo"] > 0
    children = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert f"torch_serve.py {tmp_path}" not in children


def test_what_communication_adds_is_counted_from_the_same_device():
    turns = {"alone": [100.0], "alone, sim": [120.0], "DDP gloo": [160.0], "DDP hccl-like": [130.0]}
    assert train_step.added(turns, "DDP gloo") == 60
    assert train_step.added(turns, "DDP hccl-like") == 10
    assert train_step.added({"alone": [100.0], "DDP hccl-like": [130.0]}, "DDP hccl-like") == 30


def test_what_communication_adds_is_counted_in_the_same_turn_from_the_slowest_rank():
    alone = train_step.turns_of_job([[[100.0, 104.0, 90.0], [50.0]], [[80.0, 105.0, 110.0], [60.0]]])
    assert alone == [105.0, 60.0]  # the median of 100, 105 and 110; then the machine became faster
    assert train_step.added({"alone": alone + [70.0], "DDP gloo": [125.0, 90.0, 80.0]}, "DDP gloo") == 20


@pytest.mark.slow
def test_a_small_training_step_is_measured_on_both_backends(tmp_path):
    file = tmp_path / "train.json"
    done = subprocess.run([sys.executable, BENCH / "train_step.py", "--layers", "1", "--width", "64", "--tokens", "8", "--rounds",
                           "1", "--steps", "2", "--fake", "-J", file], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text())
    assert set(result["turns_ms"]) == {"alone"} | {f"{way} {backend}" for way in ("DDP", "FSDP2")
                                                   for backend in ("gloo", "hccl-like", "fake")}
    assert result["losses"]["DDP gloo"] == result["losses"]["DDP hccl-like"]
    assert result["losses"]["FSDP2 gloo"] == result["losses"]["FSDP2 hccl-like"]


def test_hidden_is_what_does_not_make_a_step_longer():
    assert overlap.hidden({"step": 110.0, "step alone": 100.0, "calls alone": 40.0}) == 0.75


@pytest.mark.slow
def test_an_overlap_is_measured_and_drawn(sim, tmp_path):
    file, picture = tmp_path / "overlap.json", tmp_path / "overlap.png"
    done = subprocess.run([sys.executable, BENCH / "overlap.py", "--layers", "3", "--turns", "1", "-J", file, "--plot", picture],
                          capture_output=True, text=True, timeout=120,
                          env={**os.environ, "TORCH_SIM_LINK_GBPS": "1", "TORCH_SIM_KERNEL_GBPS": "1"})
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text())
    assert result["hidden"] == overlap.hidden(result["ms"]) and picture.stat().st_size > 0
    for one in result["timelines"]:
        assert [name for name, _, _ in one["calls"]] == ["hccl:all_reduce"] * 3
        assert {"aten::addmm", "aten::mm"} <= {name for name, _, _ in one["kernels"]}
        assert all(begin <= end for spans in one.values() for _, begin, end in spans)
