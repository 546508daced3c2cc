"""When a framework is changed, when a program is warned, and how both are switched off: with
stand-ins for the frameworks.
"""

import os
import re
import sys
import textwrap
from pathlib import Path

import pytest

import fresh
from hccl_like import integrations
from hccl_like.integrations import _guard

LINE = "import hccl_like.integrations.accelerate"
# Parts of the real framework of that name.
STAND_IN = """
import enum
class DistributedType(enum.Enum):
    NO = 1
    MULTI_NPU = 2
class PartialState:
    distributed_type = DistributedType.NO
    def __init__(self, cpu=False, **kwargs):
        print(self._prepare_backend(cpu, False, kwargs.get("backend")))
    def _prepare_backend(self, cpu, sagemaker_dp, backend):
        return backend, DistributedType.NO
    def set_device(self): pass
    @property
    def default_device(self): pass
"""
FOREIGN = "hccl-like', <DistributedType.MULTI_NPU"


@pytest.fixture
def run(sim, tmp_path):
    """Runs a program that can import the stand-in; what it printed and what it was warned of."""

    def run(body, stand_in=STAND_IN, **environment):
        (tmp_path / "accelerate").mkdir()
        (tmp_path / "accelerate" / "__init__.py").write_text("")
        (tmp_path / "accelerate" / "state.py").write_text(stand_in)
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        done = fresh.run(
            ["-c", "import torch\n" + textwrap.dedent(body)],
            env={**os.environ, "PYTHONPATH": path, "LOCAL_RANK": "0", **environment},
        )
        return done.stdout, done.stderr

    return run


USE = "from accelerate.state import PartialState\nPartialState()"


@pytest.mark.parametrize("body", [f"{LINE}\n{USE}", f"from accelerate import state\n{LINE}\n{USE}"])
def test_the_line_may_come_before_or_after_the_framework(run, body):
    said, told = run(body)
    assert FOREIGN in said and told == ""


def test_without_the_line_the_first_use_is_told_once(run):
    said, told = run(f"{USE}\nPartialState()")
    assert "NO" in said and told.count("RuntimeWarning") == 1
    assert "accelerate does not know the device 'sim'" in told and f"Add the line '{LINE}'" in told


def test_the_setting_loads_an_integration_without_a_line(run):
    said, told = run(USE, HCCL_LIKE_INTEGRATIONS="accelerate")
    assert FOREIGN in said and "Warning" not in told


@pytest.mark.parametrize(
    "body, environment",
    [
        (USE, {"RANK": "1"}),
        ("import accelerate.state", {}),
        ("from accelerate.state import PartialState\nPartialState(True)", {}),
        ("from accelerate.state import PartialState\nPartialState(cpu=True)", {}),
        (USE, {"HCCL_LIKE_INTEGRATIONS": "0"}),
        (f"{LINE}\n{USE}", {"HCCL_LIKE_INTEGRATIONS": "0"}),
        (USE, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
    ],
    ids=[
        "not rank 0",
        "not used",
        "the CPU asked for",
        "by name",
        "off",
        "off with the line",
        "not loaded",
    ],
)
def test_nothing_is_done_or_told(run, body, environment):
    said, told = run(body, **environment)
    assert "MULTI_NPU" not in said and "Warning" not in told


def test_another_framework_of_that_name_fails_with_what_to_do(run):
    said, told = run(f"{LINE}\n{USE}", stand_in="class PartialState: pass")
    assert re.search(
        r"RuntimeError: hccl_like.integrations.accelerate does not fit accelerate.* "
        r"\(AttributeError: .*\). It is for accelerate 1.14 to 1.15: pip install "
        r"'hccl-like\[accelerate\]', or set HCCL_LIKE_INTEGRATIONS=0 to train without it",
        told,
    ), told


def test_a_name_that_is_none_is_told(run):
    _, told = run("", HCCL_LIKE_INTEGRATIONS="colour")
    assert "there is no integration colour; there are " + ", ".join(integrations.FRAMEWORKS) in told


def test_importing_an_integration_imports_no_framework(run):
    said, told = run(
        "\n".join(f"import hccl_like.integrations.{name}" for name in integrations.FRAMEWORKS)
        + "\nimport sys; print(sorted({name.split('.')[0] for name in sys.modules} & set("
        + repr((*integrations.FRAMEWORKS, "transformers"))
        + ")))"
    )
    assert said == "[]\n" and told == ""


def test_every_integration_is_watched_has_a_module_and_a_row_of_the_page():
    folder = Path(integrations.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    page = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
    # torchtitan never takes the CPU: without its integration it raises.
    assert modules == set(integrations.FRAMEWORKS) == {*_guard.FIRST_USES, "torchtitan"}
    for name in modules:
        assert (
            f"`import hccl_like.integrations.{name}`" in page
            and f"test_integration_{name}.py" in page
        )
