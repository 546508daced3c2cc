"""``hccl-like demo``: that it works on this machine, and says what is missing where it can't."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys

import pytest

demo = pytest.importorskip("hccl_like.demo")


@pytest.mark.parametrize("absent, told", [
    ("torch", "pip install 'torch"), ("libhccl_like", "extension of hccl-like is not built"),
    ("torch_sim", "--device cpu")])
def test_what_is_missing_is_told_with_the_way_to_get_it(monkeypatch, absent, told):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == absent else object())
    monkeypatch.setattr(demo._adapters, "is_built", lambda: absent != "libhccl_like")
    assert told in demo._missing("sim")


def test_nothing_is_missing_where_all_is_there(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert demo._missing("sim") is None


def test_an_adapter_is_compiled_before_the_ranks_start(monkeypatch, capsys):
    def fails():
        raise demo._adapters.NoAdapter("could not compile one")

    monkeypatch.setattr(demo._adapters, "is_built", lambda: True)
    monkeypatch.setattr(demo._adapters, "built_for", lambda: ["2.9"])
    monkeypatch.setattr(demo._adapters, "find", fails)
    monkeypatch.setattr(demo, "_spawn", lambda *_: pytest.fail("the ranks started"))
    assert demo.main(["--device", "cpu"]) == 1
    assert capsys.readouterr().err == "could not compile one\n"


def test_an_adapter_that_is_there_is_not_looked_for(monkeypatch):
    monkeypatch.setattr(demo._adapters, "built_for", lambda: [demo._adapters.minor_version(importlib.metadata.version("torch"))])
    monkeypatch.setattr(demo._adapters, "find", lambda: pytest.fail("torch was imported for that"))
    demo._compile_adapter()


@pytest.mark.parametrize("ranks", ["0", "65"])
def test_a_senseless_number_of_ranks_is_refused(ranks, capsys):
    with pytest.raises(SystemExit):
        demo.main(["-n", ranks])
    assert "1 to 64 ranks" in capsys.readouterr().err


def run_demo(*arguments, **environment):
    program = f"import sys, hccl_like.demo as demo; sys.exit(demo.main({list(arguments)!r}))"
    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_every_rank_gets_the_sum(ranks):
    if not demo._adapters.is_built():
        pytest.skip("the extension is not built")
    done = run_demo("-n", str(ranks), "--device", "cpu")
    assert done.returncode == 0, done.stderr
    total = ranks * (ranks + 1) / 2
    assert f"everybody gets {[total] * 4}: right" in done.stdout
    assert "16 MiB" in done.stdout and "it works. Next:" in done.stdout


def test_the_device_is_found_without_its_name(sim):
    done = run_demo(TORCH_SIM_FLAWS="no-streams,no-events", HCCL_LIKE_DEVICE_PLUGINS="sim=none")
    assert done.returncode == 0, done.stderr
    assert "everybody gets [3.0, 3.0, 3.0, 3.0]: right" in done.stdout and ", device sim" in done.stdout


@pytest.mark.slow
def test_a_device_that_torch_does_not_load_by_itself_is_imported(sim):
    done = run_demo("-n", "1", "--import", "bare_sim", TORCH_SIM="0", PYTHONPATH=os.path.dirname(__file__))
    assert done.returncode == 0 and ", device sim" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_device_that_is_not_there_is_told_with_the_one_that_is(sim):
    done = run_demo("--device", "acme")
    assert done.returncode == 1 and "torch knows no device 'acme' here, but 'sim'. Try --device sim." in done.stderr


def test_where_there_is_no_device_the_demo_is_on_the_cpu(sim):
    done = run_demo("-n", "1", TORCH_SIM="0")
    assert done.returncode == 0 and ", device cpu" in done.stdout, done.stderr
    done = run_demo("-n", "1", "--device", "acme", TORCH_SIM="0")
    assert done.returncode == 1 and "torch knows no device 'acme' here, nor any other. Try --device cpu." in done.stderr


def test_a_device_that_cannot_be_waited_for_is_read(monkeypatch):
    import torch

    def refuse():
        raise RuntimeError("Backend doesn't support synchronizing all streams on device.")

    class Tensor:
        read = 0

        def __getitem__(self, part):
            return self

        def cpu(self):
            self.read += 1

    monkeypatch.setattr(torch.accelerator, "synchronize", refuse)
    demo._settle(torch, tensor := Tensor())
    assert tensor.read == 1


def test_a_rank_that_fails_ends_the_demo_and_is_named(monkeypatch, capfd):
    monkeypatch.setattr(demo.sys, "executable", "/bin/false")
    assert demo._spawn(2, "cpu") == 1
    assert "ended with code 1" in capfd.readouterr().err
