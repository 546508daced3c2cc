"""torch's profiler times operators by the streams they run on."""

import torch


def test_the_device_s_own_time_is_measured():
    with torch.autograd.profiler.profile(use_device="sim", use_kineto=False) as profile:
        with torch.autograd.profiler.record_function("a delay"):
            torch.sim._sleep(20)
        torch.ones(3, device="sim").add_(1)
    times = {event.name: event for event in profile.function_events}
    assert times["a delay"].device_time >= 20_000 > times["a delay"].cpu_time
    assert times["aten::add_"].device_time < 20_000


def test_operators_of_the_device_are_in_a_trace(tmp_path):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as trace:
        torch.ones(3, device="sim").add_(1)
    trace.export_chrome_trace(str(tmp_path / "trace.json"))
    assert '"aten::add_"' in (tmp_path / "trace.json").read_text()
