"""Runs a command with the simulator in strict mode, and counts what all of its processes did there.

    python -m torch_sim.strictly python -m pytest tests

TORCH_SIM_STRICT, if set, is the seed; else one is drawn. The last line says how many processes worked on a device, and how
many accesses to device memory they made outside of the device's operations. It fails if the command does, if there was such
an access, whatever became of the process that made it (then the exit code is 3), or if no process worked on a device: then
nothing was checked.
"""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

_BEGINS = "sim: device memory is protected"


def run(command, environment=os.environ):
    """The exit code for `command`, run with standard output and error of this process."""
    seed = environment.get("TORCH_SIM_STRICT", "0")
    if seed == "0":
        seed = str(random.randrange(1, 1 << 15))
    print(f"strict mode, TORCH_SIM_STRICT={seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="sim-strict-") as folder:
        report = Path(folder) / "report"
        report.touch()
        strict = {"TORCH_SIM_STRICT": seed, "TORCH_SIM_STRICT_REPORT": str(report)}
        code = subprocess.run(command, env={**environment, **strict}).returncode
        lines = report.read_text().splitlines()
    accesses = [line for line in lines if not line.startswith(_BEGINS)]
    processes = len(lines) - len(accesses)
    for line in accesses:
        print(line)
    print(
        f"strict mode, TORCH_SIM_STRICT={seed}: {processes} processes,"
        f" {len(accesses)} accesses to device memory outside of the device's operations",
        flush=True,
    )
    if processes == 0:
        print("strict mode: no process worked on a device, so nothing was checked", file=sys.stderr)
    return 3 if accesses else code or int(processes == 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(run(sys.argv[1:]))
