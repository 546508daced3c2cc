"""What the conformance runner tells of a device: of the simulator as it is, and with each of the flaws that real devices have."""

import json
import os
import sys

import pytest

import fresh
from conftest import slow_after_first

REFUSED = "is refused: "


def report(folder, *arguments, device="sim", **environment):
    """(rows by id, what works, completed process) of one run."""
    path = folder / "report.json"
    environment = {"TORCH_SIM_STRICT_REPORT": ""} | environment  # it tries to follow an address
    process = fresh.run(
        ["-m", "hccl_like.conformance", "--what", "device", "--device", device, "--json", str(path), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]), **environment},
        timeout=170,
    )
    document = json.loads(path.read_text()) if path.exists() else {"rows": [], "works": {}}
    return {row["id"]: row for row in document["rows"]}, document["works"], process


def hide_plugins(folder):
    """From interpreters that search this folder for modules, as those of report() do."""
    (folder / "sitecustomize.py").write_text(
        "from importlib.metadata import PathDistribution\n"
        "text_of = PathDistribution.read_text\n"
        "def read_text(self, name):\n"
        "    text = text_of(self, name)\n"
        "    return text and text.replace('hccl_like.devices', 'hidden')\n"
        "PathDistribution.read_text = read_text\n"
    )


def only(*ids):
    return [part for id in ids for part in ("-k", id)]


def test_the_simulator_has_everything_but_memory_that_the_host_may_touch(sim, tmp_path):
    rows, works, process = report(tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr
    assert {id: row["seen"] for id, row in rows.items() if row["state"] != "yes"} == {"copies.address": "it faults"}
    assert len(rows) == 51 and "50 yes, 1 no, 0 broken" in process.stdout
    assert len(works) == 10 and all(works.values())
    assert rows["device.count"]["seen"] == "8 devices"
    assert REFUSED in rows["processes.fork_after"]["seen"]


# Several flaws at a time, as far as they do not hide each other: (flaws, what is looked at, what must be found there).
FLAWED = {
    "lacking": (
        "no-pinned-memory,no-resize,no-native-handles,no-events",
        ("backend.plugin", "hooks.", "streams.native", "events.record", "copies.to_host"),
        {
            "backend.plugin": ("no", "no package has an entry point 'sim' in the group hccl_like.devices"),
            "hooks.pinned": ("no", "RuntimeError: sim: there is no pinned memory"),
            "hooks.is_pinned": ("no", "needs hooks.pinned"),
            "hooks.resize": ("no", "RuntimeError: sim: storages cannot be resized"),
            "streams.native": ("no", "RuntimeError: Backend doesn't support native stream handles."),
            "events.record": ("no", "RuntimeError: Backend doesn't support events."),
            "copies.to_host": ("no", "needs hooks.pinned"),
        },
    ),
    "crude": (
        "no-streams,idle-streams,blocking-copies,no-offsets",
        ("streams.own", "streams.query", "copies.to_host", "copies.views"),
        {
            "streams.own": ("no", "all of them are the default stream"),
            "streams.query": ("broken", "query() calls a stream idle that has work to do"),
            "copies.to_host": ("no", "the call took "),
            "copies.views": ("broken", "device to host ignores the storage's offset"),
        },
    ),
    "hasty": (
        "hasty-events,forgetful-streams,busy-streams",
        ("events.wait", "memory.record_stream", "streams.query"),
        {
            "events.wait": ("broken", "read by a stream that waited for the event: 100003 of 100003 elements are not 8"),
            "memory.record_stream": ("broken", "read by another stream that record_stream() had named"),
            "streams.query": ("broken", "query() calls a stream busy that was synchronised"),
        },
    ),
    "deadly": (
        "reused-events,hanging-fork,crashing-threads",
        ("events.again", "threads.two", "fork_after"),
        {
            "events.again": ("broken", "who waited for the first recording waits for the second one"),
            "threads.two": ("broken", "crashed: SIGSEGV"),
            "processes.fork_after": ("broken", "the child hangs when it uses the device"),
        },
    ),
}


@pytest.mark.parametrize("kind", slow_after_first(FLAWED))
def test_flaws_are_told(kind, sim, tmp_path):
    flaws, asked, expected = FLAWED[kind]
    if "backend.plugin" in expected:
        hide_plugins(tmp_path)
    rows, _, process = report(tmp_path, *only(*asked), TORCH_SIM_FLAWS=flaws)
    told = process.stdout + process.stderr
    assert process.returncode == int(any(state == "broken" for state, _ in expected.values())), told
    for id, (state, seen) in expected.items():
        assert rows[id]["state"] == state and rows[id]["seen"].startswith(seen), told
        assert id in process.stdout


def test_a_plugin_that_is_switched_off_is_no_fault(sim, tmp_path):
    rows, _, process = report(tmp_path, *only("backend.plugin"), HCCL_LIKE_DEVICE_PLUGINS="sim=none")
    assert process.returncode == 0, process.stdout + process.stderr
    assert (rows["backend.plugin"]["state"], rows["backend.plugin"]["seen"]) == ("no", "HCCL_LIKE_DEVICE_PLUGINS says that there is none")


@pytest.mark.slow
def test_without_pinned_memory_training_works_and_copies_hold_up_the_program(sim, tmp_path):
    needed = ("device.tensors", "order.read", "copies", "hooks.pinned", "memory.freed_source", "threads.two", "torch.autograd")
    _, works, process = report(tmp_path, *only(*needed), TORCH_SIM_FLAWS="no-pinned-memory")
    assert process.returncode == 0, process.stdout + process.stderr
    assert works == {
        "collectives, large ones copied beside the network": True,
        "copies that run behind the program": False,
        "DistributedDataParallel, tensor parallelism": True,
        "DistributedDataParallel(find_unused_parameters=True)": False,
        "distributed checkpoints": True,
    }


# It has copies and views, so what is asked of it in each check is no more than that.
@pytest.mark.slow
def test_a_device_without_operators_is_looked_at_to_the_end(sim, tmp_path):
    rows, works, process = report(tmp_path, TORCH_SIM_FLAWS="no-operators")
    assert process.returncode == 0, process.stdout + process.stderr
    assert len(rows) == 51
    assert {id: row["seen"] for id, row in rows.items() if row["state"] != "yes"} == {
        "copies.address": "it faults",
        "hooks.generator": "NotImplementedError: sim: there is no aten::normal_",
        "torch.reductions": "there are none",
        "torch.autograd": "NotImplementedError: sim: there is no aten::addmm",
        "torch.autocast": "NotImplementedError: sim: there is no aten::mm",
        "torch.seed": "NotImplementedError: sim: there is no aten::uniform_",
        "torch.checkpoint": "NotImplementedError: sim: there is no aten::native_dropout",
    }
    assert works["collectives, large ones copied beside the network"] and works["distributed checkpoints"]
    assert not works["DistributedDataParallel, tensor parallelism"]


@pytest.mark.slow
def test_activation_checkpoints_are_measured(sim, tmp_path):
    needed = ("device.tensors", "order.read", "hooks.generator", "torch.autograd", "torch.seed", "torch.checkpoint")
    rows, works, process = report(tmp_path, *only(*needed), TORCH_SIM_FLAWS="no-generators")
    assert process.returncode == 0, process.stdout + process.stderr
    assert rows["hooks.generator"]["seen"] == "RuntimeError: sim: there is no generator but the default one"
    assert [rows[id]["state"] for id in ("torch.seed", "torch.checkpoint")] == ["yes", "yes"]
    assert works == {"activation checkpoints": True}
    (tmp_path / "sitecustomize.py").write_text("import torch\ntorch.sim.set_rng_state = lambda *arguments: None\n")
    rows, works, process = report(tmp_path, *only(*needed))
    assert process.returncode == 1, process.stdout + process.stderr
    assert rows["hooks.generator"]["state"] == "yes" and rows["torch.checkpoint"]["state"] == "broken"
    assert rows["torch.checkpoint"]["seen"] == "the mask is another one in the backward pass, so gradients are wrong"
    assert works == {"activation checkpoints": False}


# What a device lacks that registers no more than it takes to train: (what its processes do first, which check, words of the reason).
UNSAVED = {
    "no set_.source_Storage": (
        "import torch\n"
        "def refuse(self, source, *rest, copy=torch.UntypedStorage.copy_, **named):\n"
        "    if source.device.type == 'sim': raise RuntimeError('Attempted to set the storage of a tensor')\n"
        "    return copy(self, source, *rest, **named)\n"
        "torch.UntypedStorage.copy_ = refuse\n",
        "torch.storage", "Attempted to set the storage of a tensor", False,
    ),
    "no torch.sim.device": (
        "import torch\ndel torch.sim.device\n", "torch.save", "has no attribute 'device'", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", slow_after_first(UNSAVED))
def test_a_device_whose_tensors_cannot_be_saved_has_distributed_checkpoints(sim, tmp_path, kind):
    preparation, lacking, reason, asynchronous = UNSAVED[kind]
    (tmp_path / "sitecustomize.py").write_text(preparation)
    needed = ("device.tensors", "order.read", "copies.views", "threads.two", "torch.s")
    rows, works, process = report(tmp_path, *only(*needed))
    assert process.returncode == 0, process.stdout + process.stderr
    assert rows[lacking]["state"] == "no" and reason in rows[lacking]["seen"]
    assert works["distributed checkpoints"]
    assert works["distributed checkpoints that are saved asynchronously"] is asynchronous


@pytest.mark.slow
def test_opaque_storage_is_reached_by_copies(sim, tmp_path):
    rows, _, process = report(tmp_path, *only("copies.address", "copies.views"), TORCH_SIM_OPAQUE="1")
    assert process.returncode == 0, process.stdout + process.stderr
    assert rows["copies.address"]["state"] == "no" and "the memory may be protected or opaque" in rows["copies.address"]["meaning"]
    assert rows["copies.views"]["state"] == "yes"


def test_a_device_that_reads_too_early_is_told_nothing_more(sim, tmp_path):
    rows, works, process = report(tmp_path, TORCH_SIM_FLAWS="hasty-reads")
    assert process.returncode == 1
    assert [(id, row["state"]) for id, row in rows.items()] == [
        ("device.tensors", "yes"), ("processes.fork_before", "yes"), ("order.read", "broken"),
    ]  # fmt: skip
    assert rows["order.read"]["seen"].startswith("read right after it was queued: 100003 of 100003 elements are not 5")
    assert not works


@pytest.mark.slow
def test_a_device_that_is_only_imported_is_looked_at(sim, tmp_path):
    rows, works, process = report(
        tmp_path, "--import", "bare_sim", *only("device.tensors", "module.basic", "copies.views"), TORCH_SIM="0",
        PYTHONPATH=os.path.dirname(__file__),
    )  # fmt: skip
    assert [rows[id]["state"] for id in ("device.tensors", "module.basic", "copies.views")] == ["yes", "no", "yes"], process.stdout


def test_a_device_that_is_not_there_is_one_row_and_code_2(tmp_path):
    rows, _, process = report(tmp_path, device="nosuch")
    assert process.returncode == 2 and list(rows) == ["device.tensors"]
    assert rows["device.tensors"]["state"] == "no" and "torch has no device 'nosuch' here" in rows["device.tensors"]["seen"]


def test_a_flaw_that_is_not_known_is_refused_with_the_list(sim, tmp_path):
    rows, _, process = report(tmp_path, TORCH_SIM_FLAWS="no-evnets")
    assert process.returncode == 2
    assert "there is no 'no-evnets', only no-events, no-streams" in rows["device.tensors"]["seen"]


def test_the_checks_can_be_listed():
    process = fresh.run(["-m", "hccl_like.conformance", "--what", "device", "--list"])
    assert process.returncode == 0 and len(process.stdout.splitlines()) == 50
    assert "events.again: recording an event again leaves earlier waits alone" in process.stdout
