"""A torch for which the package has no adapter: one is compiled, or a sentence says what to install; and never a crash."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from hccl_like import _adapters, _extension

HAS = "hccl-like has adapters for torch 2.9 and this is torch " + torch.__version__


@pytest.fixture
def without_adapter(monkeypatch, tmp_path):
    """A package with an adapter for torch 2.9 alone, no cache and no tools."""
    package = tmp_path / "hccl_like"
    for path in (f"adapters/torch_2_9/{_adapters._MODULE}", "lib/libhccl_like-1.so", "sources/process_group/CMakeLists.txt"):
        (package / path).parent.mkdir(parents=True)
        (package / path).touch()
    monkeypatch.setattr(_adapters, "_PACKAGE", package)
    monkeypatch.setattr(_adapters, "_tool", lambda *names: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _extension.load.cache_clear()
    yield package
    _extension.load.cache_clear()


def test_without_a_compiler_the_error_says_what_to_install(without_adapter):
    with pytest.raises(ImportError) as raised:
        _extension.load()
    said = str(raised.value)
    assert said.startswith(f"{HAS}. To compile one, install g++ 12 or newer") and "\n" not in said
    assert "CMake ('pip install cmake') and ninja" in said and said.endswith("or install a torch that it has one for")
    assert _extension.problem() == said


def test_without_sources_the_error_says_so(without_adapter):
    shutil.rmtree(without_adapter / "sources")
    assert _extension.problem() == f"{HAS}; there are no sources to compile one from: install hccl-like again"


def test_a_package_that_was_built_without_torch_says_so(without_adapter):
    shutil.rmtree(without_adapter / "adapters")
    said = _extension.problem()
    assert said.startswith(f"hccl-like was built where torch was not installed, and has no adapter for this torch {torch.__version__}. ")
    assert "To compile one, install g++" in said and "or install hccl-like again now that torch is there ('pip install " in said


def test_without_its_library_it_is_not_built(without_adapter):
    shutil.rmtree(without_adapter / "lib")
    assert "hccl-like is not built: there is no libhccl_like in " in _extension.problem()


def test_what_can_be_compiled_is_no_problem_and_is_not_compiled_for_a_question(without_adapter, monkeypatch):
    monkeypatch.setattr(_adapters, "_tool", lambda *names: names[0])
    monkeypatch.setattr(_adapters, "_run", lambda *_: pytest.fail("nobody asked for it"))
    assert _extension.problem() is None


def test_what_does_not_compile_is_told_with_the_log(without_adapter, monkeypatch, capfd):
    monkeypatch.setattr(_adapters, "_tool", lambda *names: {"cmake": "false"}.get(names[0], names[0]))
    with pytest.raises(ImportError, match="for which it could not compile one: .*/log has what the compiler says"):
        _extension.load()
    assert f"{HAS}: compiling one in " in capfd.readouterr().err
    assert not list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.so"))


@pytest.mark.parametrize("version, minor", [
    ("2.13.0", "2.13"), ("2.13.1", "2.13"), ("2.13.0+cpu", "2.13"), ("2.14.1+cu130", "2.14"), ("2.13.0.post1", "2.13"),
    ("2.13.0.dev20260101", None), ("2.13.0a0+git1234567", None), ("2.13.0+vendor.7", None)])
def test_only_a_release_of_pytorch_is_taken_to_have_the_interface_of_its_version(version, minor):
    assert _adapters.minor_version(version) == minor


def in_a_fresh_process(program, **environment):
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env={**os.environ, "PYTHONPATH": path, **environment},
                          capture_output=True, text=True, timeout=900)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_torch_still_imports_and_the_first_use_and_info_say_it():
    said = in_a_fresh_process("""
        import sys
        from hccl_like import _adapters
        def nothing(*names): return None
        _adapters._tool = nothing
        _adapters.minor_version = lambda version: "2.9"
        import torch, torch.distributed as dist
        import hccl_like
        assert not hccl_like.is_available()
        try:
            dist.init_process_group("hccl-like", store=dist.HashStore(), rank=0, world_size=1)
        except ImportError as error:
            assert "To compile one, install" in str(error), error
        else:
            sys.exit("no error")
        from hccl_like import cli
        assert cli.main(["info"]) == 1
    """)
    assert "cannot be used: hccl-like has adapters for torch " in said


@pytest.mark.slow
def test_an_adapter_is_compiled_once_for_all_ranks_and_works(tmp_path):
    program = """
        import os
        from hccl_like import _adapters
        _adapters.minor_version = lambda version: None  # as of a nightly
        import torch, torch.distributed as dist
        store = dist.FileStore(os.environ["STORE"], 1)
        dist.init_process_group("hccl-like", store=store, rank=0, world_size=1)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [1, 1, 1]
    """
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert ": compiling one in " in in_a_fresh_process(program, STORE=str(tmp_path / "first"), **environment)
    assert in_a_fresh_process(program, STORE=str(tmp_path / "second"), **environment) == ""


def test_the_version_has_the_revision():
    import hccl_like

    assert hccl_like.__version__ == _extension.version() == hccl_like.version()["hccl-like"]
    assert f"libhccl_like-{hccl_like.__version__}.so" == _adapters.core().name
