"""An extension built for one minor version of torch, met by another: a sentence, at every door, and never a crash."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from hccl_like import _extension

SENTENCE = f'hccl-like was built for torch 2.9 and this is torch {torch.__version__}: install the matching one with \'pip install "torch==2.9.*"\''


@pytest.fixture
def built_for_another(monkeypatch):
    monkeypatch.setattr(_extension, "BUILT_FOR_TORCH", (2, 9))
    _extension.load.cache_clear()
    yield
    _extension.load.cache_clear()


def test_the_extension_is_not_even_opened(built_for_another, monkeypatch):
    monkeypatch.setitem(sys.modules, "hccl_like._C", None)
    with pytest.raises(ImportError) as raised:
        _extension.load()
    assert str(raised.value).startswith(SENTENCE) and "build hccl-like again for this torch" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("version", ["2.13.1", "2.13.0+cpu", "2.13.0.dev20260101", "2.13.0a0+git1234567"])
def test_a_patch_release_or_another_build_of_the_same_minor_fits(version, monkeypatch):
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(_extension, "BUILT_FOR_TORCH", (2, 13))
    _extension.load.cache_clear()
    assert _extension.problem() is None


def test_it_is_said_by_init_process_group_and_by_info_and_torch_still_imports():
    program = f"""
        import sys
        import hccl_like._extension as extension
        extension.BUILT_FOR_TORCH = (2, 9)
        import torch, torch.distributed as dist
        import hccl_like
        assert not hccl_like.is_available() and hccl_like.version()["built for torch"] == "2.9"
        try:
            dist.init_process_group("hccl-like", store=dist.HashStore(), rank=0, world_size=1)
        except ImportError as error:
            assert str(error).startswith({SENTENCE!r}), error
        else:
            sys.exit("no error")
        from hccl_like import cli
        assert cli.main(["info"]) == 1
    """
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env={**os.environ, "PYTHONPATH": path},
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.startswith(f"cannot be used: {SENTENCE}")


def test_the_build_and_the_package_name_the_same_version():
    metadata = (os.path.join(os.path.dirname(__file__), "../..", name) for name in ("pyproject.toml", "process_group/CMakeLists.txt"))
    project, cmake = (open(path).read() for path in metadata)
    major, minor = _extension.BUILT_FOR_TORCH
    assert f'dependencies = ["torch>={major}.{minor},<{major}.{minor + 1}"]' in project
    assert f'"^{major}\\\\.{minor}\\\\."' in cmake
