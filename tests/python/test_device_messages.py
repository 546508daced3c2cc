"""Large calls that only move bytes, between devices whose memory network cards reach: nothing is staged. The card is card.c: a real
provider of libfabric underneath, and the simulated device's memory behind a file, which nobody but the card can touch."""

import ctypes
import gc
import os
import time

import pytest
import torch
import torch.distributed as dist

import values
from conftest import slow_after_first
from hccl_like import _plugins
from plugins import _with_plugin, build, run
from ranks import run_ranks
from test_fabric import chosen
from test_staged_calls import IN_SLICES, mine
from test_stream_slices import everything

COUNT = (2 << 20) + 100_003  # float32: eight MiB and a bit: several slices, the last of which is not too short


@pytest.fixture(scope="session")
def card(tmp_path_factory):
    if not os.path.exists("/usr/include/rdma/fabric.h"):
        pytest.skip("no headers of libfabric: libfabric-dev has them")
    return build(os.path.join(os.path.dirname(__file__), "card.c"), tmp_path_factory.mktemp("card") / "libcard.so", "-ldl", "-lpthread")


@pytest.fixture(params=slow_after_first(["package", "system"]))
def over(card, request, sim):
    """Settings by which ranks meet over such a card."""
    below = chosen(request.param).get("HCCL_LIKE_FABRIC_LIBRARY", "libfabric.so.1")
    return {
        "HCCL_LIKE_TRANSPORTS": "fabric",
        "HCCL_LIKE_FABRIC_LIBRARY": card,
        "HCCL_LIKE_FABRIC_PROVIDER": "tcp",
        "CARD_LIBRARY": below,
        "TORCH_SIM_STRICT": "7",
    }


def of_card():
    return ctypes.CDLL(os.environ["HCCL_LIKE_FABRIC_LIBRARY"])


def staged_bytes():
    """Copied by the device's plugin between the device and the host, ever."""
    counter = ctypes.CDLL(_plugins.found()["sim"]).copied_bytes
    counter.restype = ctypes.c_ulonglong
    return counter()


def read_bytes():
    counter = of_card().card_bytes_read
    counter.restype = ctypes.c_ulonglong
    return counter()


def check(actual, expected, what):
    assert values.equal(actual, expected), what


# ------------------------------------------------------------------------------------------------- calls of several slices


def send_and_receive(rank, size, count):
    after, before = (rank + 1) % size, (rank - 1) % size
    incoming = torch.zeros(count, device="sim")
    work = dist.isend(mine(rank, count).to("sim"), after)
    dist.recv(incoming, before)
    work.wait()
    check(incoming, mine(before, count), "a message")
    return 4 * count


def broadcast(rank, size, count):
    for root in range(size):
        tensor = mine(rank, count).to("sim")
        dist.broadcast(tensor, root)
        check(tensor, mine(root, count), f"broadcast from {root}")


def all_gather(rank, size, count):
    whole = torch.zeros(size * count, device="sim")
    dist.all_gather_into_tensor(whole, mine(rank, count).to("sim"))
    expected = torch.cat([mine(r, count) for r in range(size)])
    check(whole, expected, "all_gather")
    whole.zero_()
    whole[rank * count : (rank + 1) * count].copy_(mine(rank, count))
    dist.all_gather_into_tensor(whole, whole[rank * count : (rank + 1) * count])
    check(whole, expected, "all_gather in place")
    parts = [torch.zeros(count, device="sim") for _ in range(size)]
    dist.all_gather(parts, mine(rank, count).to("sim"))
    check(torch.cat(parts), expected, "all_gather into a list")


def all_to_all(rank, size, count):
    mixed = torch.zeros(size * count, device="sim")
    dist.all_to_all_single(mixed, torch.cat([mine(10 * rank + r, count) for r in range(size)]).to("sim"))
    check(mixed, torch.cat([mine(10 * r + rank, count) for r in range(size)]), "all_to_all")


def uneven_all_to_all(rank, size, count):
    to = [count + 100_000 * r for r in range(size)]
    mixed = torch.zeros(size * to[rank], device="sim")
    sent = torch.cat([mine(10 * rank + r, to[r]) for r in range(size)]).to("sim")
    dist.all_to_all_single(mixed, sent, [to[rank]] * size, to)
    check(mixed, torch.cat([mine(10 * r + rank, to[rank]) for r in range(size)]), "all_to_all with splits")


def gather_and_scatter(rank, size, count):
    parts = [torch.zeros(count, device="sim") for _ in range(size)] if rank == 0 else None
    dist.gather(mine(rank, count).to("sim"), parts, dst=0)
    if rank == 0:
        check(torch.cat(parts), torch.cat([mine(r, count) for r in range(size)]), "gather")
    part = torch.zeros(count, device="sim")
    dist.scatter(part, [mine(5 + r, count).to("sim") for r in range(size)] if rank == 0 else None, src=0)
    check(part, mine(5 + rank, count), "scatter")


MOVES = [send_and_receive, broadcast, all_gather, all_to_all, uneven_all_to_all, gather_and_scatter]


def stages_nothing(rank, size, move, count):
    torch.sim.synchronize()
    for turn in range(3):
        staged, read = staged_bytes(), read_bytes()
        move(rank, size, count)
        torch.sim.synchronize()
        dist.barrier()
        assert staged_bytes() == staged, f"{staged_bytes() - staged} bytes were staged in turn {turn}"
    return read_bytes() - read


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_what_only_moves_is_exact_and_copied_by_nobody(move, over, stripped, tmp_path):
    log = {"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": f"{tmp_path}/log"}
    read = run(stages_nothing, 2, stripped, "map", move, COUNT, environment=over | log)
    assert sum(read) >= 2 * 4 * COUNT - 2 * (64 << 10), "not read by the card into the device's memory"
    told = (tmp_path / "log").read_text()
    assert told.count("reading long messages from the peer's memory, devices' too") == 2
    assert told.count("sim:0: network cards read and write its memory in large calls") >= 2


def everything_and_some_directly(rank, size):
    read = read_bytes()
    everything(rank, size)
    return read_bytes() - read


def test_every_call_is_exact_whatever_of_it_is_staged(over, stripped):
    """Sizes about where slices begin, types, views, groups, errors: some slices go directly, others, and all sums, do not."""
    read = run(everything_and_some_directly, 2, stripped, "map", environment=over | IN_SLICES, timeout=120)
    assert min(read) > 1 << 20


def in_one_slice(rank, size):
    for count in (8 << 10, 64 << 10, 100_003):
        for move in (send_and_receive, broadcast, all_gather, all_to_all):
            stages_nothing(rank, size, move, count)


def test_what_is_short_enough_for_one_slice_is_not_staged_either(over, stripped):
    run(in_one_slice, 2, stripped, "map", environment=over)


@pytest.mark.parametrize("without", slow_after_first(["map, host functions", "map"]))
def test_three_ranks_move_whatever_way_stream_order_is_kept(without, over, stripped):
    run(moves, 3, stripped, without, environment=over, timeout=120)


def moves(rank, size):
    for move in (broadcast, all_gather, all_to_all):
        stages_nothing(rank, size, move, COUNT // 2)


def test_handles_that_are_no_addresses_are_exported(over, stripped):
    run(moves, 2, stripped, "map", environment=over | {"TORCH_SIM_OPAQUE": "1"})


def between_hosts(rank, size):
    stages_nothing(rank, size, all_gather, COUNT)
    stages_nothing(rank, size, send_and_receive, COUNT)
    return read_bytes()


def test_two_hosts_move_without_staging(over, stripped, make_hosts):
    read = run(between_hosts, 2, stripped, "map", environment=over, hosts=make_hosts(2))
    assert min(read) > 4 * COUNT


# ------------------------------------------------------------------------------------------------------------ what is kept


def open_files():
    return len(os.listdir("/proc/self/fd"))


def mappings():
    with open("/proc/self/maps") as lines:
        return sum("memfd:torch_sim" in line for line in lines)


def registered_once(rank, size):
    tensor = torch.ones(COUNT, device="sim")
    for _ in range(5):
        dist.broadcast(tensor, 0)
        torch.sim.synchronize()
    dist.barrier()
    ever = of_card().card_registered
    ever.restype = ctypes.c_ulonglong
    assert ever() == of_card().card_registrations() == 1
    files = open_files()
    for turn in range(4):
        tensors = [torch.ones(COUNT * (turn + 2), device="sim") for _ in range(3)]
        for one in tensors:
            dist.broadcast(one, 0)
        torch.sim.synchronize()
        assert of_card().card_registrations() > 1
        del one, tensors
        gc.collect()
        torch.sim.empty_cache()
        # What is gone is noticed in time, also if nothing new comes.
        for _ in range(70):
            dist.broadcast(tensor, 0)
        torch.sim.synchronize()
        dist.barrier()
        assert of_card().card_registrations() == 1, f"in turn {turn}"
        assert open_files() <= files, f"in turn {turn}"
    dist.destroy_process_group()
    assert of_card().card_registrations() == 0
    del tensor
    torch.sim.empty_cache()
    assert mappings() == 0, "device memory that was freed is still mapped"


def test_memory_is_registered_once_and_let_go_of_when_it_is_freed(over, stripped):
    run(registered_once, 2, stripped, "map", environment=over | {"HCCL_LIKE_FABRIC_RAILS": "1"})


# ------------------------------------------------------------------------------------------------------------- failures


def staged_but_exact(rank, size):
    staged = staged_bytes()
    for move in (send_and_receive, broadcast, all_gather, all_to_all):
        move(rank, size, COUNT)
    assert staged_bytes() - staged > 4 * COUNT
    return of_card().card_registrations()


REFUSALS = {
    "the plugin exports nothing": ("map, descriptors", {}, "export_fd of its plugin"),
    "the card registers nothing": ("map", {"CARD_REFUSES": "registrations"}, "the network card does not take its memory"),
}


@pytest.mark.parametrize("refusal", slow_after_first(REFUSALS))
def test_what_cannot_go_directly_is_staged_and_told_once(refusal, over, stripped, tmp_path):
    without, how, why = REFUSALS[refusal]
    log = {"HCCL_LIKE_DEBUG": "WARN", "HCCL_LIKE_DEBUG_FILE": f"{tmp_path}/log-%p"}
    assert run(staged_but_exact, 2, stripped, without, environment=over | log | how) == [0, 0]
    for log in tmp_path.glob("log-*"):
        told = [line for line in log.read_text().splitlines() if "large calls are staged" in line]
        assert told and all(why in line for line in told)


@pytest.mark.parametrize("how", slow_after_first(["no extension", "the setting"]))
def test_without_it_nothing_is_given_to_the_card_nor_told(how, over, stripped, tmp_path):
    without = "map, files" if how == "no extension" else "map"
    off = {} if how == "no extension" else {"HCCL_LIKE_FABRIC_DEVICE_MEMORY": "0"}
    log = {"HCCL_LIKE_DEBUG": "WARN", "HCCL_LIKE_DEBUG_FILE": f"{tmp_path}/log"}
    assert run(staged_but_exact, 2, stripped, without, environment=over | off | log) == [0, 0]
    path = tmp_path / "log"
    assert not path.exists() or "staged" not in path.read_text()


def one_rank_has_it(rank, size):
    staged = staged_bytes()
    for move in (send_and_receive, broadcast, all_gather, all_to_all):
        move(rank, size, COUNT)
    return staged_bytes() - staged


def test_one_end_may_stage_what_the_other_does_not(over, stripped):
    """Which of the two a rank does, its peers cannot tell."""
    def environment(rank):
        refuses = {"CARD_REFUSES": "registrations"} if rank == 1 else {}
        return over | refuses | {"PLUGIN": _plugins.found()["sim"], "WITHOUT": "map"}

    first, second = run_ranks(_with_plugin, 2, stripped, one_rank_has_it, group=False, environment=environment)
    assert first == 0 < 4 * COUNT < second


def a_read_fails(rank, size):
    tensor = torch.ones(8 * COUNT, device="sim")
    begin = time.monotonic()
    with pytest.raises(RuntimeError) as told:
        for _ in range(3):
            dist.broadcast(tensor, 0)
            torch.sim.synchronize()
            dist.barrier()
    assert time.monotonic() - begin < 20
    return str(told.value)


def test_a_card_that_fails_in_the_middle_fails_the_group_and_says_what_to_set(over, stripped):
    told = run(a_read_fails, 2, stripped, "map", environment=over | {"CARD_REFUSES": "reads"})
    for text in told:
        assert "the network card can no longer move a message between a device's memory and rank" in text, text
        assert "HCCL_LIKE_FABRIC_DEVICE_MEMORY=0" in text


def killed_in_a_call(rank, size):
    tensor = torch.ones(16 * COUNT, device="sim")
    dist.broadcast(tensor, 0)
    torch.sim.synchronize()
    if rank == 1:
        os._exit(7)
    with pytest.raises(RuntimeError, match="lost rank 1|gave up"):
        for _ in range(100):
            dist.broadcast(tensor, 0)
            torch.sim.synchronize()
    assert tensor[0].isnan()


def test_a_rank_that_dies_leaves_spoilt_outputs_and_an_error(over, stripped):
    run(killed_in_a_call, 2, stripped, "map", environment=over)
