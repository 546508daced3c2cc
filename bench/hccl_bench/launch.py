"""Starts the ranks when nobody else did."""

import os
import subprocess
import sys
from pathlib import Path

PERF = Path(__file__).resolve().parent.parent / "perf.py"


def main(argv: list[str]) -> int:
    """Runs the benchmark here if this is a rank already (torchrun), or in -g ranks of its own."""
    if "RANK" in os.environ:
        from .run import run

        return run(argv)
    from .options import parse

    ranks = parse(argv).nproc
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(PERF)]
    return subprocess.call(command + argv, env={"OMP_NUM_THREADS": "1", **os.environ})
