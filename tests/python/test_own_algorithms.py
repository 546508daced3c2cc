"""Algorithms of users without a job: proved, refused with the place of the mistake, priced, written and read."""

import json
import os
import subprocess
import sys

import own
import pytest
from hccl_like import schedule
from hccl_like.schedule import Schedule, ScheduleError, copy, in_, out, recv, recv_reduce, reduce, send


@pytest.mark.parametrize("algorithm", own.ALL, ids=lambda one: one.name)
def test_correct_algorithms_are_proved(algorithm):
    algorithm.prove(range(2, 9))
    algorithm.prove(["2x2", [0, 1, 0, 1, 0]])


def planted(collective, make, size=4, **how):
    """The fault of an algorithm that is no part of the registered ones."""

    def plan(topology):
        roots = range(len(topology.hosts)) if collective in schedule.ROOTED else [0]
        return [[make(rank, len(topology.hosts), root).to_dict() for rank in range(len(topology.hosts))] for root in roots]

    return schedule.Algorithm(collective, "planted", plan, **how).fault(size)


def pair(first, second, chunks=1):
    """An all_reduce of two ranks: their rounds."""

    def make(rank, size, root):
        made = Schedule(chunks)
        made.scratch(in_[0])
        for steps in (first, second)[rank]:
            made.round(*steps)
        return made

    return planted("all_reduce", make, 2)


def ring(change):
    """A ring of four ranks, in which `change(rank, round, steps)` gives other steps."""

    def make(rank, size, root):
        made = own.my_ring._plan(schedule.Topology((0,) * size))[0][rank]
        result = Schedule(size)
        for number, steps in enumerate(made["rounds"]):
            result.round(*change(rank, number, list(steps)))
        return result

    return planted("all_reduce", make)


SCRATCH = schedule.Chunks("scratch", 0)
OTHER = [[send(0, in_[0]), recv(0, SCRATCH)], [reduce([SCRATCH, in_[0]], out[0])]]

MISTAKES = {
    "a send is missing": (
        lambda: ring(lambda rank, number, steps: steps[1:] if (rank, number) == (2, 1) else steps),
        "rank 3, round 1: recv_reduce in[1]+<-2 to out[1], but rank 2 has no step in this round that sends it"),
    "a receive is missing": (
        lambda: ring(lambda rank, number, steps: steps[:1] if (rank, number) == (2, 4) else steps),
        "rank 1, round 4: send out[1]->2, but rank 2 has no step in this round that receives it"),
    "two ranks wait for each other": (  # each sends in the round after that in which the other expects it
        lambda: pair([[recv_reduce(1, in_[0], out[0])], [send(1, in_[0])]], [[recv_reduce(0, in_[0], out[0])], [send(0, in_[0])]]),
        "rank 0, round 0: recv_reduce in[0]+<-1 to out[0], but rank 1 has no step in this round that sends it"),
    "a rank sends to itself": (
        lambda: ring(lambda rank, number, steps: [steps[0].replace("->2", "->1"), steps[1]] if (rank, number) == (1, 0) else steps),
        "rank 1, round 0: send in[1]->1 names its own rank"),
    "the peer does not exist": (
        lambda: ring(lambda rank, number, steps: [steps[0].replace("->0", "->4"), steps[1]] if rank == 3 else steps),
        "rank 3, round 0: send in[3]->4 names a rank that does not exist"),
    "the peer is negative": (
        lambda: pair([[send(-1, in_[0])]], OTHER), "rank 0, round 0: send in[0]->-1 names a rank that does not exist"),
    "the chunk does not exist": (
        lambda: pair([[send(1, in_[1]), recv(1, SCRATCH)]], OTHER), "rank 0, round 0: send in[1]->1 reads a chunk that does not exist"),
    "the target does not exist": (
        lambda: pair([[recv_reduce(1, in_[0], out[7])]], OTHER),
        "rank 0, round 0: recv_reduce in[0]+<-1 to out[7] writes a chunk that does not exist"),
    "a race: two receives into one chunk": (
        lambda: pair([[send(1, in_[0]), recv(1, out[0]), recv(1, out[0])]], [[send(0, in_[0]), send(0, in_[0]), recv(0, out[0])]]),
        "rank 0, round 0: recv out[0]<-1 writes what is also written by: recv out[0]<-1"),
    "a race: a round sends what it receives": (
        lambda: pair([[send(1, out[0]), recv(1, out[0])]], [[send(0, in_[0]), recv(0, SCRATCH)]]),
        "rank 0, round 0: recv out[0]<-1 writes what is read by: send out[0]->1"),
    "a race in place only": (
        lambda: pair([[send(1, in_[0]), recv(1, out[0])]], [[send(0, in_[0]), recv(0, SCRATCH)]]),
        "rank 0, round 0: recv out[0]<-1 writes what is read by: send in[0]->1 (input and output are the same memory)"),
    "the input is written": (
        lambda: pair([[send(1, in_[0]), recv(1, in_[0])]], OTHER), "rank 0, round 0: recv in[0]<-1 writes the input"),
    "a contribution is added twice": (
        lambda: pair([[send(1, in_[0]), recv(1, SCRATCH)], [reduce([in_[0], SCRATCH, SCRATCH], out[0])]],
                     [[send(0, in_[0]), recv(0, SCRATCH)], [reduce([in_[0], SCRATCH], out[0])]]),
        "rank 0 of 2: out[0] does not hold what it should: in[0] of rank 1 counts 2 times; round 1 wrote it last: "
        "reduce in[0]+scratch[0]+scratch[0] to out[0]"),
    "a sum is forgotten": (
        lambda: ring(lambda rank, number, steps: [steps[0], recv(2, out[1])] if (rank, number) == (3, 1) else steps),
        "rank 0 of 4: out[1] does not hold what it should: in[1] of rank 3 is missing; round 2 wrote it last: recv_reduce in[1]+<-3 to out[1]"),
    "another chunk is sent": (
        lambda: ring(lambda rank, number, steps: [send(2, in_[2]), steps[1]] if (rank, number) == (1, 0) else steps),
        "rank 1: send in[2]->2 meets recv_reduce in[1]+<-1 to out[1], which has another size"),
    "memory is read before it is written": (
        lambda: pair([[send(1, SCRATCH)], [recv_reduce(1, in_[0], out[0])]], [[recv(0, SCRATCH)], [send(0, in_[0])], [reduce([in_[0], SCRATCH], out[0])]]),
        "rank 1 of 2: out[0] does not hold what it should: in[0] of rank 0 is missing, scratch[0] of rank 0 was read before it was written; "
        "round 2 wrote it last: reduce in[0]+scratch[0] to out[0]"),
    "the rounds are too few": (
        lambda: ring(lambda rank, number, steps: steps if number < 5 else []),
        "rank 0 of 4: out[2] does not hold what it should: in[2] of rank 1 is missing; round 1 wrote it last: recv_reduce in[2]+<-3 to out[2]"),
    "two sizes in one step": (
        lambda: pair([[send(1, in_[0:2]), recv_reduce(1, in_[0:2], out[0:1])]], [[send(0, in_[0:2]), recv_reduce(0, in_[0:2], out[0:2])]], 2),
        'rank 0, round 0: "recv_reduce in[0..1]+<-1 to out[0]" reads 2 chunks and writes 1'),
    "two sizes of one message": (
        lambda: pair([[recv_reduce(1, in_[0:2], out[0:2])]], [[send(0, in_[0:1])]], 2),
        "rank 1: send in[0]->0 meets recv_reduce in[0..1]+<-1 to out[0..1], which has another size"),
    "ranks cut differently": (
        lambda: planted("all_reduce", lambda rank, size, root: Schedule(1 + rank), 2), "rank 1 cuts the payload into other chunks than rank 0"),
    "ranks add in different orders": (
        lambda: planted("all_reduce", different_orders, 3), "ranks 0 and 2 add out[0] up in different orders, so that their floats would differ"),
    "the wrong root gives": (
        lambda: planted("broadcast", lambda rank, size, root: star(rank, size, 0)),
        "with root 1, rank 0, round 0: copy in[0] to out[0] reads input that this rank does not have"),
    "a rank keeps what is the root's": (
        lambda: planted("reduce", lambda rank, size, root: both(rank)), "with root 0, rank 1, round 1: recv out[0]<-0 uses output that this rank does not have"),
    "the chunks are not one for each rank": (
        lambda: planted("all_gather", lambda rank, size, root: Schedule(2 * size)),
        "rank 0 has 8 chunks; all_gather has one for each rank, which are 4"),
    "a chunk goes to the wrong rank's place": (
        lambda: planted("all_to_all", lambda rank, size, root: exchange(rank), 2),
        "rank 0: send in[0]->1 meets recv out[0]<-0, which has another size"),
    "a step is no step": (
        lambda: pair([["sent in[0]->1"]], OTHER), 'rank 0, round 0: "sent in[0]->1" is no step'),
}  # fmt: skip


def different_orders(rank, size, root):
    made = Schedule(1)
    others = [peer for peer in range(size) if peer != rank]
    got = [made.scratch(in_[0]) for _ in others]
    made.round(*(send(peer, in_[0]) for peer in others), *(recv(peer, place) for peer, place in zip(others, got)))
    made.round(reduce([in_[0], *got], out[0]))
    return made


def star(rank, size, root):
    made = Schedule(1)
    if rank == root:
        made.round(copy(in_[0], out[0]), *(send(peer, in_[0]) for peer in range(size) if peer != root))
    else:
        made.round(recv(root, out[0]))
    return made


def both(rank):
    made = Schedule(1)
    if rank < 2:
        made.round(recv_reduce(1, in_[0], out[0]) if rank == 0 else send(0, in_[0]))
        made.round(send(1, out[0]) if rank == 0 else recv(0, out[0]))
    return made


def exchange(rank):
    made = Schedule(2)
    made.round(copy(in_[rank], out[rank]), send(1 - rank, in_[rank]), recv(1 - rank, out[1 - rank]))
    return made


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_its_place(mistake):
    make, expected = MISTAKES[mistake]
    assert make().startswith(expected)


def test_what_raises_names_rank_and_size():
    @schedule.algorithm("all_reduce", name="raises")
    def raises(rank, size):
        if rank == 2:
            raise NotImplementedError("only for two ranks")
        return Schedule(1)

    with pytest.raises(ScheduleError, match="all_reduce:raises on 4 ranks: raises raised NotImplementedError for rank 2, size 4: only for two ranks"):
        raises.prove(4)


def test_misuse_is_a_sentence():
    with pytest.raises(ScheduleError, match="there is no collective 'allsum' that takes an algorithm; there are all_reduce"):
        schedule.algorithm("allsum")(lambda rank, size: Schedule(1))
    with pytest.raises(ScheduleError, match="takes hosts; there are rank, size, root and topology"):
        schedule.algorithm("all_reduce", name="x")(lambda rank, hosts: Schedule(1))
    with pytest.raises(ScheduleError, match="takes a root, and all_reduce has none"):
        schedule.algorithm("all_reduce", name="x")(lambda rank, root: Schedule(1))
    with pytest.raises(ScheduleError, match="'a;b' is no name of an algorithm"):
        schedule.algorithm("all_reduce", name="a;b")(lambda rank: Schedule(1))
    with pytest.raises(ScheduleError, match=r"'2\*4' is no layout; write HOSTSxRANKS"):
        own.my_ring.to_json("2*4")
    assert "there is an all_reduce algorithm ring already; give yours another name" in schedule.Algorithm(
        "all_reduce", "ring", own.my_ring._plan).fault(2)  # fmt: skip
    with pytest.raises(ScheduleError, match=r"\(-1\) is|-1 is none of them"):
        in_[-1]


def test_json_is_read_as_it_was_written():
    for algorithm in own.ALL:
        text = algorithm.to_json("2x2")
        again = schedule.from_json(text)
        assert again.to_json("2x2") == text and again.fault(4) == ""
        assert json.loads(text)["collective"] == algorithm.collective
    with pytest.raises(ScheduleError, match="written for 4 ranks, and there are 8"):
        again.to_json(8)
    with pytest.raises(ScheduleError, match="no algorithm in the JSON form"):
        schedule.from_json("[]")


@pytest.mark.parametrize("change, expected", [
    ({"hccl_like_schedule": 2}, "no JSON object with"),
    ({"name": 3}, 'no "name"'),
    ({"collective": "barrier"}, "none that moves tensors"),
    ({"hosts": []}, "not the number of the host"),
    ({"roots": []}, '"roots" is no list'),
    ({"roots": [[]]}, "no schedule for each of the 2 ranks"),
    ({"roots": [[{}, {}]]}, 'rank 0 has no number "chunks"'),
    ({"roots": [[{"chunks": 0, "rounds": []}] * 2]}, "no number of chunks from 1"),
    ({"roots": [[{"chunks": 1, "rounds": [], "scratch": ["in"]}] * 2]}, "a scratch slot is"),
    ({"roots": [[{"chunks": 1, "rounds": [7]}] * 2]}, "round 0: it is no list of steps"),
    ({"roots": [[{"chunks": 1, "rounds": [[7]]}] * 2]}, "7 is no text of a step"),
    ({"roots": [[{"chunks": 1, "rounds": [["send in[4..3]->1"]]}] * 2]}, "is no step"),
])  # fmt: skip
def test_json_that_is_none_is_refused(change, expected):
    import hccl_like

    form = json.loads(own.my_ring.to_json(2)) | change
    with pytest.raises(RuntimeError, match=expected.replace("(", r"\(")):
        hccl_like._C._own_fault(json.dumps(form))


def test_the_price_of_a_copy_of_the_ring_is_the_ring_s():
    for layout in (4, "4x1", "2x4"):
        for size in (1 << 10, 1 << 20):
            price = own.my_ring.price(size, layout)
            assert price["my_ring"] == pytest.approx(price["ring"], rel=0.6), (layout, size)


def explained(*arguments, **environment):
    command = [sys.executable, "-m", "hccl_like", "explain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=120)


def test_explain_proves_prices_and_shows(tmp_path):
    written = tmp_path / "mine.json"
    written.write_text(own.my_ring.to_json(4))
    for what in (str(written), own.__file__ + ":my_ring"):
        done = explained("all_reduce", "1M", "4", "--own", what)
        assert done.returncode == 0, done.stderr
        assert "my_ring" in done.stdout.split("is proved")[0]
        assert "rank 3\n0: send in[3]->0  recv_reduce in[2]+<-2 to out[2]" in done.stdout
    broken = json.loads(written.read_text())
    broken["roots"][0][2]["rounds"][1] = []
    written.write_text(json.dumps(broken))
    done = explained("all_reduce", "1M", "4", "--own", str(written))
    assert done.returncode == 1 and "rank 1, round 1: send out[0]->2, but rank 2 has no step" in done.stderr
    done = explained("all_reduce", "1M", "4", "--own", "nobody")
    assert done.returncode == 1 and "there is no all_reduce algorithm 'nobody' of yours" in done.stderr
