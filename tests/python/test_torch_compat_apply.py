"""When a patch is applied, to which torch, and how it is left out."""

import importlib
import logging
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from hccl_like import _registration, cli, torch_compat
from hccl_like.torch_compat import _apply, _devices, _patches
from hccl_like.torch_compat._apply import Patch
from ranks import run_ranks

NAMES = [patch.name for patch in _patches.PATCHES]


@pytest.fixture
def fresh(monkeypatch):
    """No patch has been seen yet, and what is installed waits for imports in this test only."""
    monkeypatch.setattr(_apply, "_states", {})
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delenv(_apply.SWITCH, raising=False)


@pytest.fixture
def mender(monkeypatch):
    """A function for patches to name; it collects the modules that it is given."""
    given = []
    monkeypatch.setattr(_devices, "collect", given.append, raising=False)
    return given


def patch(name="some", module="json", mend="_devices:collect", **versions):
    return Patch(name, module, mend, "a test", **versions)


def test_a_module_that_is_there_is_mended_at_once_and_once(fresh, mender):
    import json

    _apply.install([patch()])
    _apply.install([patch()])
    assert mender == [json] and _apply.state(patch()) == "applied"


def test_another_module_is_mended_right_after_its_import(fresh, mender, tmp_path, monkeypatch):
    (tmp_path / "module_to_come.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = len(sys.meta_path)
    both = [patch("one", "module_to_come"), patch("two", "module_to_come")]
    _apply.install(both)
    assert mender == [] and _apply.state(both[0]) == "waits for module_to_come"
    import module_to_come

    assert mender == [module_to_come, module_to_come] and module_to_come.value == 3
    assert _apply.state(both[1]) == "applied"
    assert "exec_module" not in vars(module_to_come.__spec__.loader)
    assert importlib.reload(module_to_come).value == 3
    assert len(sys.meta_path) == finders, "nobody is waited for any more"


def test_a_module_that_does_not_exist_is_nobody_elses_problem(fresh, mender):
    _apply.install([patch(module="a_module_that_never_comes")])
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("a_module_that_never_comes")
    assert _apply.state(patch()) == "waits for a_module_that_never_comes"


@pytest.mark.parametrize("version, fits", [
    ("2.12.1", False), ("2.13.0", True), ("2.13.1+cu126", True), ("2.14.0a0+git1234", True), ("2.15.0", False), ("3.0.0", False),
])  # fmt: skip
def test_a_patch_is_for_certain_versions(version, fits):
    assert patch(first=(2, 13), last=(2, 14)).fits(version) is fits


def test_another_version_is_left_as_it_is(fresh, mender, monkeypatch, caplog):
    monkeypatch.setattr(torch, "__version__", "2.14.1+cpu")
    with caplog.at_level(logging.DEBUG, logger="hccl_like"):
        _apply.install([patch(first=(2, 13), last=(2, 13))])
    assert mender == [] and _apply.state(patch()) == "not for torch 2.14.1+cpu"
    assert "patch some is for torch 2.13, not for 2.14.1+cpu" in caplog.text


def test_a_patch_that_fails_is_told_and_breaks_nothing(fresh, caplog):
    _apply.install([patch(mend="_devices:there_is_no_such_function")])
    assert _apply.state(patch()).startswith("failed: AttributeError:")
    assert "patch some could not be applied to torch" in caplog.text


@pytest.mark.parametrize("switch, left_out", [
    ("", []), ("1", []), ("0", ["one", "two"]), ("two", ["two"]), (" two , one ", ["one", "two"]), ("one,three", ["one"]),
])  # fmt: skip
def test_the_switch_leaves_out_all_or_some(fresh, mender, monkeypatch, caplog, switch, left_out):
    monkeypatch.setenv(_apply.SWITCH, switch)
    both = [patch("one"), patch("two")]
    _apply.install(both)
    assert [one.name for one in both if _apply.state(one) == "switched off"] == left_out
    assert len(mender) == 2 - len(left_out)
    assert ("there is no patch three; there are one, two" in caplog.text) == ("three" in switch)


def test_import_torch_has_applied_what_it_could():
    states = {name: state for name, state, *_ in torch_compat.listing()}
    assert list(states) == NAMES and len(set(NAMES)) == len(NAMES)
    left_out = {patch.name for patch in _patches.PATCHES if not patch.fits(torch.__version__)}
    assert {name for name, state in states.items() if state == f"not for torch {torch.__version__}"} == left_out
    assert all(states[name] == "applied" or states[name].startswith("waits for torch.") for name in set(states) - left_out), states
    assert states["unnamed-cpu"] == states["ddp-logging"] == "applied"
    functions = c10d._new_process_group_helper, dist.monitored_barrier, c10d.ProcessGroup._get_sequence_number_for_group
    _apply.install(_patches.PATCHES)
    _registration.register()
    assert functions == (
        c10d._new_process_group_helper, dist.monitored_barrier, c10d.ProcessGroup._get_sequence_number_for_group
    )  # fmt: skip
    assert dist.monitored_barrier is c10d.monitored_barrier
    assert "timeout" in dist.monitored_barrier.__doc__


def test_the_page_describes_every_patch_in_the_same_order():
    page = (Path(__file__).parents[2] / "docs" / "torch-compat.md").read_text()
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.M) == NAMES


def command(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "hccl_like", "compat", *arguments], env={**os.environ, **environment}, capture_output=True,
        text=True, timeout=100,
    )  # fmt: skip
    return done.returncode, {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}, done.stderr


@pytest.mark.slow
def test_the_command_lists_every_patch_with_its_state():
    code, rows, errors = command("--load", HCCL_LIKE_TORCH_COMPAT="dist2,rng-sync,colour")
    assert code == 0 and "there is no patch colour" in errors
    assert all(" switched off " in rows[name] for name in ("dist2", "rng-sync"))
    for patch in _patches.PATCHES:
        if patch.fits(torch.__version__) and patch.name not in ("dist2", "rng-sync"):
            assert " applied " in rows[patch.name] and patch.versions() in rows[patch.name], rows[patch.name]
    assert "distributed_c10d.py:5418" in rows["monitored-barrier"]


@pytest.mark.slow
def test_nothing_is_applied_where_torch_does_not_load_the_backend():
    code, rows, _ = command(TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert code == 0 and all("not installed" in rows[name] for name in NAMES)


def test_the_command_fails_if_a_patch_did(monkeypatch, capsys):
    monkeypatch.setitem(_apply._states, "dist2", "failed: AttributeError: gone")
    assert cli.main(["compat"]) == 1
    assert "failed: AttributeError: gone" in capsys.readouterr().out


def meets_at_once(rank, size):
    from hccl_like.torch_compat import _devices, _ours

    def refuse(*_):
        raise AssertionError("the device was looked for, which takes longer than the barrier")

    groups = [dist.group.WORLD, dist.new_group()]
    for group in groups:
        dist.barrier(group)
    looked = _ours.backends, _devices._tells_accelerator, dist.distributed_c10d._get_object_coll_device
    _ours.backends = _devices._tells_accelerator = dist.distributed_c10d._get_object_coll_device = refuse
    dist.barrier()
    for group in groups:
        dist.barrier(group)
        dist.barrier(group=group)
    _ours.backends, _devices._tells_accelerator, dist.distributed_c10d._get_object_coll_device = looked
    assert dist.barrier(async_op=True).wait()
    dist.barrier(timeout=timedelta(seconds=10))


def test_no_barrier_but_the_first_looks_for_its_device():
    run_ranks(meets_at_once, 2)
