"""Streams are asynchronous and in order; events are versioned and timed."""

import threading
import time

import pytest
import torch

from conftest import not_strict


def test_queued_work_does_not_hold_up_the_host(gate):
    gate.close()
    x = torch.empty(1_000_000, device="sim")
    x.fill_(5)
    event = torch.sim.Event()
    event.record()
    assert not event.query() and not torch.sim.current_stream().query()
    gate.open()
    assert x.sum().item() == 5_000_000
    assert event.query() and torch.sim.current_stream().query()


def test_a_delay_is_device_work():
    begin = time.perf_counter()
    torch.sim._sleep(100)
    x = torch.ones(3, device="sim")
    assert not torch.sim.current_stream().query()
    assert x.tolist() == [1, 1, 1]
    assert time.perf_counter() - begin >= 0.1


def test_views_do_not_wait(gate):
    x = torch.zeros(4, 6, device="sim")
    gate.close()
    views = [x.view(24), x.t(), x[1:3, ::2], x.unfold(1, 2, 2), x.reshape(2, 12), x.as_strided((2, 2), (3, 1)), x.detach()]
    views += [x.unsqueeze(0).expand(3, 4, 6), torch.view_as_complex(x.view(4, 3, 2)), x.view(torch.int32), *x.chunk(2)]
    assert not torch.sim.current_stream().query()
    assert all(view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for view in views)


def test_streams_run_side_by_side(gate):
    gate.close(torch.sim.Stream())
    for _ in range(4):
        other = torch.sim.Stream()
        with torch.sim.stream(other):
            torch.sim._sleep(1)
        other.synchronize()


def test_an_operator_waits_for_its_own_stream_only(gate):
    gate.close(torch.sim.Stream())
    assert (torch.ones(3, device="sim") + 1).tolist() == [2, 2, 2]


def test_a_stream_waits_for_another_without_the_host(gate):
    side = torch.sim.Stream()
    x = torch.zeros(50_000, device="sim")
    side.wait_stream(torch.sim.current_stream())
    with torch.sim.stream(side):
        gate.close()
        x.fill_(4)
    torch.sim.current_stream().wait_stream(side)
    pinned = torch.empty(50_000, pin_memory=True)
    pinned.copy_(x, non_blocking=True)
    assert not torch.sim.current_stream().query()
    gate.open()
    torch.sim.current_stream().synchronize()
    assert pinned.min() == 4


def test_host_functions_run_in_order():
    order = []
    for number in range(20):
        torch.sim.launch_host_func(torch.sim.current_stream(), lambda number=number: order.append(number))
    torch.sim.synchronize()
    assert order == list(range(20))


def test_later_work_waits_for_a_host_function(gate):
    x = torch.zeros(3, device="sim")
    gate.close()
    x.fill_(1)
    done = torch.sim.current_stream().record_event()
    assert not done.query()
    gate.open()
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


def test_recording_again_does_not_touch_an_earlier_wait(gate):
    a, b = torch.sim.Stream(), torch.sim.Stream()
    event = torch.sim.Event()
    event.record(a)  # passes at once
    b.wait_event(event)
    gate.close(a)
    event.record(a)
    b.synchronize()
    assert not event.query()
    gate.open()
    event.synchronize()
    assert event.query()


def test_a_wait_is_for_the_recording_of_its_time(gate, second_gate):
    a, b = torch.sim.Stream(), torch.sim.Stream()
    event = torch.sim.Event()
    gate.close(a)
    event.record(a)
    b.wait_event(event)
    second_gate.close(a)
    event.record(a)
    assert not b.query()
    gate.open()
    b.synchronize()
    assert not event.query()


def test_events_measure_device_time():
    begin, end = torch.sim.Event(enable_timing=True), torch.sim.Event(enable_timing=True)
    begin.record()
    torch.sim._sleep(50)
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) >= 50
    assert end.elapsed_time(begin) == -begin.elapsed_time(end)
    with pytest.raises(ValueError, match="enable_timing"):
        torch.sim.Event().elapsed_time(torch.sim.Event())


def test_an_event_may_go_while_a_stream_waits_for_it(gate):
    a, b = torch.sim.Stream(), torch.sim.Stream()
    gate.close(a)
    event = a.record_event()
    b.wait_event(event)
    del event
    assert not b.query()
    gate.open()
    b.synchronize()
    a.synchronize()


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


@not_strict
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
