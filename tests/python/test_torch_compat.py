"""What is wrong in torch's own Python without the patches, and right with them; and that gloo does not notice."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import compat_probes
from compat_probes import PROBES, answers_of
from conftest import has_simulator
from hccl_like.torch_compat import _patches
from ranks import make_store, run_ranks

PATCHES = {patch.name: patch for patch in _patches.PATCHES}
pytestmark = pytest.mark.skipif(not has_simulator(), reason="the simulated accelerator is not installed")
# (patch, kind of group, probe, its answer or the beginning of its error without the patches, its answer with them)
HALVES = [[0.5] * 3] * 2
SUMS = [[[0, 2], [4, 6], [8, 10]], [[12, 14], [16, 18], [20, 22]]]
NO_GLOO = "RuntimeError: Could not find backend type 1 for Process Group with name gloo"
# A build without CUDA, and one with it but without a GPU.
NO_CUDA = ("AssertionError: Torch not compiled with CUDA enabled", "RuntimeError: Found no NVIDIA driver")
NO_NCCL = "TypeError: BF16 all reduce communication hook required CUDA"
MENDED = [
    ("default-backend", "unnamed", "default_type", "gloo", "custom"),
    ("default-backend", "unnamed", "compressed", NO_GLOO, HALVES),  # DistributedDataParallel itself
    ("default-backend", "composite bound", "default_type", "undefined", "custom"),
    ("default-backend", "composite bound", "part_of_the_devices",
     "RuntimeError: splitGroup deviceTypes filter must include the parent process group's default", (["sim"], [2.0] * 3)),
    ("default-backend", "device only", "default_type", "undefined", "custom"),
    ("unnamed-cpu", "unnamed", "host_tensor", "RuntimeError: No backend type associated with device type cpu", [2.0] * 3),
    ("beside-bound-device", "ours bound", "gloo_beside_it", "RuntimeError: No backend type associated with device type sim",
     [2.0] * 3),
    ("beside-bound-device", "composite bound", "gloo_beside_it", "RuntimeError: No backend type associated with device type",
     [2.0] * 3),
    ("split-by-name", "ours bound", "part_of_its_name", "RuntimeError: splitGroup deviceTypes filter must include the parent",
     ["cpu", "sim"]),
    ("shrunk-group", "ours", "shrunk", ("gloo", ["cpu"]), ("custom", ["cpu", "sim"])),
    ("shrunk-group", "ours in detail", "shrunk", ("gloo", ["cpu"]), ("custom", ["cpu", "sim"])),
    ("shrunk-group", "composite bound", "shrunk", ("gloo", ["sim"]), ("custom", ["sim"])),
    ("subgroup-size", "ours", "subgroups", "ValueError: Default group size only takes effect when CUDA", (1, 2)),
    ("sequence-numbers", "ours", "sequence_number", "RuntimeError: ProcessGroup custom does not yet support sequence", 1),
    ("sequence-numbers", "ours in detail", "sequence_number", "RuntimeError: ProcessGroup custom does not yet support", 1),
    ("monitored-barrier", "ours", "monitored", "ValueError: monitored_barrier is only implemented for GLOO", 1),
    ("monitored-barrier", "ours", "monitored_by_a_group", "ValueError: monitored_barrier is only implemented for GLOO", None),
    ("monitored-barrier", "ours in detail", "monitored", "ValueError: monitored_barrier is only implemented for GLOO", 1),
    ("monitored-barrier", "device only", "monitored", "ValueError: monitored_barrier is only implemented for GLOO", 1),
    ("monitored-barrier", "composite bound", "monitored", "ValueError: monitored_barrier is only implemented for GLOO", 1),
    ("group-timeout", "ours", "timeouts", "UserWarning: Set timeout is now only supported", {"cpu": 17, "sim": 17}),
    ("group-timeout", "ours in detail", "timeouts", "UserWarning: Set timeout is now only", {"cpu": 17, "sim": 17}),
    ("group-timeout", "composite bound", "timeouts", {"cpu": 17, "sim": 30}, {"cpu": 17, "sim": 17}),
    ("group-timeout", "composite in detail", "timeouts", "UserWarning: Set timeout is now only", {"cpu": 17, "sim": 17}),
    ("bf16-hook", "ours", "compressed", NO_NCCL, HALVES),
    ("bf16-hook", "ours in detail", "compressed", NO_NCCL, HALVES),
    ("bf16-hook", "ours", "compressed_twice", NO_NCCL, None),
    ("ddp-logging", "ours", "logged_backend", "custom", "hccl-like"),
    ("ddp-buckets", "ours", "mappable_buckets", [False, False], [True, True]),
    ("fsdp-buffers", "ours", "mappable_shards", [[False, False], [True, True], [False, False]],
     [[True, True], [True, True], [False, False]]),
    ("fsdp-gathers", "ours", "calls_of_shards", ["_allgather_base_", "_allgather_base_"],
     ["allgather_into_tensor_coalesced_", "_allgather_base_"]),
    ("all-gather-gradient", "ours", "gathered_base_gradient", "RuntimeError: Backend not supported!", SUMS),
    ("all-gather-gradient", "unnamed", "gathered_base_gradient", "RuntimeError: Backend not supported!", SUMS),
    ("all-gather-gradient", "ours", "reduce_scatters_of_a_gradient", 0, 1),
    ("grad-scaler", "ours", "scaler", (False, "cuda", "cpu", "cpu"), (True, "sim", "cpu", "cpu")),
    ("rng-sync", "ours", "generators", "NotImplementedError: Unsupported generator device: sim", [(1, 2), (1, 2)]),
    ("shared-pinning", "ours", "pinned_and_shared", NO_CUDA, (True, "cpu", 3)),
    ("checkpoint-copies", "ours", "saved_without_streams", "RuntimeError: not saved", [1.0] * 3),
    ("device-handle", "ours", "mesh_of_a_bare_module", "AttributeError: type object 'Bare' has no attribute 'is_initialized'", 2),
    ("fake-device", "ours", "sharded_on_a_bare_module", "RuntimeError: type object 'Bare' has no attribute '",
     [2.0] * 6),
    ("barrier-device", "ours", "met_untold", "NotImplementedError: no isAvailable", 2),
    ("barrier-device", "ours in detail", "met_untold", "NotImplementedError: no isAvailable", 2),
    ("dist2", "ours", "second_api", "ValueError: Backend hccl-like not registered", [[1.0] * 3] * 4),
    ("dist2", "ours", "second_api_with_a_wrong_option", "KeyError: 'hccl-like'",
     "KeyError: 'hccl_like.Options has no attribute colour'"),
]  # fmt: skip


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """The answers of every kind of group in a process that has no patches."""
    file = tmp_path_factory.mktemp("compat") / "answers"
    done = subprocess.run(
        [sys.executable, compat_probes.__file__, file, *compat_probes.OURS, "gloo", "gloo twice"],
        env={**os.environ, "HCCL_LIKE_TORCH_COMPAT": "0"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return pickle.loads(Path(file).read_bytes())


@pytest.fixture(scope="module")
def patched():
    """The answers of a kind of group here, where `import torch` has applied the patches."""
    known = {}

    def answers(kind):
        if kind not in known:
            known[kind] = answers_of(kind)
        return known[kind]

    return answers


@pytest.mark.slow
@pytest.mark.parametrize("patch, kind, probe, fault, mended", MENDED, ids=["-".join(row[:3]) for row in MENDED])
def test_a_fault_is_there_without_the_patch_and_gone_with_it(without, patched, patch, kind, probe, fault, mended):
    if not PATCHES[patch].fits(torch.__version__):
        pytest.skip(f"{patch} is for torch {PATCHES[patch].versions()}")
    answer = without[kind][probe]
    if torch.version.cuda and answer == mended:
        pytest.skip("a build for CUDA has no such fault")
    if "split_group() got an unexpected keyword argument 'backend'" in str(answer):
        pytest.skip("split_group takes no backend before torch 2.13")
    if isinstance(fault, str) or fault is NO_CUDA:
        # Where one rank fails, the other may tell of the connection that it lost instead.
        told = answer if isinstance(answer, list) else [answer]
        assert any(one.startswith(fault) for one in told), told
    else:
        assert answer == fault
    assert patched(kind)[probe] == mended


@pytest.mark.slow
def test_every_patch_is_proved():
    assert {row[0] for row in MENDED} == set(PATCHES)


# What asks no group, and so is mended for the process.
OF_NO_GROUP = {
    "pinned_and_shared", "saved_without_streams", "mesh_of_a_bare_module", "sharded_on_a_bare_module", "second_api",
    "second_api_with_a_wrong_option",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gloo", "gloo twice"])
def test_gloo_does_not_notice(without, patched, kind):
    names = {probe.__name__ for probe in PROBES} - OF_NO_GROUP
    assert {name: patched(kind)[name] for name in names} == {name: without[kind][name] for name in names}


@pytest.mark.slow
def test_what_was_right_stays_right(without, patched):
    for kind in compat_probes.OURS:
        assert patched(kind)["gathered_gradient"] == [[2.0] * 3, [4.0] * 3] == without[kind]["gathered_gradient"]
        assert patched(kind)["no_hook"] == "TypeError: Communication hook must be callable."


# gloo does not shrink, so its half is gone where torch is told the device.
SERVED_AFTER_SHRINKING = {"composite bound": ["sim"]}


def two_stay(rank, size, listener, kind):
    """What a group of two, left of three, is and can do."""
    backend, bound = compat_probes.KINDS[kind]
    if kind.endswith("in detail"):
        dist.set_debug_level(dist.DebugLevel.DETAIL)
    store = make_store(rank, listener)
    device_id = torch.device("sim", rank) if bound else None
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, device_id=device_id)
    if rank == 2:
        return None
    group = dist.shrink_group([2])
    sums = []
    for device in SERVED_AFTER_SHRINKING.get(kind, ["cpu", "sim"]):
        tensor = torch.ones(3, device=device)
        dist.all_reduce(tensor)
        sums.append(tensor.tolist())
    dist.barrier()
    return group.name(), group.size(), sums


@pytest.mark.slow
@pytest.mark.parametrize("kind", compat_probes.OURS)
def test_what_is_left_of_a_group_serves_its_devices(kind):
    left = ("custom", 2, [[2.0] * 3] * len(SERVED_AFTER_SHRINKING.get(kind, ["cpu", "sim"])))
    assert run_ranks(two_stay, 3, kind, group=False) == [left, left, None]


# One rank, and no module beside torch, since torch._dynamo registers a plugin of its own.
COMPOSITE_OF_GLOO = """
import torch, torch.distributed as dist
dist.init_process_group("cpu:gloo,cuda:gloo", store=dist.HashStore(), rank=0, world_size=1)
print(dist.group.WORLD.name())
"""


@pytest.mark.slow
@pytest.mark.parametrize("environment, expected", [
    pytest.param({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "gloo", id="without hccl-like"),
    pytest.param({"HCCL_LIKE_TORCH_COMPAT": "0"}, "undefined", id="without the patch", marks=pytest.mark.skipif(
        not PATCHES["default-backend"].fits(torch.__version__), reason="this torch has no such fault")),
    pytest.param({}, "gloo", id="with it"),
])  # fmt: skip
def test_being_registered_takes_nothing_from_others(environment, expected):
    done = subprocess.run(
        [sys.executable, "-c", COMPOSITE_OF_GLOO], env={**os.environ, **environment}, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == expected + "\n", done.stderr


def test_the_debug_wrapper_is_looked_through():
    from hccl_like.torch_compat import _ours

    assert _ours.unwrapped("anything else") == "anything else"
    assert _ours.backends(None) == {} and _ours.backends("no group") == {}
    assert dist.is_initialized() is False
