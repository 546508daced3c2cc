"""Device plugins: how they are found, the smallest one, and every fault that one can have."""

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import hccl_like
import test_collectives
from hccl_like import _accelerator, _device_plugin, _plugins, _registration
from plugins import ROOT, build
from ranks import RankFailed, make_store, run_ranks

MINIMAL = ROOT / "examples" / "minimal_plugin" / "minimal_plugin.c"


@pytest.fixture
def minimal(tmp_path, sim):
    package = Path(importlib.util.find_spec("torch_sim").origin).parent
    flags = [f"-I{package}/include", str(package / "libtorch_sim.so")]
    return build(MINIMAL, tmp_path / "libminimal.so", "-Wall", "-Wextra", "-Werror", *flags)


def run(case, size, environment, **how):
    """On ranks that look for plugins anew, with this environment."""
    return run_ranks(grouped, size, case, environment=environment, group=False, **how)


def grouped(rank, size, listener, case):
    _plugins.found.cache_clear()
    dist.init_process_group("hccl-like", store=make_store(rank, listener), rank=rank, world_size=size)
    result = case(rank, size)
    with contextlib.suppress(RuntimeError):  # it may have failed
        dist.destroy_process_group()
    return result


def with_fault(fault, library, rank=1):
    """The environment in which the plugin of one rank has a fault."""
    original = _plugins.found()["sim"]
    return lambda r: {"SOUND_PLUGIN": original, "FAULT": fault if r == rank else "", "HCCL_LIKE_DEVICE_PLUGINS": f"sim={library}"}


def test_every_collective_at_full_speed_with_the_minimal_plugin(minimal):
    how = run(every_collective, 2, {"HCCL_LIKE_DEVICE_PLUGINS": f"sim={minimal}"}, timeout=120)
    assert how == [f"{minimal}: memory mapped by its plugin, calls in stream order"] * 2


def every_collective(rank, size):
    test_collectives.every_collective(rank, size, "sim")
    extension = hccl_like._extension.load()
    return f"{extension.device_plugins()['sim']}: {extension.describe_device(torch.device('sim', 0))}"


def test_a_device_is_served_without_the_plugin_that_the_setting_takes_away(sim):
    (how,) = run(one_sum, 1, {"HCCL_LIKE_DEVICE_PLUGINS": "sim=none"})
    assert "mapped" not in how


def one_sum(rank, size):
    tensor = torch.full((5,), rank + 1.0, device="sim")
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size * (size + 1) / 2] * 5
    return hccl_like._extension.load().describe_device(torch.device("sim", 0))


# What is wrong, by rank: each is alone in a group of its own.
AT_LOAD = {
    "null table": r"{path} does not speak version 1 of the plugin interface",
    "size": r"\({path}\) says that the table has 3 bytes",
    "no name": r"\({path}\) does not say its name",
    "null entry": r"the plugin 'sim' \({path}\) lacks the mandatory entry copy_h2d",
    "half a pair": r"the plugin 'sim' \({path}\) has map but not unmap",
    "init": r"the plugin 'sim' \({path}\) cannot start, says its init: the cable was pulled",
    "another name": r"registered for device 'sim', {path}, is one for 'other'",
    "no symbol": r"libm\S* is not a device plugin: it does not export hcd_get_api",
    "no library": r"the plugin for device 'sim' cannot be used: FileNotFoundError: \S* names /nowhere/plugin.so, which does not",
    "no shared object": r"cannot load the device plugin {source}: {source}: invalid ELF header",
}  # fmt: skip


def test_a_plugin_that_cannot_be_loaded_is_named_and_the_cpu_goes_on(sim, faulty):
    paths = {"no symbol": library_of_libm(), "no library": "/nowhere/plugin.so", "no shared object": __file__}

    original = _plugins.found()["sim"]

    def environment(rank):
        fault = list(AT_LOAD)[rank]
        return {"SOUND_PLUGIN": original, "FAULT": fault, "HCCL_LIKE_DEVICE_PLUGINS": f"sim={paths.get(fault, faulty)}"}

    said = run_ranks(is_refused, len(AT_LOAD), environment=environment, group=False)
    for (fault, wanted), text in zip(AT_LOAD.items(), said, strict=True):
        wanted = wanted.format(path=re.escape(faulty), source=re.escape(__file__))
        assert re.search(wanted, text), (fault, text)


@pytest.mark.slow  # it is given a minute
def test_a_plugin_that_hangs_at_load_is_named_and_not_waited_for_twice(sim, faulty):
    entries = ["hcd_get_api", "init"]
    original = _plugins.found()["sim"]

    def environment(rank):
        return {"SOUND_PLUGIN": original, "FAULT": f"hang in {entries[rank]}", "HCCL_LIKE_DEVICE_PLUGINS": f"sim={faulty}"}

    said = run_ranks(is_refused, 2, environment=environment, group=False, timeout=150)
    for entry, text in zip(entries, said, strict=True):
        assert f"the device plugin {faulty} hangs: it has been in {entry} for 60 seconds" in text, text


def library_of_libm():
    return next(line.split()[-1] for line in open("/proc/self/maps") if re.search(r"/libm[.-]", line))


def is_refused(rank, size, listener):
    _plugins.found.cache_clear()
    dist.init_process_group("hccl-like", store=dist.HashStore(), rank=0, world_size=1)
    with pytest.raises(RuntimeError) as caught:
        dist.all_reduce(torch.ones(3, device="sim"))
    with pytest.raises(RuntimeError) as again:
        dist.all_reduce(torch.ones(3, device="sim"))
    assert str(again.value) == str(caught.value)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return str(caught.value)


@pytest.mark.parametrize("entry", ["map", "host_func"])
def test_an_entry_that_fails_is_named_on_every_rank(sim, faulty, entry):
    said = run(until_it_fails, 2, with_fault(f"{entry}:3", faulty))
    assert f"({entry} of its plugin): the cable was pulled" in said[1]
    assert entry in said[0] and "rank 1" in said[0], said[0]


def until_it_fails(rank, size):
    with pytest.raises(RuntimeError) as caught:
        for _ in range(5):
            tensor = torch.ones(1000, device="sim")
            dist.all_reduce(tensor)
            torch.sim.synchronize()
            dist.barrier()
    return str(caught.value)


CRASHES = [
    ("crash in a constructor", "a constructor"),
    ("crash in hcd_get_api", "hcd_get_api"),
    ("abort in init", "init"),
]


@pytest.mark.parametrize(("fault", "said"), CRASHES)
def test_a_crash_at_load_names_the_plugin_and_ends_the_others_calls(sim, faulty, capfd, fault, said):
    with pytest.raises(RankFailed) as failure:
        run(hears_of_a_death, 2, with_fault(fault, faulty))
    assert f"the device plugin {faulty} crashed this process in {said}; ask its vendor" in capfd.readouterr().err
    assert "--- rank 0" not in str(failure.value)


# Loading the plugin begins the device, which installs a handler of its own meanwhile.
LOADS_THEN_TOUCHES = """
import ctypes, torch
from hccl_like import _extension, _plugins
extension = _extension.load()
_plugins.register(extension)
extension.describe_device(torch.device("sim", 0))
tensor = torch.ones(9, device="sim")
torch.sim.synchronize()
ctypes.string_at(tensor.data_ptr(), 4)
"""


def test_a_handler_of_faults_that_a_plugin_installs_outlives_its_loading(sim, tmp_path):
    report = tmp_path / "report"
    environment = {"TORCH_SIM_STRICT": "5", "TORCH_SIM_STRICT_REPORT": str(report)}
    done = subprocess.run(
        [sys.executable, "-c", LOADS_THEN_TOUCHES], env=os.environ | environment, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert report.read_text().count("the host touched memory of sim:0") == 1


def hears_of_a_death(rank, size):
    dist.barrier()
    with pytest.raises(RuntimeError, match="rank 1"):
        dist.all_reduce(torch.ones(3, device="sim"))
        torch.sim.synchronize()
        dist.barrier()


class Entry:
    """An entry point that was never installed."""

    group = _plugins.GROUP

    def __init__(self, name, value, loaded):
        self.name, self.value, self._loaded = name, value, loaded
        self.dist = None

    def load(self):
        return self._loaded


@pytest.fixture
def published(monkeypatch, tmp_path):
    """Lets a test say what packages publish."""
    monkeypatch.setattr(_plugins, "BUNDLED", tmp_path)
    entries = []

    monkeypatch.setattr(_plugins, "_installed", lambda: entries)
    caches = (_plugins.packaged, _plugins.found)
    for cache in caches:
        cache.cache_clear()
    yield entries
    for cache in caches:
        cache.cache_clear()


class Named(hccl_like.DevicePlugin):
    def library_path(self):
        return Path(__file__)

    def properties(self):
        return {"version": "7"}

    def device_index(self, local_rank, local_world_size, device_count):
        return (local_rank * 2 + 1) % device_count


def test_a_function_a_class_and_an_object_are_taken(published):
    published += [Entry("f", "m:f", lambda: __file__), Entry("c", "m:C", Named), Entry("o", "m:o", Named())]
    assert _plugins.found() == dict.fromkeys("fco", __file__)
    assert [_plugins.properties(name) for name in "fco"] == [{}, {"version": "7"}, {"version": "7"}]


def test_two_plugins_for_one_device_are_refused_by_name(published):
    published += [Entry("npu", "a:plugin", Named), Entry("npu", "b:other", Named), Entry("cpu2", "c:plugin", Named)]
    assert str(_plugins.found()["npu"]).startswith("there are two for 'npu', a:plugin (of a package) and b:other (of a package)")
    assert _plugins.found()["cpu2"] == __file__


def test_the_setting_goes_before_packages(published, monkeypatch):
    published += [Entry("a", "m:C", Named), Entry("b", "m:C", Named)]
    monkeypatch.setenv("HCCL_LIKE_DEVICE_PLUGINS", "a=none,c=/bin/sh")
    assert _plugins.found() == {"b": __file__, "c": "/bin/sh"}


def test_what_a_package_raises_is_kept_for_those_who_use_the_device(published):
    published += [Entry("a", "m:C", lambda: 1 / 0), Entry("b", "m:C", hccl_like.DevicePlugin)]
    assert hccl_like.plugins()["a"] == "unusable: ZeroDivisionError: division by zero"
    assert "DevicePlugin must say where its library is: define library_path()" in hccl_like.plugins()["b"]


class Extension:
    def __init__(self):
        self.told = []

    def register_device_plugin(self, name, path):
        self.told.append((name, path))

    def register_broken_device_plugin(self, name, reason):
        self.told.append((name, reason))


def test_the_plugin_of_this_process_device_is_initialised_once(published, sim, monkeypatch):
    started = []

    class Starts(Named):
        def initialize(self):
            started.append(self)
            raise OSError("no licence")

    published += [Entry("sim", "m:C", Starts), Entry("elsewhere", "m:C", Starts)]
    monkeypatch.setattr(_plugins, "_initialized", {})
    extension = Extension()
    _plugins.register(extension)
    _plugins.register(extension)
    assert len(started) == 1
    failed = ("sim", "its initialize() raised OSError: no licence")
    assert extension.told == [("sim", __file__), ("elsewhere", __file__), failed, failed]


PIN = '''
import os, sys
import hccl_like
class Pin(hccl_like.DevicePlugin):
    def library_path(self): return "/nowhere"
    def initialize(self):
        print("pinned to", self.local_rank(), "of", self.local_world_size(), "torch.nn" in sys.modules, flush=True)
        if os.environ.get("BREAK"): raise OSError("no licence")
'''


@pytest.mark.parametrize("environment, said", [
    ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, "pinned to 1 of 2 True\nimported\n"),
    ({"SLURM_LOCALID": "3", "SLURM_NTASKS_PER_NODE": "4"}, "pinned to 3 of 4 True\nimported\n"),
    ({"LOCAL_RANK": "0", "BREAK": "1"}, "pinned to 0 of 1 True\nimported\n"),
    ({}, "imported\n"),
], ids=["torchrun", "srun", "its exception keeps torch from nothing", "no launcher"])
def test_a_rank_initialises_plugins_while_torch_is_imported(tmp_path, environment, said):
    (tmp_path / "pins.py").write_text(PIN)
    metadata = tmp_path / "pins-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: pins\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[hccl_like.devices]\npins = pins:Pin\n")
    clean = {name: value for name, value in os.environ.items() if name not in
             (*_device_plugin._LOCAL_RANK, *_device_plugin._LOCAL_WORLD_SIZE)}  # fmt: skip
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run([sys.executable, "-c", "import torch; print('imported', flush=True)"], capture_output=True, text=True,
                          env={**clean, **environment, "PYTHONPATH": path}, timeout=120)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_a_rank_takes_the_device_that_its_plugin_says(published, sim, monkeypatch):
    for name in _device_plugin._LOCAL_RANK:
        monkeypatch.delenv(name, raising=False)
    count = torch.sim.device_count()
    assert hccl_like.local_device() == torch.device("sim", 0)
    assert hccl_like.local_device("cpu") == torch.device("cpu")
    monkeypatch.setenv("SLURM_LOCALID", str(count + 2))
    assert hccl_like.local_device("sim") == torch.device("sim", 2)
    published.append(Entry("sim", "m:C", Named))
    _plugins.packaged.cache_clear()
    monkeypatch.setenv("LOCAL_RANK", "2")  # torchrun's word goes before the scheduler's
    assert hccl_like.local_device() == torch.device("sim", 5)


def test_a_build_of_torch_for_cuda_has_no_local_device_on_a_host_without_a_gpu(monkeypatch):
    monkeypatch.setattr(_registration, "accelerator_name", lambda: None)
    monkeypatch.setattr(_registration, "served_accelerator", lambda: "cuda")
    monkeypatch.setattr(_accelerator, "is_available", lambda: False)
    assert hccl_like.local_device() == torch.device("cpu")
