"""Runs the ranks of hanging_job.py as processes of this host, healthy or ill."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

JOB = Path(__file__).with_name("hanging_job.py")


@contextlib.contextmanager
def job(folder, illness="data", size=3, first=None, **environment):
    """The ranks' processes once they have made two calls."""
    variables = {"WORLD_SIZE": str(size), "HCCL_LIKE_DUMP_SIGNAL": "USR2", "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/trace_", "OMP_NUM_THREADS": "1",
                 "MASTER_PORT": str(folder), "HCCL_LIKE_DEBUG_FILE": f"{folder}/log", **environment}  # fmt: skip
    ranks = []
    try:
        for rank in range(size):
            mine = {**os.environ, **variables, **(first or {} if rank == 0 else {}), "RANK": str(rank), "LOCAL_RANK": str(rank)}
            ranks.append(subprocess.Popen([sys.executable, str(JOB), str(folder), illness], env={k: v for k, v in mine.items() if v}))
        deadline = time.monotonic() + 60
        while not all((folder / f"ready{rank}").exists() for rank in range(size)):
            assert time.monotonic() < deadline and all(rank.poll() is None for rank in ranks), "the job did not start"
            time.sleep(0.02)
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
