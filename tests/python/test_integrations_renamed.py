"""Integrations on a device under a name of its vendor's, without a plugin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from integrations import needs
from test_autoload import install
from test_renamed_device import VENDOR

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from integrations import are_as_of_one_process, launched
from {module} import {function}

assert not hasattr(torch, "sim")
are_as_of_one_process(launched({function}, {arguments}), kind="npux")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework, function, arguments",
    [
        ("accelerate", "trains", "True"),
        ("lightning", "fabric_trains", "'lightning'"),
        ("deepspeed", "trains", "True, 2"),
    ],
)
def test_ranks_train_one_model_on_a_device_of_any_name(
    framework, function, arguments, sim, tmp_path
):
    needs(framework)
    folder = install(tmp_path, "npux_device", VENDOR)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    program = PROGRAM.format(
        module=f"test_integration_{framework}", function=function, arguments=arguments
    )
    done = subprocess.run(
        [sys.executable, "-c", program, Path(__file__).parent],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TORCH_SIM": "0", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
