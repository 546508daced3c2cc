"""Loading, standing aside, forking and ending."""

import os
import re
import sys

import pytest


def test_import_torch_brings_the_device_and_starts_nothing(python):
    output = python(
        """
        import os, sys, torch
        names = [open(f"/proc/self/task/{t}/comm").read() for t in os.listdir("/proc/self/task")]
        fds = [os.readlink(f"/proc/self/fd/{f}") for f in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{f}")]
        print(torch.sim.is_available(), torch.sim.is_initialized(), torch.accelerator.current_accelerator())
        print([n for n in names if n.startswith("sim")], [f for f in fds if "torch_sim" in f and ".so" not in f])
        """
    )
    assert output.splitlines() == ["True False sim", "[] []"]


def test_autoloading_is_quick(python):
    output = python(
        """
        import time, torch
        from torch_sim import autoload
        begin = time.process_time()  # the processor's, so it is the same on a busy machine
        autoload.autoload()
        print(time.process_time() - begin)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert float(output) < 0.1  # some 10 ms measured


@pytest.mark.parametrize("environment", [{"TORCH_SIM": "0"}, pytest.param({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, marks=pytest.mark.slow)])
def test_it_can_be_switched_off(python, environment):
    output = python("import torch; print(hasattr(torch, 'sim'), torch._C._get_privateuse1_backend_name())", **environment)
    assert output.split() == ["False", "privateuseone"]


def test_it_can_be_enabled_by_hand(python):
    output = python(
        """
        import torch, torch_sim
        torch_sim.enable()
        torch_sim.enable()
        print(torch.ones(2, device="sim").sum().item())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert output.strip() == "2.0"


def test_it_stands_aside_for_a_backend_that_has_the_name(python):
    output = python(
        """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        from torch_sim import autoload
        autoload.autoload()
        print(hasattr(torch, "sim"), torch.device("other"))
        import torch_sim
        try:
            torch_sim.enable()
        except RuntimeError as error:
            print(error)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert output.splitlines() == [
        "False other",
        "torch_sim cannot be enabled: this process' PrivateUse1 device is already 'other'",
    ]


@pytest.fixture
def another_backend(tmp_path):
    """A vendor's package, installed in a folder of its own."""
    info = tmp_path / "zz_vendor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zz_vendor\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nvendor = zz_vendor:load\n")
    (tmp_path / "zz_vendor.py").write_text(
        "def load():\n    import torch\n    torch.utils.rename_privateuse1_backend('vendor')\n"
    )
    return str(tmp_path)


def test_it_stands_aside_for_a_backend_that_is_installed(python, another_backend):
    path = os.pathsep.join([another_backend, *sys.path])
    output = python("import torch; print(hasattr(torch, 'sim'), torch.device('vendor'))", PYTHONPATH=path)
    assert output.split() == ["False", "vendor"]


def test_it_comes_all_the_same_when_asked_for(python, another_backend):
    """Then the vendor's own attempt fails, which is torch's to report."""
    (open(another_backend + "/zz_vendor.py", "w")).write("def load():\n    pass\n")
    path = os.pathsep.join([another_backend, *sys.path])
    output = python("import torch; print(torch.ones(1, device='sim').item())", PYTHONPATH=path, TORCH_SIM="1")
    assert output.strip() == "1.0"


def test_an_error_while_loading_is_kept_and_told_on_use(python):
    output = python(
        """
        import torch
        import torch_sim.registration
        def broken(): raise ImportError("libvendor.so is missing")
        torch_sim.registration.register = broken
        from torch_sim import autoload
        autoload.autoload()
        torch.manual_seed(3)
        print(torch.sim.is_available(), torch.sim.device_count())
        try:
            torch.sim.synchronize()
        except RuntimeError as error:
            print(error)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    first, second = output.splitlines()
    assert first == "False 0"
    assert "torch.sim.synchronize is unavailable" in second and "ImportError: libvendor.so is missing" in second


def test_a_torch_that_it_was_not_built_for_is_told_on_use(python):
    output = python(
        """
        import torch
        torch.__version__ = "2.9.1"
        from torch_sim import autoload
        autoload.autoload()
        try:
            torch.sim.synchronize()
        except RuntimeError as error:
            print(error)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert re.search(r"ImportError: torch_sim was built for torch 2\.\d+.* and this is torch 2\.9\.1: build it again", output)


def test_a_nonsensical_device_count_is_told_on_use(python):
    output = python(
        """
        import torch
        print(torch.sim.device_count())
        try:
            torch.sim.init()
        except Exception as error:
            print(error)
        """,
        TORCH_SIM_DEVICES="many",
    )
    assert output.splitlines() == ["0", "TORCH_SIM_DEVICES=many must be a whole number from 1 to 64"]


def test_the_number_of_devices_is_a_setting(python):
    assert python("import torch; print(torch.sim.device_count())", TORCH_SIM_DEVICES="3").strip() == "3"
    assert python("import torch; print(torch.sim.device_count())").strip() == "8"


def test_a_forked_child_is_told_that_it_cannot_use_the_device(python):
    output = python(
        """
        import os, sys, torch
        x = torch.ones(3, device="sim")
        torch.sim._sleep(20)
        child = os.fork()
        if child == 0:
            messages = []
            for use in (lambda: torch.ones(2, device="sim"), lambda: x + 1, lambda: x.cpu(), torch.sim.synchronize,
                        lambda: torch.sim.Stream()):
                try:
                    use()
                    messages.append("no error")
                except RuntimeError as error:
                    messages.append(str(error))
            torch.manual_seed(1)
            del x
            good = torch.sim._is_in_bad_fork() and not torch.sim.is_initialized()
            os._exit(0 if good and all("'spawn' start method" in m for m in messages) else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x + 1).tolist())
        """
    )
    assert output.strip() == "0 [2.0, 2.0, 2.0]"


def test_a_child_forked_before_the_first_use_has_devices_of_its_own(python):
    output = python(
        """
        import os, torch
        torch.manual_seed(2)
        child = os.fork()
        if child == 0:
            torch.sim._sleep(1)
            os._exit(0 if torch.ones(2, device="sim").sum().item() == 2 else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), torch.ones(2, device="sim").sum().item())
        """
    )
    assert output.strip() == "0 2.0"


def test_fork_workers_of_a_loader_work_beside_the_device(python):
    output = python(
        """
        import torch
        x = torch.ones(2, device="sim")
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, pin_memory=True)
        print(sum((batch.to("sim", non_blocking=True).sum() for (batch,) in loader), torch.zeros((), device="sim")).item())
        """
    )
    assert output.strip().splitlines()[-1] == "28.0"


@pytest.mark.parametrize(
    "work",
    [
        pytest.param("torch.sim._sleep(60_000)", marks=pytest.mark.slow),
        pytest.param("torch.sim._sleep(50); torch.ones(1 << 20, device='sim'); [torch.sim._sleep(1) for _ in range(50)]", marks=pytest.mark.slow),
        pytest.param("torch.sim.launch_host_func(torch.sim.current_stream(), lambda: time.sleep(60))", marks=pytest.mark.slow),
        "torch.sim.launch_host_func(torch.sim.current_stream(), threading.Event().wait)",
        pytest.param("[torch.sim.launch_host_func(torch.sim.current_stream(), lambda: time.sleep(0.001)) for _ in range(5000)]", marks=pytest.mark.slow),
        "e = torch.sim.Event(); torch.sim._sleep(60_000); e.record(); torch.sim.Stream().wait_event(e)",
        pytest.param("x = torch.empty(1 << 22, pin_memory=True); torch.sim._sleep(300); x.copy_(torch.ones(1 << 22, device='sim'), non_blocking=True)", marks=pytest.mark.slow),
    ],
    ids=["blocked", "queued", "sleeping function", "waiting function", "many functions", "waiting stream", "copy"],
)
def test_a_process_ends_with_work_pending(python, work):
    output = python(f"import threading, time, torch\n{work}\nprint('end')", timeout=40)
    assert output.strip() == "end"


def test_tensors_in_globals_outlive_the_interpreter(python):
    python(
        """
        import torch
        keep = [torch.ones(1000, device="sim", requires_grad=True), torch.ones(5, pin_memory=True), torch.sim.Stream()]
        keep.append((keep[0] * 2).sum())
        keep[-1].backward()
        keep.append(keep)
        """
    )
