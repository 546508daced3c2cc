"""The plugin table, used as a stranger would: through C, by file name, knowing no torch."""

import ctypes as c
import multiprocessing
import os
import struct
import threading
from importlib.metadata import entry_points

import pytest
import torch

OK, NOT_READY, UNSUPPORTED, INVALID = 0, -1, -2, -3
ASYNC_COPY, COHERENT_MAP = 2, 4


class Ref(c.Structure):
    _fields_ = [("base", c.c_void_p), ("offset", c.c_uint64)]


class Info(c.Structure):
    _fields_ = [("size", c.c_size_t), ("caps", c.c_uint64), ("numa", c.c_int32), ("uuid", c.c_char * 40), ("pci", c.c_char * 16)]


Handle = c.c_ubyte * 128
HostFunction = c.CFUNCTYPE(None, c.c_void_p)
P = c.POINTER


class Api(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char_p),
        ("init", c.CFUNCTYPE(c.c_int)),
        ("fini", c.CFUNCTYPE(None)),
        ("last_error", c.CFUNCTYPE(c.c_char_p)),
        ("device_info", c.CFUNCTYPE(c.c_int, c.c_int, P(Info))),
        ("stream_from_torch", c.CFUNCTYPE(c.c_int, c.c_int, c.c_int64, c.c_void_p, P(c.c_uint64))),
        ("stream_sync", c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint64)),
        ("copy_d2h", c.CFUNCTYPE(c.c_int, c.c_int, c.c_void_p, Ref, c.c_size_t, c.c_uint64)),
        ("copy_h2d", c.CFUNCTYPE(c.c_int, c.c_int, Ref, c.c_void_p, c.c_size_t, c.c_uint64)),
        ("map", c.CFUNCTYPE(c.c_int, c.c_int, Ref, c.c_size_t, P(c.c_void_p))),
        ("unmap", c.CFUNCTYPE(c.c_int, c.c_int, c.c_void_p)),
        ("host_func", c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint64, HostFunction, c.c_void_p)),
        ("stream_wait_value", c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint64, P(c.c_uint64), c.c_uint64)),
        ("stream_write_value", c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint64, P(c.c_uint64), c.c_uint64)),
        ("ipc_export", c.CFUNCTYPE(c.c_int, c.c_int, Ref, c.c_size_t, P(Handle), P(c.c_uint64))),
        ("ipc_open", c.CFUNCTYPE(c.c_int, c.c_int, P(Handle), P(c.c_void_p), P(c.c_size_t))),
        ("ipc_close", c.CFUNCTYPE(c.c_int, c.c_int, c.c_void_p)),
        ("peer_open", c.CFUNCTYPE(c.c_int, c.c_int, P(Handle), P(c.c_void_p), P(c.c_size_t))),
        ("peer_close", c.CFUNCTYPE(c.c_int, c.c_int, c.c_void_p)),
        ("stream_create", c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint64, c.c_int, P(c.c_uint64))),
        ("stream_destroy", c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint64)),
        ("event_record", c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint64, P(c.c_uint64))),
        ("stream_wait_event", c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint64, c.c_uint64)),
        ("event_query", c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint64)),
        ("event_sync", c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint64)),
        ("event_destroy", c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint64)),
        ("copy_d2d", c.CFUNCTYPE(c.c_int, c.c_int, Ref, Ref, c.c_size_t, c.c_uint64)),
        ("reduce", c.CFUNCTYPE(c.c_int, c.c_int, Ref, Ref, c.c_uint64, c.c_int, c.c_int, c.c_uint64)),
        ("mem_alloc", c.CFUNCTYPE(c.c_int, c.c_int, c.c_size_t, P(c.c_void_p))),
        ("mem_free", c.CFUNCTYPE(c.c_int, c.c_int, c.c_void_p)),
        ("host_alloc", c.CFUNCTYPE(c.c_int, c.c_int, c.c_size_t, P(c.c_void_p))),
        ("host_free", c.CFUNCTYPE(c.c_int, c.c_int, c.c_void_p)),
        ("host_register", c.CFUNCTYPE(c.c_int, c.c_int, c.c_void_p, c.c_size_t)),
        ("host_unregister", c.CFUNCTYPE(c.c_int, c.c_int, c.c_void_p)),
        ("extensions", c.c_void_p),
        ("ipc_lives", c.CFUNCTYPE(c.c_int, c.c_int, P(Handle))),
        (
            "reduce_many",
            c.CFUNCTYPE(
                c.c_int, c.c_int, Ref, P(Ref), c.c_uint32, c.c_uint64, c.c_int, c.c_int, c.c_double, c.c_double, c.c_uint64
            ),
        ),
        ("all_reduce_small", c.c_void_p),  # the contract tests it
    ]


def table():
    (entry,) = [e for e in entry_points(group="hccl_like.devices") if e.name == "sim"]
    library = c.CDLL(entry.load()())
    library.hcd_get_api.restype = P(Api)
    assert not library.hcd_get_api(9, 0)
    return library.hcd_get_api(1, 0).contents


@pytest.fixture(scope="module")
def api():
    found = table()
    assert found.init() == OK
    return found


def ref(tensor):
    return Ref(tensor.untyped_storage().data_ptr(), tensor.storage_offset() * tensor.itemsize)


def stream_of(api, stream, native=True):
    out = c.c_uint64()
    handle = stream.native_handle if native else None
    assert api.stream_from_torch(stream.device_index, stream.stream_id, handle, c.byref(out)) == OK
    return out.value


def test_the_table_says_what_it_is(api):
    assert api.name == b"sim" and api.size == c.sizeof(Api)
    assert all(bool(getattr(api, name)) for name, _ in Api._fields_)


def test_device_info(api):
    a, b = Info(size=c.sizeof(Info)), Info(size=c.sizeof(Info))
    assert api.device_info(0, c.byref(a)) == api.device_info(1, c.byref(b)) == OK
    assert a.caps == ASYNC_COPY | COHERENT_MAP and a.numa == -1 and a.pci == b""
    assert a.uuid != b.uuid and a.uuid.startswith(b"sim0-")
    short = Info(size=16)
    short.uuid = b"untouched"
    assert api.device_info(0, c.byref(short)) == OK and short.uuid == b"untouched" and short.caps == a.caps


def test_errors_are_statuses_with_a_sentence(api):
    assert api.device_info(99, c.byref(Info(size=c.sizeof(Info)))) == INVALID
    assert b"no device 99" in api.last_error()
    where = c.c_void_p()
    assert api.map(0, Ref(1234, 0), 4, c.byref(where)) == INVALID
    assert b"not memory of device 0" in api.last_error()
    x = torch.ones(4, device="sim:1")
    assert api.map(0, ref(x), 4, c.byref(where)) == INVALID


def test_both_ways_lead_to_the_same_stream(api):
    side = torch.sim.Stream()
    assert stream_of(api, side) == stream_of(api, side, native=False) != 0
    assert stream_of(api, torch.sim.default_stream()) != stream_of(api, side)
    assert api.stream_from_torch(0, 4000, None, c.byref(c.c_uint64())) == INVALID


def test_a_mapping_is_the_tensors_memory(api):
    x = torch.arange(10, dtype=torch.int32, device="sim")
    view = x[3:]
    where = c.c_void_p()
    torch.sim.synchronize()
    assert api.map(0, ref(view), view.nbytes, c.byref(where)) == OK
    assert where.value != view.data_ptr()
    mapped = (c.c_int32 * 7).from_address(where.value)
    assert list(mapped) == [3, 4, 5, 6, 7, 8, 9]
    mapped[0] = -1
    assert x.tolist() == [0, 1, 2, -1, 4, 5, 6, 7, 8, 9]
    assert api.unmap(0, where) == OK


def test_an_event_of_the_plugin_orders_torchs_streams(api, gate):
    current, side = torch.sim.current_stream(), torch.sim.Stream()
    x = torch.zeros(3, dtype=torch.int32, device="sim")
    torch.sim.synchronize()
    event = c.c_uint64()
    gate.close()
    x.fill_(1)
    assert api.event_record(0, stream_of(api, current), c.byref(event)) == OK
    assert api.stream_wait_event(0, stream_of(api, side), event) == OK
    assert api.event_query(0, event) == NOT_READY
    assert api.event_destroy(0, event) == OK
    read = (c.c_int32 * 3)()
    assert api.copy_d2h(0, read, ref(x), 12, stream_of(api, side)) == OK
    gate.open()
    assert api.stream_sync(0, stream_of(api, side)) == OK
    assert list(read) == [1, 1, 1]


def test_reductions_are_those_of_torchs_operators(api):
    a = torch.randn(1001, device="sim").bfloat16()
    b = torch.randn(1001, device="sim").bfloat16()
    b[7] = float("nan")
    wanted = {0: a + b, 1: a * b, 2: torch.minimum(a, b), 3: torch.maximum(a, b)}
    for op, result in wanted.items():
        mine = a.clone()
        torch.sim.synchronize()
        assert api.reduce(0, ref(mine), ref(b), 1001, 3, op, 0) == OK
        torch.testing.assert_close(mine.cpu(), result.cpu(), rtol=0, atol=0, equal_nan=True)
    assert api.reduce(0, ref(a), ref(b), 1001, 3, 4, 0) == UNSUPPORTED
    assert b"not defined" in api.last_error()


def test_a_reduction_of_many_sources_is_rounded_once(api):
    sources = [torch.full((7,), value, device="sim").bfloat16() for value in (256.0, 1.0, 1.0)]
    out = torch.empty(7, device="sim", dtype=torch.bfloat16)
    torch.sim.synchronize()
    assert api.reduce_many(0, ref(out), (Ref * 3)(*map(ref, sources)), 3, 7, 3, 0, 0.5, 2.0, 0) == OK
    assert out.tolist() == [258] * 7, "256 + 1 is 256 in bfloat16"


def test_streams_that_are_given_back_are_used_again(api):
    def make(priority):
        out = c.c_uint64()
        assert api.stream_create(1, 0, priority, c.byref(out)) == OK
        return out.value

    first, second, urgent = make(0), make(0), make(1)
    assert len({first, second, urgent}) == 3
    assert api.stream_destroy(1, first) == OK
    assert api.stream_destroy(1, first) == INVALID
    assert make(1) != first and make(0) == first


@pytest.mark.parametrize("count", [3, 50_000])
def test_copies_keep_the_streams_order(api, count, gate):
    stream = stream_of(api, torch.sim.current_stream())
    x = torch.zeros(count, dtype=torch.int32, device="sim")
    source, target = (c.c_int32 * count)(*range(count)), (c.c_int32 * count)()
    gate.close()
    assert api.copy_h2d(0, ref(x), source, 4 * count, stream) == OK
    x_after = x.clone()
    assert api.copy_d2h(0, target, ref(x_after), 4 * count, stream) == OK
    assert not torch.sim.current_stream().query()
    gate.open()
    assert api.stream_sync(0, stream) == OK
    assert list(target) == list(range(count))


def test_copies_without_a_stream_are_done_at_once(api):
    x = torch.arange(4, dtype=torch.int32, device="sim")
    torch.sim.synchronize()
    target = (c.c_int32 * 4)()
    assert api.copy_d2h(0, target, ref(x), 16, 0) == OK
    assert list(target) == [0, 1, 2, 3]
    assert api.copy_d2h(0, None, Ref(None, 0), 0, 0) == OK


def test_host_functions_run_in_the_streams_order_elsewhere(api):
    x = torch.zeros(2, device="sim")
    stream = stream_of(api, torch.sim.current_stream())
    seen = []
    gate = threading.Event()
    function = HostFunction(lambda arg: (gate.wait(), seen.append((arg, threading.get_ident()))))
    assert api.host_func(0, stream, function, 77) == OK
    x.fill_(1)
    assert seen == []
    gate.set()
    assert x.tolist() == [1, 1]
    assert seen[0][0] == 77 and seen[0][1] != threading.get_ident()


def test_a_stream_waits_for_a_host_word_and_writes_one(api):
    stream = stream_of(api, torch.sim.current_stream())
    word, done = c.c_uint64(0), c.c_uint64(0)
    assert api.stream_wait_value(0, stream, c.byref(word), 5) == OK
    assert api.stream_write_value(0, stream, c.byref(done), 9) == OK
    word.value = 4
    assert not torch.sim.current_stream().query()
    word.value = 6
    assert api.stream_sync(0, stream) == OK
    assert done.value == 9


def test_all_calls_may_come_from_many_threads(api):
    errors = []

    def work(device):
        stream = stream_of(api, torch.sim.Stream(device))
        x = torch.zeros(1000, dtype=torch.int32, device=f"sim:{device}")
        torch.sim.synchronize(device)
        source, target = (c.c_int32 * 1000)(*[device] * 1000), (c.c_int32 * 1000)()
        for _ in range(100):
            api.copy_h2d(device, ref(x), source, 4000, stream)
            api.copy_d2h(device, target, ref(x), 4000, stream)
            api.stream_sync(device, stream)
            if list(target) != list(source):
                errors.append(device)

    threads = [threading.Thread(target=work, args=(i % 3,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def peer(handle, offset, count, answers, questions):
    """Another process: maps the memory, reads it, writes to it, and tells what it saw."""
    api = table()
    api.init()
    where, size = c.c_void_p(), c.c_size_t()
    status = api.ipc_open(0, c.byref(Handle(*handle)), c.byref(where), c.byref(size))
    if status != OK:
        answers.put((status, api.last_error().decode()))
        return
    mapped = (c.c_int32 * count).from_address(where.value + offset)
    answers.put(list(mapped))
    questions.get()
    answers.put(list(mapped))
    mapped[0] = 1000
    assert api.ipc_close(0, where) == OK
    assert api.ipc_close(0, where) == INVALID
    answers.put("closed")


def start_peer(handle, offset=0, count=1):
    context = multiprocessing.get_context("spawn")
    answers, questions = context.Queue(), context.Queue()
    process = context.Process(target=peer, args=(bytes(handle), offset, count, answers, questions))
    process.start()
    return process, answers, questions


def export(api, tensor):
    handle, offset = Handle(), c.c_uint64()
    assert api.ipc_export(0, ref(tensor), tensor.nbytes, c.byref(handle), c.byref(offset)) == OK
    return handle, offset.value


def test_another_process_maps_the_same_memory(api):
    x = torch.arange(6, dtype=torch.int32, device="sim")
    torch.sim.synchronize()
    process, answers, questions = start_peer(*export(api, x[2:]), 4)
    assert answers.get(timeout=60) == [2, 3, 4, 5]
    x.mul_(2)
    questions.put("look again")
    assert answers.get(timeout=60) == [4, 6, 8, 10]
    assert answers.get(timeout=60) == "closed"
    process.join()
    assert x.tolist() == [0, 2, 1000, 6, 8, 10]


def test_handles_are_refused_unless_they_are_right(api):
    x = torch.arange(6, dtype=torch.int32, device="sim")
    handle, _ = export(api, x)
    where, size = c.c_void_p(), c.c_size_t()

    def opened(changed):
        return api.ipc_open(0, c.byref(Handle(*changed)), c.byref(where), c.byref(size))

    def with_word(index, value):
        words = list(struct.unpack("<16Q", bytes(handle)))
        words[index] = value
        return struct.pack("<16Q", *words)

    magic, process, descriptor, count, nonce, _ = struct.unpack("<6Q", bytes(handle)[:48])
    assert opened(with_word(4, nonce ^ 1)) == INVALID  # the secret
    assert b"not the memory it was made for" in api.last_error()
    assert opened(with_word(3, count // 2)) == INVALID  # the size
    assert opened(with_word(0, magic + 1)) == INVALID
    assert opened(with_word(1, 4_000_000)) == UNSUPPORTED  # no such process
    assert b"cannot look at" in api.last_error()
    with open(__file__) as file:
        assert opened(with_word(2, file.fileno())) == INVALID  # another file of ours
    read_end, write_end = os.pipe()
    assert opened(with_word(2, read_end)) == INVALID
    os.close(read_end), os.close(write_end)
    assert opened(bytes(128)) == INVALID
    assert opened(bytes(handle)) == OK
    assert api.ipc_close(0, where) == OK


def test_freed_memory_stays_valid_where_it_is_mapped(api):
    torch.sim.set_device(5)
    x = torch.full((30 << 20,), 7, dtype=torch.uint8, device="sim")
    torch.sim.synchronize()
    handle, offset = Handle(), c.c_uint64()
    assert api.ipc_export(5, ref(x), x.nbytes, c.byref(handle), c.byref(offset)) == OK
    where, size = c.c_void_p(), c.c_size_t()
    assert api.ipc_open(5, c.byref(handle), c.byref(where), c.byref(size)) == OK
    assert api.ipc_lives(5, c.byref(handle)) == OK
    del x
    assert api.ipc_lives(5, c.byref(handle)) == OK, "torch's allocator has it"
    torch.sim.empty_cache()
    assert api.ipc_lives(5, c.byref(handle)) == INVALID
    assert c.string_at(where.value + offset.value, 3) == b"\7\7\7"
    assert api.ipc_close(5, where) == OK
    assert api.ipc_lives(5, c.byref(Handle())) == INVALID


def test_memory_of_another_process_is_memory_of_the_device(api):
    x = torch.arange(6, dtype=torch.int32, device="sim:4")
    torch.sim.synchronize(4)
    handle, offset = Handle(), c.c_uint64()
    assert api.ipc_export(4, ref(x), x.nbytes, c.byref(handle), c.byref(offset)) == OK
    base, size, host = c.c_void_p(), c.c_size_t(), c.c_void_p()
    before = torch.sim.memory_reserved(4)
    assert api.peer_open(4, c.byref(handle), c.byref(base), c.byref(size)) == OK
    assert torch.sim.memory_reserved(4) == before, "a peer's memory is none of this device's own"
    assert base.value + offset.value != x.data_ptr()
    there = Ref(base.value, offset.value)
    read = (c.c_int32 * 6)()
    assert api.copy_d2h(4, read, there, 24, 0) == OK
    assert list(read) == [0, 1, 2, 3, 4, 5]
    assert api.copy_h2d(4, there, (c.c_int32 * 1)(70), 4, 0) == OK
    assert x.tolist() == [70, 1, 2, 3, 4, 5]
    assert api.map(4, there, 24, c.byref(host)) == OK
    (c.c_int32 * 6).from_address(host.value)[5] = 50
    assert api.unmap(4, host) == OK
    assert x.tolist() == [70, 1, 2, 3, 4, 50]
    assert api.map(3, there, 24, c.byref(host)) == INVALID, "it is mapped for device 4 only"
    assert api.peer_close(4, x.data_ptr()) == INVALID, "that is the device's own memory"
    assert api.peer_close(4, base) == OK
    assert api.peer_close(4, base) == INVALID
    assert api.copy_d2h(4, read, there, 24, 0) == INVALID
    assert x.tolist() == [70, 1, 2, 3, 4, 50]
