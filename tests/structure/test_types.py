"""mypy over the package, and over programs that use the package's types."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed: requirements/test.txt has it")

# The package's types come from its source tree. torch is not analysed, which would take a minute.
CONFIG = "[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n"

PROGRAM = """
from datetime import timedelta

import hccl_like

options: hccl_like.Options = hccl_like.Options(timeout=timedelta(seconds=30), algorithms="all_reduce:ring")
limit: timedelta = options.timeout
version: str = hccl_like.__version__
tensor = hccl_like.empty(3)
try:
    tensor.fill_(1)
except RuntimeError as error:
    failure = hccl_like.failure(error)
    if failure is not None:
        kind: str = failure.kind


class Plugin(hccl_like.DevicePlugin):
    def library_path(self) -> str:
        return "/opt/vendor/libplugin.so"
"""


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Runs mypy; returns its exit code and its output."""
    cache = tmp_path_factory.mktemp("cache")

    def run(*arguments, folder):
        command = [sys.executable, "-m", "mypy", "--no-color-output", f"--cache-dir={cache}", *arguments]
        environment = {**os.environ, "MYPYPATH": str(ROOT / "python")}
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        return ended.returncode, ended.stdout + ended.stderr

    return run


@pytest.fixture
def check_program(mypy, tmp_path):
    def check(text):
        (tmp_path / "mypy.ini").write_text(CONFIG)
        (tmp_path / "program.py").write_text(text)
        return mypy("program.py", folder=tmp_path)

    return check


def test_the_package_has_no_type_error(mypy):
    code, said = mypy(folder=ROOT)
    assert code == 0, said


def test_a_program_that_uses_the_package_correctly_has_no_type_error(check_program):
    code, said = check_program(PROGRAM)
    assert code == 0, said


@pytest.mark.parametrize(
    "line, error",
    [
        ("hccl_like.Options(timeout=3)", 'Argument "timeout" to "Options" has incompatible type "int"; expected "timedelta"'),
        ("hccl_like.failure(3)", 'Argument 1 to "failure" has incompatible type "int"'),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it(check_program, line, error):
    code, said = check_program(f"import hccl_like\n\n{line}\n")
    assert code == 1, said
    assert f"program.py:3: error: {error}" in said
