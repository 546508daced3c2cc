"""What the devices move is counted, and takes at least the time that the settings say."""

import ctypes as c

import pytest
import torch

from test_plugin import OK, Ref, api, export, ref, stream_of  # noqa: F401


def counted(work, *devices):
    """What `work` adds to the counters that are not 0."""
    torch.sim.synchronize()
    torch.sim.reset_traffic()
    work()
    for device in devices or [0]:
        torch.sim.synchronize(device)
    traffic = torch.sim.traffic()
    assert set(traffic) == {"device", "peer", "host_to_device", "device_to_host", "kernels", "waits"}
    return {name: amount for name, amount in traffic.items() if amount}


@pytest.fixture
def x():
    return torch.ones(1000, device="sim")


@pytest.fixture
def peers(api, x):  # noqa: F811
    """x once more, as memory that a peer exported."""
    torch.sim.synchronize()
    handle, offset = export(api, x)
    base, size = c.c_void_p(), c.c_size_t()
    assert api.peer_open(0, c.byref(handle), c.byref(base), c.byref(size)) == OK
    yield Ref(base.value, offset)
    torch.sim.synchronize()
    assert api.peer_close(0, base) == OK


def test_copies_are_counted_by_path(x):
    host, pinned = torch.zeros(1000), torch.zeros(1000).pin_memory()
    assert counted(lambda: x.copy_(host)) == {"host_to_device": 4000}
    assert counted(lambda: x[:10].copy_(pinned[:10], non_blocking=True)) == {"host_to_device": 40}
    assert counted(lambda: host.copy_(x)) == {"device_to_host": 4000}
    assert counted(lambda: x.clone()) == {"device": 4000}
    assert counted(lambda: x.to("sim:1"), 0, 1) == {"peer": 4000}
    assert counted(lambda: x.untyped_storage().clone()) == {"device": 4000}


def test_kernels_are_counted_with_their_results(x):
    assert counted(lambda: x + x) == {"device": 4000, "kernels": 1}
    assert counted(lambda: x.sum()) == {"device": 4, "kernels": 1}
    assert counted(lambda: x.fill_(2)) == {"device": 4000, "kernels": 1}
    assert counted(lambda: x.view(10, 100).t()) == {}, "a view moves nothing"
    assert counted(lambda: x.sort()) == {"device": 12000, "kernels": 1}, "two results"
    # Writes to all three lists, and returns nothing.
    settings = dict(weight_decay=0, momentum=0.9, lr=0.1, dampening=0, nesterov=False, maximize=False, is_first_step=True)
    lists = [x], [torch.ones(1000, device="sim")], [torch.ones(1000, device="sim")]
    assert counted(lambda: torch._fused_sgd_(*lists, **settings)) == {"device": 12000, "kernels": 1}


def test_the_plugins_work_is_counted(api, x):  # noqa: F811
    y, host = torch.ones(1000, device="sim"), (c.c_float * 1000)()
    stream, word = stream_of(api, torch.sim.current_stream()), c.c_uint64(5)
    assert counted(lambda: api.copy_h2d(0, ref(x), host, 4000, stream)) == {"host_to_device": 4000}
    assert counted(lambda: api.copy_d2h(0, host, ref(x), 4000, 0)) == {"device_to_host": 4000}
    assert counted(lambda: api.copy_d2d(0, ref(x), ref(y), 4000, stream)) == {"device": 4000}
    assert counted(lambda: api.reduce(0, ref(x), ref(y), 10, 0, 0, stream)) == {"device": 40, "kernels": 1}
    assert counted(lambda: api.stream_wait_value(0, stream, c.byref(word), 5)) == {"waits": 1}


def test_memory_of_peers_is_counted_apart(api, x, peers):  # noqa: F811
    y, host = torch.ones(1000, device="sim"), (c.c_float * 1000)()
    assert counted(lambda: api.copy_d2d(0, ref(y), peers, 4000, 0)) == {"peer": 4000}
    assert counted(lambda: api.copy_d2d(0, peers, ref(y), 400, 0)) == {"peer": 400}
    assert counted(lambda: api.copy_d2h(0, host, peers, 4000, 0)) == {"device_to_host": 4000, "peer": 4000}
    assert counted(lambda: api.reduce(0, ref(y), peers, 10, 0, 0, 0)) == {"device": 40, "peer": 40, "kernels": 1}
    both = {"device": 40, "peer": 80, "kernels": 1}
    assert counted(lambda: api.reduce(0, peers, ref(y), 10, 0, 0, 0)) == both, "it is read and written"
    many = (Ref * 3)(ref(y), peers, peers)
    both = {"device": 40, "peer": 80, "kernels": 1}
    assert counted(lambda: api.reduce_many(0, ref(y), many, 3, 10, 0, 0, 1, 1, 0)) == both
    theirs = tensor_over(peers)
    assert counted(lambda: theirs + y) == {"device": 4000, "peer": 4000, "kernels": 1}
    assert counted(lambda: y.copy_(theirs)) == {"peer": 4000}
    assert counted(lambda: theirs.fill_(3)) == {"device": 4000, "peer": 4000, "kernels": 1}
    assert x.unique().tolist() == [3]


def tensor_over(place):
    """1000 floats there."""
    storage = torch._C._construct_storage_from_data_pointer(place.base, torch.device("sim:0"), place.offset + 4000)
    return torch.empty(0, device="sim").set_(storage, place.offset // 4, (1000,))


# Code that moves one or three million bytes, by setting. Streams take turns.
TIMED = {
    "HOST": {
        "x.copy_(host)": 1,
        "host.copy_(x)": 1,
        "each(lambda: pinned.copy_(x, non_blocking=True))": 3,
    },
    "KERNEL": {"x + x": 1, "x.clone()": 1, "each(lambda: x.fill_(2))": 3},
    "LINK": {"x.to('sim:1')": 1, "each(lambda: y.copy_(x))": 3},
}


@pytest.mark.parametrize("setting", TIMED)
def test_work_takes_its_time_asleep(python, setting):
    python(
        f"""
        import time, torch
        x, y = torch.ones(250_000, device="sim"), torch.ones(250_000, device="sim:1")
        host, pinned = torch.ones(250_000), torch.ones(250_000).pin_memory()
        streams = [torch.sim.Stream() for _ in range(3)]

        def each(work):
            for stream in streams:
                with torch.sim.stream(stream):
                    work()

        def elapsed(work):
            torch.sim.synchronize(0), torch.sim.synchronize(1)
            began, worked = time.monotonic(), time.process_time()
            exec(work)
            torch.sim.synchronize(0), torch.sim.synchronize(1)
            return time.monotonic() - began, time.process_time() - worked

        for work, millions in {TIMED[setting]}.items():
            took, worked = elapsed(work)
            assert took >= 0.1 * millions, (work, took)
            assert worked < took / 2, (work, worked, took)
        """,
        **{f"TORCH_SIM_{setting}_GBPS": "0.01"},
    )


@pytest.mark.parametrize("slow, fast", [("LINK", "KERNEL"), ("KERNEL", "LINK")])
def test_a_kernel_on_a_peers_memory_takes_the_longer_of_both_times(python, slow, fast):
    python(
        f"""
        import sys, time
        sys.path.insert(0, {__file__.rpartition("/")[0]!r})
        from test_plugin import *

        api = table()
        assert api.init() == OK
        x, y = torch.ones(250_000, device="sim"), torch.ones(250_000, device="sim")
        torch.sim.synchronize()
        handle, offset = export(api, x)
        base, size = c.c_void_p(), c.c_size_t()
        assert api.peer_open(0, c.byref(handle), c.byref(base), c.byref(size)) == OK
        began = time.monotonic()
        assert api.reduce(0, ref(y), Ref(base.value, offset), 250_000, 0, 0, 0) == OK
        assert time.monotonic() - began >= 0.09
        """,
        **{f"TORCH_SIM_{slow}_GBPS": "0.01", f"TORCH_SIM_{fast}_GBPS": "1000"},
    )


def test_whoever_queues_short_work_does_not_sleep_for_it(python):
    python(
        """
        import os, torch
        x, pinned = torch.empty(1000, device="sim"), torch.ones(1000).pin_memory()
        x.copy_(pinned, non_blocking=True)  # takes four seconds
        assert not torch.sim.current_stream().query()
        os._exit(0)
        """,
        TORCH_SIM_HOST_GBPS="1e-6",
    )
