"""Streams are asynchronous and in order; events are versioned and timed."""

import threading
import time

import pytest
import torch


def elapsed_ms(begin):
    return (time.perf_counter() - begin) * 1e3


def test_queued_work_does_not_hold_up_the_host():
    begin = time.perf_counter()
    torch.sim._sleep(300)
    x = torch.empty(1_000_000, device="sim")
    x.fill_(5)
    event = torch.sim.Event()
    event.record()
    assert elapsed_ms(begin) < 200
    assert not event.query() and not torch.sim.current_stream().query()
    assert x.sum().item() == 5_000_000
    assert elapsed_ms(begin) >= 300
    assert event.query() and torch.sim.current_stream().query()


def test_views_do_not_wait():
    x = torch.zeros(4, 6, device="sim")
    torch.sim._sleep(300)
    begin = time.perf_counter()
    views = [x.view(24), x.t(), x[1:3, ::2], x.unfold(1, 2, 2), x.reshape(2, 12), x.as_strided((2, 2), (3, 1)), x.detach()]
    views += [x.unsqueeze(0).expand(3, 4, 6), torch.view_as_complex(x.view(4, 3, 2)), x.view(torch.int32), *x.chunk(2)]
    assert elapsed_ms(begin) < 200
    assert all(view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for view in views)


def test_streams_run_side_by_side():
    streams = [torch.sim.Stream() for _ in range(4)]
    begin = time.perf_counter()
    for stream in streams:
        with torch.sim.stream(stream):
            torch.sim._sleep(150)
    torch.sim.synchronize()
    assert 150 <= elapsed_ms(begin) < 400


def test_an_operator_waits_for_its_own_stream_only():
    side = torch.sim.Stream()
    with torch.sim.stream(side):
        torch.sim._sleep(300)
    begin = time.perf_counter()
    assert (torch.ones(3, device="sim") + 1).tolist() == [2, 2, 2]
    assert elapsed_ms(begin) < 200


def test_a_stream_waits_for_another_without_the_host():
    side = torch.sim.Stream()
    x = torch.zeros(50_000, device="sim")
    begin = time.perf_counter()
    with torch.sim.stream(side):
        torch.sim._sleep(200)
        x.fill_(4)
    torch.sim.current_stream().wait_stream(side)
    pinned = torch.empty(50_000, pin_memory=True)
    pinned.copy_(x, non_blocking=True)
    assert elapsed_ms(begin) < 150
    torch.sim.current_stream().synchronize()
    assert pinned.min() == 4


def test_host_functions_run_in_order():
    order = []
    for number in range(20):
        torch.sim.launch_host_func(torch.sim.current_stream(), lambda number=number: order.append(number))
    torch.sim.synchronize()
    assert order == list(range(20))


def test_later_work_waits_for_a_host_function():
    gate = threading.Event()
    x = torch.zeros(3, device="sim")
    torch.sim.launch_host_func(torch.sim.current_stream(), gate.wait)
    x.fill_(1)
    done = torch.sim.current_stream().record_event()
    assert not done.query()
    gate.set()
    done.synchronize()
    assert x.tolist() == [1, 1, 1]


def test_waiting_for_a_python_function_does_not_hold_the_interpreter():
    """item() waits for a function that needs the interpreter, on every path that may wait."""
    for wait in (lambda x: x.item(), lambda x: x.cpu(), lambda x: torch.sim.synchronize(), lambda x: x + 1):
        x = torch.ones((), device="sim")
        torch.sim.launch_host_func(torch.sim.current_stream(), lambda: time.sleep(0.01))
        wait(x)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_in_a_host_function_does_not_stop_the_stream():
    torch.sim.launch_host_func(torch.sim.current_stream(), lambda: 1 / 0)
    assert (torch.ones(2, device="sim") * 3).tolist() == [3, 3]


def test_recording_again_does_not_touch_an_earlier_wait():
    a, b = torch.sim.Stream(), torch.sim.Stream()
    event = torch.sim.Event()
    event.record(a)  # passes at once
    b.wait_event(event)
    with torch.sim.stream(a):
        torch.sim._sleep(300)
    event.record(a)
    begin = time.perf_counter()
    b.synchronize()
    assert elapsed_ms(begin) < 200
    assert not event.query()
    event.synchronize()
    assert elapsed_ms(begin) >= 200


def test_a_wait_is_for_the_recording_of_its_time():
    a, b = torch.sim.Stream(), torch.sim.Stream()
    event = torch.sim.Event()
    with torch.sim.stream(a):
        torch.sim._sleep(100)
    event.record(a)
    b.wait_event(event)
    with torch.sim.stream(a):
        torch.sim._sleep(400)
    event.record(a)
    begin = time.perf_counter()
    b.synchronize()
    assert 50 < elapsed_ms(begin) < 300


def test_events_measure_device_time():
    begin, end = torch.sim.Event(enable_timing=True), torch.sim.Event(enable_timing=True)
    begin.record()
    torch.sim._sleep(50)
    end.record()
    end.synchronize()
    assert 50 <= begin.elapsed_time(end) < 150
    with pytest.raises(ValueError, match="enable_timing"):
        torch.sim.Event().elapsed_time(torch.sim.Event())


def test_an_event_may_go_while_a_stream_waits_for_it():
    a, b = torch.sim.Stream(), torch.sim.Stream()
    with torch.sim.stream(a):
        torch.sim._sleep(50)
    event = a.record_event()
    b.wait_event(event)
    del event
    assert not b.query()
    b.synchronize()
    a.synchronize()
    assert a.query() and b.query()


def test_an_unrecorded_event_is_passed():
    event = torch.sim.Event()
    assert event.query()
    event.synchronize()
    torch.sim.current_stream().wait_event(event)


def test_streams_are_compared_by_what_they_are():
    assert torch.sim.current_stream() == torch.sim.default_stream()
    side = torch.sim.Stream()
    with torch.sim.stream(side):
        assert torch.sim.current_stream() == side
        assert torch.accelerator.current_stream() == side
    assert torch.sim.current_stream() == torch.sim.default_stream()
    with side:
        assert torch.sim.current_stream() == side
    assert side.native_handle != torch.sim.default_stream().native_handle
    assert torch.sim.Stream(priority=-1).priority == -1


def test_the_current_stream_is_the_threads_own():
    side = torch.sim.Stream()
    seen = []
    with torch.sim.stream(side):
        thread = threading.Thread(target=lambda: seen.append(torch.sim.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.sim.default_stream()]


def test_workers_start_when_used_and_leave_when_idle(python):
    output = python(
        """
        import os, time, torch
        def workers():
            names = [open(f"/proc/self/task/{t}/comm").read().strip() for t in os.listdir("/proc/self/task")]
            return sum(name.startswith("sim") for name in names)
        stream = torch.sim.Stream()
        x = (torch.ones(3, device="sim") + 1).cpu()
        print(workers())
        torch.sim._sleep(1)
        torch.sim.synchronize()
        print(workers())
        deadline = time.time() + 30
        while workers() and time.time() < deadline:
            time.sleep(0.1)
        torch.sim._sleep(1)
        torch.sim.synchronize()
        print(workers())
        """
    )
    assert output.split() == ["0", "1", "1"]


def test_two_threads_on_one_stream_keep_its_order():
    x = torch.zeros(1000, device="sim")

    def add():
        for _ in range(200):
            x.add_(1)

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.unique().tolist() == [400]
