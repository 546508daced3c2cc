"""Algorithms of MSCCL and plans of MSCCL++, read as schedules."""

import json

import pytest
from hccl_like import schedule
from hccl_like.schedule import ScheduleError


def step(number, kind, source, target, depends=(-1, -1), count=1):
    (source_buffer, source_chunk), (target_buffer, target_chunk) = source, target
    return (f'<step s="{number}" type="{kind}" srcbuf="{source_buffer}" srcoff="{source_chunk}" dstbuf="{target_buffer}" dstoff="{target_chunk}" '
            f'cnt="{count}" depid="{depends[0]}" deps="{depends[1]}" hasdep="0"/>')  # fmt: skip


def algorithm(collective, gpus, chunks, name="read"):
    """XML of blocks by GPU: (send, recv, channel, steps)."""
    text = f'<algo name="{name}" proto="Simple" nchannels="1" nchunksperloop="{chunks}" ngpus="{len(gpus)}" coll="{collective}" inplace="1">'
    for rank, blocks in enumerate(gpus):
        text += f'<gpu id="{rank}" i_chunks="{chunks}" o_chunks="0" s_chunks="{chunks}">'
        for number, (to, come_from, channel, steps) in enumerate(blocks):
            text += f'<tb id="{number}" send="{to}" recv="{come_from}" chan="{channel}">{"".join(steps)}</tb>'
        text += "</gpu>"
    return text + "</algo>"


def ring(size, channels=1, change=lambda rank, steps: steps):
    """What msccl-tools makes of a ring all_reduce: every block receives and sends in one step."""
    gpus = []
    for rank in range(size):
        blocks = []
        for channel in range(channels):
            kinds = ["s", *["rrs"] * (size - 2), "rrcs", *["rcs"] * (size - 2), "r"]
            chunks = [("i", (rank - i) % size * channels + channel) for i in range(2 * size - 1)]
            steps = [step(i, kind, chunk, chunk) for i, (kind, chunk) in enumerate(zip(kinds, chunks))]
            blocks.append(((rank + 1) % size, (rank - 1) % size, channel, change(rank, steps)))
        gpus.append(blocks)
    return algorithm("allreduce", gpus, size * channels, "ring of ranks")


def loaded(tmp_path, text, name="plan"):
    path = tmp_path / name
    path.write_text(text)
    return schedule.load(path)


@pytest.mark.parametrize("size, channels", [(2, 1), (4, 1), (5, 3), (8, 2)])
def test_a_ring_of_msccl_has_as_many_rounds_as_ours(size, channels, tmp_path):
    read = loaded(tmp_path, ring(size, channels))
    read.prove(size)
    assert (read.collective, read.name) == ("all_reduce", "ring_of_ranks")
    assert len(json.loads(read.to_json(size))["roots"][0][0]["rounds"]) == 2 * (size - 1)
    assert schedule.from_json(read.to_json(size)).fault(size) == ""
    with pytest.raises(ScheduleError, match=f"written for {size} ranks, and there are 3"):
        read.to_json(3)


def test_blocks_wait_for_each_other(tmp_path):
    # Block 0 exchanges in scratch memory; block 1 waits for it and adds.
    def gpus(depends):
        return [
            [(1 - rank, 1 - rank, 0, [step(0, "s", ("i", 0), ("s", 0)), step(1, "r", ("i", 0), ("s", 0))]),
             (-1, -1, 0, [step(0, "nop", ("i", 0), ("i", 0), depends), step(1, "re", ("s", 0), ("i", 0))])]
            for rank in range(2)
        ]  # fmt: skip

    loaded(tmp_path, algorithm("allreduce", gpus((0, 1)), 1)).prove(2)
    with pytest.raises(ScheduleError, match="rank 0 reads chunk 0 of buffer 's' before anything is written there"):
        loaded(tmp_path, algorithm("allreduce", gpus((-1, -1)), 1))
    with pytest.raises(ScheduleError, match="rank 0, thread block 1 waits for a step that does not exist: block 0, step 7"):
        loaded(tmp_path, algorithm("allreduce", gpus((0, 7)), 1))


def test_other_collectives_of_msccl(tmp_path):
    both = [[(1 - rank, 1 - rank, 0, [step(0, "s", ("o", rank), ("o", rank)), step(1, "r", ("o", 1 - rank), ("o", 1 - rank))])] for rank in (0, 1)]
    loaded(tmp_path, algorithm("allgather", both, 2)).prove(2)
    both = [[(1 - rank, 1 - rank, 0, [step(0, "s", ("i", 1 - rank), ("i", 1 - rank)), step(1, "rrc", ("i", rank), ("o", 0))])] for rank in (0, 1)]
    loaded(tmp_path, algorithm("reducescatter", both, 2)).prove(2)
    both = [
        [(1 - rank, 1 - rank, 0, [step(0, "cpy", ("i", rank), ("o", rank)), step(1, "s", ("i", 1 - rank), ("o", rank)),
                                  step(2, "r", ("i", rank), ("o", 1 - rank))])]
        for rank in (0, 1)
    ]  # fmt: skip
    loaded(tmp_path, algorithm("alltoall", both, 2)).prove(2)


@pytest.mark.parametrize("text, expected", [
    ("<algo", "no XML of MSCCL"),
    (algorithm("custom", [[], []], 2), "a plan for 'custom' has no counterpart here; there are allreduce"),
    (algorithm("allgather", [[], []], 4), "it has 4 chunks on 2 ranks; all_gather has one chunk for each rank here"),
    (algorithm("allreduce", [[(1, 1, 0, [step(0, "ran", ("i", 0), ("i", 0))])], []], 2), "rank 0, thread block 0: a step 'ran' of MSCCL"),
    (ring(3, change=lambda rank, steps: steps[1:] if rank == 1 else steps), "rank 1 sends 3 messages to rank 2 on channel 0, which receives 4"),
], ids=["no XML", "custom", "instances", "unknown step", "lost message"])  # fmt: skip
def test_what_is_missing_is_named(text, expected, tmp_path):
    with pytest.raises(ScheduleError, match=expected):
        loaded(tmp_path, text)


def test_what_was_read_is_proved_like_any_other(tmp_path):
    forgets = ring(3, change=lambda rank, steps: [s.replace('"rrs"', '"rcs"') for s in steps] if rank == 1 else steps)
    assert "does not hold what it should: in[0] of rank 1 is missing" in loaded(tmp_path, forgets).fault(3)


def plan(ops, collective="allreduce", chunks=2):
    """A plan of MSCCL++ for two GPUs: `ops(rank)` of one block each; remote buffer 0 is the peer's scratch memory, 1 its input."""
    channels = {"channel_type": "memory"}
    gpus = [
        {"id": rank, "input_chunks": chunks, "output_chunks": 0, "scratch_chunks": chunks,
         "threadblocks": [{"id": 0, "ops": ops(rank), "channels": [channels | {"channel_ids": [0]}],
                           "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0, 1]}]}],
         "channels": [channels | {"connected_to": [1 - rank]}],
         "remote_buffers": [{"rank": 1 - rank, "type": kind, "access_channel_types": ["memory"]} for kind in ("s", "i")]}
        for rank in range(2)
    ]  # fmt: skip
    return json.dumps({"name": "halves", "collective": collective, "protocol": "Simple", "inplace": True, "gpus": gpus})


def on(name, **buffers):
    return {"name": name, "channel_ids": [0], "channel_type": "memory", **buffers}


def here(kind, index):
    return {"type": kind, "index": index, "size": 1}


def there(number, index):
    return {"buffer_id": number, "index": index, "size": 1}


def halves(rank):
    """Each rank puts the other's half into its scratch memory, adds its own half up, and puts the sum into the other's input."""
    other = 1 - rank
    return [
        on("signal"), on("wait"), {"name": "nop"},
        on("put", src_buff=[here("i", other)], dst_buff=[there(0, other)]), on("signal"), on("wait"),
        on("reduce", src_buff=[here("i", rank), here("s", rank)], dst_buff=[here("i", rank)], reduce_op="sum"),
        on("put", src_buff=[here("i", rank)], dst_buff=[there(1, rank)]), on("signal"), on("wait"),
    ]  # fmt: skip


def reading(rank):
    """The same with reads of the other's memory, which must stay as it is meanwhile."""
    return [
        on("copy", src_buff=[here("i", 1 - rank)], dst_buff=[here("s", 1 - rank)]), on("signal"), on("wait"),
        on("rres", src_buff=[here("i", rank), there(0, rank)], dst_buff=[here("i", rank), there(1, rank)], reduce_op="sum"),
        on("signal"), on("wait"),
    ]  # fmt: skip


@pytest.mark.parametrize("ops", [halves, reading])
def test_a_plan_of_mscclpp(ops, tmp_path):
    read = loaded(tmp_path, plan(ops))
    read.prove(2)
    assert read.name == "halves" and len(json.loads(read.to_json(2))["roots"][0][0]["rounds"]) <= 4


def test_a_plan_of_mscclpp_that_is_wrong(tmp_path):
    with pytest.raises(ScheduleError, match="rank 1, thread block 0 waits for a signal that nobody sends: wait, with"):
        loaded(tmp_path, plan(lambda rank: halves(rank)[1:] if rank == 0 else halves(rank)[:2] + halves(rank)))
    with pytest.raises(ScheduleError, match="an operation 'glres' of MSCCL.. has no counterpart here"):
        loaded(tmp_path, plan(lambda rank: [{"name": "glres"}]))
    with pytest.raises(ScheduleError, match="no plan of MSCCL"):
        loaded(tmp_path, '{"gpus": 3}')
    forgets = loaded(tmp_path, plan(lambda rank: [op for op in halves(rank) if op["name"] != "reduce"]))
    assert "does not hold what it should" in forgets.fault(2)
