"""Strict mode: what merely happens to go well fails, and what is right goes well."""

import pytest


def test_who_follows_a_device_address_is_told_what_it_is_and_where_he_did(python, tmp_path):
    report = tmp_path / "report"
    told = python(
        """
        import ctypes, torch
        tensor = torch.ones(1000, device="sim:2")
        torch.sim.synchronize(2)
        ctypes.string_at(tensor.data_ptr(), 4)
        """,
        returncode=-11,
        TORCH_SIM_STRICT="7",
        TORCH_SIM_STRICT_REPORT=str(report),
    )
    begins, access = report.read_text().splitlines()
    assert begins.startswith("sim: device memory is protected in process ")
    assert access.startswith("sim: the host touched memory of sim:2 at 0x")
    assert "sim: the host touched memory of sim:2 at 0x" in told and "which only the device can follow" in told
    assert "TORCH_SIM_STRICT=7" in told and "ctypes" in told


# What takes the signal from the simulator once it works. Who replaces its handler is undone by the device's next operation.
OTHERS = {
    "torch's handler": ("", "torch._C._set_print_stack_traces_on_fatal_signal(True)"),
    "faulthandler": ("", "faulthandler.enable()"),
    "none": ("", "signal.signal(signal.SIGSEGV, signal.SIG_DFL); tensor.add_(1)"),
    "the one of before": ("faulthandler.enable()", "faulthandler.disable(); tensor.add_(1)"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_an_access_is_told_whoever_handles_the_signal_since(python, tmp_path, other):
    report = tmp_path / "report"
    before, since = OTHERS[other]
    python(
        f"""
        import ctypes, faulthandler, signal, torch
        {before}
        tensor = torch.ones(1000, device="sim")
        torch.sim.synchronize()
        {since}
        torch.sim.synchronize()
        ctypes.string_at(tensor.data_ptr(), 4)
        """,
        returncode=-11,
        TORCH_SIM_STRICT="7",
        TORCH_SIM_STRICT_REPORT=str(report),
    )
    assert [line.split(" at ")[0] for line in report.read_text().splitlines()[1:]] == ["sim: the host touched memory of sim:0"]


def test_a_signal_that_was_sent_ends_the_process_and_is_no_access(python, tmp_path):
    report = tmp_path / "report"
    python(
        """
        import os, signal, torch
        torch.ones(10, device="sim").sum().item()
        os.kill(os.getpid(), signal.SIGSEGV)
        """,
        returncode=-11,
        TORCH_SIM_STRICT="7",
        TORCH_SIM_STRICT_REPORT=str(report),
    )
    assert report.read_text().count("\n") == 1


# Two processes, of which the second is not asked what became of it.
TWO = """
import subprocess, sys, torch
torch.ones(10, device="sim").sum().item()
program = 'import ctypes, torch; tensor = torch.ones(10, device="sim"); torch.sim.synchronize()'
subprocess.run([sys.executable, "-c", program + sys.argv[1]], stderr=subprocess.DEVNULL)
"""


@pytest.mark.parametrize(
    "program, arguments, code, closing",
    [
        pytest.param(TWO, "", 0, "2 processes, 0 accesses", marks=pytest.mark.slow),
        (TWO, "; ctypes.string_at(tensor.data_ptr(), 4)", 3, "2 processes, 1 accesses"),
        ("import sys; sys.exit(5)", "", 5, "0 processes, 0 accesses"),
        ("pass", "", 1, "no process worked on a device, so nothing was checked"),
    ],
)
def test_a_run_in_strict_mode_counts_the_accesses_of_all_processes(tmp_path, python, program, arguments, code, closing):
    told = python(
        f"""
        import sys
        from torch_sim import strictly
        sys.exit(strictly.run([sys.executable, "-c", {program!r}, {arguments!r}]))
        """,
        returncode=code,
        TORCH_SIM_STRICT="5",
    )
    assert told.startswith("strict mode, TORCH_SIM_STRICT=5\n") and closing in told


def test_operators_copies_views_and_new_memory_work(python):
    told = python(
        """
        import torch
        torch.manual_seed(0)
        for device in ("sim:0", "sim:1"):
            a, b = torch.randn(300, 300, device=device), torch.randn(300, 300, device=device)
            c = (a @ b).relu().sum(0, keepdim=True)[:, 5:]
            expected = (a.cpu() @ b.cpu()).relu().sum(0, keepdim=True)[:, 5:]
            assert torch.allclose(c.cpu(), expected)
            c.resize_(1000, 1000).fill_(4)
            assert c.sum().item() == 4_000_000
            a[10:20] = b[30:40]
            assert torch.equal(a[10:20].cpu(), b[30:40].cpu())
            model = torch.nn.Linear(300, 7).to(device)
            model(a).square().mean().backward()
            assert model.weight.grad.isfinite().all()
        d = a.to("sim:0")
        assert torch.equal(d.cpu(), a.cpu())
        sparse = torch.eye(9, device="sim").to_sparse()
        assert torch.equal((sparse + sparse).to_dense().cpu(), 2 * torch.eye(9))
        print("right")
        """,
        TORCH_SIM_STRICT="3",
    )
    assert told.strip() == "right"


def test_a_missing_wait_for_a_copy_to_ordinary_memory_shows(python):
    told = python(
        """
        import threading, torch
        tensor, host = torch.ones(100_000, device="sim"), torch.zeros(100_000)
        torch.sim.synchronize()
        opened = threading.Event()
        torch.sim.launch_host_func(torch.sim.current_stream(), opened.wait)
        host.copy_(tensor, non_blocking=True)
        early = host.sum().item()
        opened.set()
        torch.sim.synchronize()
        print(early, host.sum().item())
        """,
        TORCH_SIM_STRICT="3",
    )
    assert told.split() == ["0.0", "100000.0"]
