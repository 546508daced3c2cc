"""What `import torch` does with an installed hccl-like: it becomes known, costs little, and can break nothing."""

import copy
import importlib.metadata
import json
import os
import pickle
import statistics
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import fresh
import hccl_like
from conftest import slow_after_first
from ranks import run_ranks

# The accelerator's package: it names PrivateUse1, as a vendor's does.
VENDOR = """
import torch

def autoload():
    torch.utils.rename_privateuse1_backend("npux")
"""
# The same, with a backend of its own.
VENDOR_WITH_BACKEND = VENDOR + """
    torch.distributed.Backend.register_backend("vccl", lambda *_: None, devices=["npux"])
"""
# What torch makes of an installed hccl-like and this vendor.
DEFAULTS = """
from torch.distributed import Backend
from torch.distributed.distributed_c10d import BackendConfig
print(torch._C._get_privateuse1_backend_name())
print(list(Backend.backend_capability["hccl-like"]))
print(Backend.default_device_backend_map["npux"], Backend.default_device_backend_map.get("npux"))
print(BackendConfig(Backend("hccl-like")).get_device_backend_map())
print(dict(Backend.default_device_backend_map.items())["npux"])
print(sorted(set(Backend.default_device_backend_map.items()) & {("cpu", "gloo"), ("cuda", "nccl")}))
"""


def python(code, *, path=None, own=False, **environment):
    """The output of a program run by a fresh interpreter, or its `own`, which finds what lies in `path` before anything else."""
    search = [str(path)] if path else []
    search += filter(None, [os.environ.get("PYTHONPATH")])
    done = fresh.run(
        ["-c", textwrap.dedent(code)],
        env={**os.environ, "TORCH_SIM": "0", **environment, "PYTHONPATH": os.pathsep.join(search)},
        own=own,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(folder: Path, module: str, source: str) -> Path:
    """A folder that looks as if pip had installed a package with an entry point for torch."""
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / f"{module}.py").write_text(source)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[torch.backends]\n{module} = {module}:autoload\n")
    return folder


def test_it_takes_less_than_50_ms_and_starts_nothing():
    # An interpreter that has imported torch already: the difference of two imports of seconds would drown in noise.
    program = """
        import os, sys, time
        import torch
        threads, modules, descriptors = len(os.listdir("/proc/self/task")), set(sys.modules), os.listdir("/proc/self/fd")
        begin = time.process_time()  # of this process, whatever else the machine does
        import hccl_like
        hccl_like._autoload()
        spent = time.process_time() - begin
        assert hccl_like._autoload_error is None
        assert len(os.listdir("/proc/self/task")) == threads
        assert os.listdir("/proc/self/fd") == descriptors
        assert {m for m in set(sys.modules) - modules if not m.startswith("hccl_like")} == set()
        assert "hccl_like._C" not in sys.modules
        print(spent)
    """
    spent = [float(python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0")) for _ in range(3)]
    assert statistics.median(spent) < 0.050


@pytest.mark.parametrize("group, name", [("torch.backends", "hccl_like"), ("torch.distributed.backends", "hccl-like")])
def test_both_ways_in_which_torch_looks_for_backends_lead_to_it(group, name):
    tomllib = pytest.importorskip("tomllib")  # Python 3.11 and newer have it
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    published = project["entry-points"][group]
    assert list(published) == [name]
    assert importlib.metadata.EntryPoint(name, published[name], group).load() is hccl_like._autoload


def test_torch_alone_is_imported_and_the_backend_works():
    out = python("""
        import torch
        torch.distributed.init_process_group("hccl-like", store=torch.distributed.HashStore(), rank=0, world_size=1)
        tensor = torch.tensor([1.5, -2.0])
        torch.distributed.all_reduce(tensor)
        print(tensor.tolist(), torch.distributed.get_backend())
        torch.distributed.destroy_process_group()
    """, own=True)
    assert out == "[1.5, -2.0] hccl-like\n"


def test_an_error_inside_does_not_break_import_torch_and_is_told_when_a_group_is_made():
    out = python("""
        import sys
        sys.modules["hccl_like._registration"] = None  # importing it raises ImportError
        import torch, hccl_like
        print(torch.ones(2).sum().item())
        print(type(hccl_like._autoload_error).__name__, hccl_like.is_available())
        try:
            torch.distributed.init_process_group("hccl-like", store=torch.distributed.HashStore(), rank=0, world_size=1)
        except RuntimeError as error:
            print(error)
    """, own=True)
    works, kept, told = out.splitlines()
    assert works == "2.0"
    assert kept == "ModuleNotFoundError False"
    assert told.startswith("hccl-like could not be loaded when torch was imported (ModuleNotFoundError: import of hccl_like")


def test_torch_without_the_classes_we_need_does_not_break_import_torch(tmp_path):
    # A vendor that comes first has removed what we register with.
    install(tmp_path, "aa_vandal", "def autoload():\n    import torch\n    del torch.distributed.Backend\n")
    out = python("import torch, hccl_like; print(repr(hccl_like._autoload_error))", path=tmp_path)
    assert out.startswith("AttributeError(")


# PyTorch 2.14 and newer ask this package for its backend when a group names it, whatever the variable says.
ASKED = hasattr(dist.Backend, "_ensure_backend_registered")


@pytest.mark.skipif(not ASKED, reason="this torch looks for no backend when a group is made")
def test_it_is_found_when_a_group_names_it_although_it_is_switched_off():
    out = python("""
        import torch
        torch.distributed.init_process_group("hccl-like", store=torch.distributed.HashStore(), rank=0, world_size=1)
        print(torch.distributed.get_backend())
    """, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert out.split() == ["hccl-like"]


@pytest.mark.skipif(ASKED, reason="this torch finds it when a group is made")
def test_it_can_be_switched_off_and_be_registered_by_hand():
    out = python("""
        import torch
        try:
            torch.distributed.init_process_group("hccl-like", store=torch.distributed.HashStore(), rank=0, world_size=1)
        except (AssertionError, ValueError) as error:
            print(error)
        import hccl_like
        try:
            torch.distributed.init_process_group("hccl-like", store=torch.distributed.HashStore(), rank=0, world_size=1)
        except RuntimeError as error:
            print(error)
        hccl_like.register()
        hccl_like.register()
        torch.distributed.init_process_group("hccl-like", store=torch.distributed.HashStore(), rank=0, world_size=1)
        print(torch.distributed.is_backend_available("hccl-like"), torch.distributed.Backend.backend_list.count("hccl-like"))
    """, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    refused, told, registered = out.splitlines()
    assert refused == "Unknown backend type hccl-like"
    assert told.startswith("the backend hccl-like is not registered, because TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from")
    assert told.endswith("call hccl_like.register() before init_process_group")
    assert registered == "True 1"


@pytest.mark.parametrize("order", slow_after_first(["before", "after"]))
def test_the_accelerator_is_served_whether_it_is_named_before_or_after_us(tmp_path, order):
    install(tmp_path, "some_vendor", VENDOR)
    out = run_with_vendor(tmp_path, order)
    assert out == [
        "npux",
        "['cpu', 'npux']",
        "hccl-like hccl-like",
        "{'cpu': 'hccl-like', 'npux': 'hccl-like'}",
        "hccl-like",
        "[('cpu', 'gloo'), ('cuda', 'nccl')]",
    ]


@pytest.mark.parametrize("order", slow_after_first(["before", "after"]))
def test_a_vendors_own_backend_stays_the_default_of_its_device(tmp_path, order):
    install(tmp_path, "some_vendor", VENDOR_WITH_BACKEND)
    out = run_with_vendor(tmp_path, order)
    assert out == [
        "npux",
        "['cpu', 'npux']",
        "vccl vccl",
        "{'cpu': 'hccl-like', 'npux': 'hccl-like'}",
        "vccl",
        "[('cpu', 'gloo'), ('cuda', 'nccl')]",
    ]


def run_with_vendor(folder, order):
    """torch calls entry points in the order in which sys.path has their packages."""
    if order == "before":
        return python("import torch\n" + DEFAULTS, path=folder).splitlines()
    return python(f"import sys\nsys.path.append({str(folder)!r})\nimport torch\n" + DEFAULTS, own=True).splitlines()


# What follows makes groups of one rank, each in a process of its own: this one must stay as `import torch` left it.


def group(backend, **options):
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, **options)


def alone(function, *arguments):
    """The result of `function(*arguments)` in a process forked from this one."""
    return run_ranks(lambda rank, size, listener: function(*arguments), 1, group=False)[0]


def names():
    group("hccl_like")
    values = [None]
    dist.all_gather_object(values, {"rank": 0})
    return dist.get_backend(), values


def test_the_underscore_is_an_alias():
    assert dist.Backend.HCCL_LIKE == dist.Backend("hccl_like") == "hccl-like"
    assert alone(names) == ("hccl-like", [{"rank": 0}])


def test_the_map_of_default_backends_is_a_mapping_with_the_accelerator(sim):
    found = dist.Backend.default_device_backend_map
    plain = {**{device: found[device] for device in dict.keys(found)}, "sim": "hccl-like"}
    assert plain["cpu"] == "gloo" and "sim" not in dict.keys(found)
    assert "sim" in found and "npu" not in found and None not in found
    assert found["sim"] == found.get("sim") == "hccl-like" and found.get("npu", 3) == 3
    assert list(found) == list(found.keys()) == list(plain) and len(found) == len(plain)
    assert list(reversed(found)) == list(reversed(plain))
    assert list(found.values()) == list(plain.values()) and list(found.items()) == list(plain.items())
    assert found == plain and found != {} and repr(found) == repr(plain)
    assert dict(found) == {**found} == found | {} == {} | found == plain
    for made in found.copy(), copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found)):
        assert type(made) is dict and made == plain
    assert json.loads(json.dumps(found)) == plain
    with pytest.raises(KeyError):
        found["npu"]


def test_cpu_keeps_the_default_backend_that_it_had():
    assert dist.Backend.default_device_backend_map["cpu"] == "gloo"


def with_options_of_gloo():
    with pytest.raises(TypeError) as raised:
        group("hccl-like", pg_options=dist.ProcessGroupGloo._Options())
    return str(raised.value)


def test_options_of_another_backend_are_refused():
    assert "the backend hccl-like takes hccl_like.Options()" in alone(with_options_of_gloo)


def with_two_out_of_tree_backends(backend):
    import torch.testing._internal.distributed.fake_pg  # noqa: F401  registers the backend fake

    with pytest.raises(ValueError) as raised:
        group(backend)
    return str(raised.value)


@pytest.mark.parametrize("backend", ["cpu:fake,sim:hccl-like", "cpu:hccl-like,sim:fake"])
def test_a_second_backend_that_torch_would_confuse_with_ours_is_refused(sim, backend):
    told = alone(with_two_out_of_tree_backends, backend)
    assert "names two backends that are not torch's own, hccl-like and fake" in told


def beside_gloo():
    group("cpu:gloo,sim:hccl-like")
    tensors = [torch.ones(3, device=device) for device in ("cpu", "sim")]
    for tensor in tensors:
        dist.all_reduce(tensor)
    return [tensor.tolist() for tensor in tensors]


def test_gloo_beside_ours_is_allowed(sim):
    assert alone(beside_gloo) == [[1, 1, 1], [1, 1, 1]]
