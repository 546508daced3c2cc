"""The functions of scripts/test.sh and scripts/setup.sh, each alone in a shell."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import outcomes  # noqa: E402


def call(script, function, *arguments, before=""):
    """What the function of the script prints; `before` stands for the rest of the script."""
    (body,) = re.findall(rf"^{function}\(\) {{\n.*?^}}\n", (SCRIPTS / script).read_text(), re.M | re.S)
    shell = ["bash", "-c", f'{before}\n{body}\n{function} "$@"', "bash", *map(str, arguments)]
    return subprocess.run(shell, capture_output=True, text=True, timeout=120).stdout


def test_skipped_tests_are_named_whatever_the_settings_of_their_folder(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "test_a.py").write_text('import pytest\n\ndef test_b():\n    pytest.skip("no such device")\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    said = call("test.sh", "python_tests", "name", tmp_path, before=f"ROOT={tmp_path} VENV={tmp_path} MARKS=")
    (names,) = outcomes.skipped(said).values()
    assert len(names) == 1 and names[0].endswith("test_a.py::test_b"), said


def test_a_set_up_for_the_tests_of_a_change_brings_open_mpi():
    without_mpi = """
        TESTS=yes CXX_USED=g++
        command() { [ "$2" != mpiexec.openmpi ] && builtin command "$@"; }
        has_header() { true; }
        base_python() { command -v python3; }
    """
    assert "openmpi-bin" in call("setup.sh", "missing_packages", before=without_mpi).split()
    assert "openmpi-bin" not in call("setup.sh", "missing_packages", before=without_mpi.replace("TESTS=yes", "TESTS=no")).split()
