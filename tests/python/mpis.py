"""The MPIs that tests run: the packages of the Python index, each in a folder of its own, and the system's.

A package is fetched once into build/tests/mpi. What cannot be had skips its tests with the reason.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Mpi:
    name: str
    package: str | None  # None: the system's, with a launcher of its own name
    flags: tuple[str, ...] = ()
    launcher: str = "mpiexec"
    library: str = ""  # in its folder lib, to be named to the ranks; else they find it

    def prefix(self):
        """Where it is; skips the test that asks if it cannot be had."""
        if self.package is None:
            program = shutil.which(self.launcher) or pytest.skip(f"no {self.name}: install openmpi-bin and mpich")
            return Path(program).parent.parent
        for folder in (ROOT / "build" / "peers" / self.package, ROOT / "build" / "tests" / "mpi" / self.package):
            if (folder / "bin" / "mpiexec").exists():
                return folder
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed", "--prefix", str(folder)]
        done = subprocess.run([*pip, self.package], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"pip cannot install {self.package}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        return folder

    def libfabric(self):
        return next(self.prefix().glob("lib/*/libfabric.so.1"), None)

    def command(self, size, program, *arguments, more=()):
        launcher = self.prefix() / "bin" / self.launcher
        return [str(launcher), *self.flags, *more, "-n", str(size), sys.executable, str(HERE / program), *arguments]

    def environment(self, **settings):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HCCL_LIKE_", "MASTER_"))}
        library = {"HCCL_LIKE_MPI_LIBRARY": str(self.prefix() / "lib" / self.library)} if self.library else {}
        path = os.pathsep.join(entry for entry in sys.path if entry)
        return {**inherited, **library, **_AS_ROOT, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **settings}

    def run(self, size, program, *arguments, more=(), command=lambda it: it, timeout=120, check=True, **settings):
        """Runs tests/python/<program> on so many ranks; what they printed."""
        done = subprocess.run(
            command(self.command(size, program, *arguments, more=more)),
            env=self.environment(**settings),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{self.name}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done


_AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}

HYDRA = ("-launcher", "fork")
MPICH = Mpi("MPICH", "mpich", HYDRA)
OPEN_MPI = Mpi("Open MPI", "openmpi", ("--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"))
SYSTEM_OPEN_MPI = Mpi("Open MPI of the system", None, ("--bind-to", "none", "--oversubscribe"), "mpiexec.openmpi")
ALL = (MPICH, OPEN_MPI, SYSTEM_OPEN_MPI)
# With MPICH's older binary interface; the standard one through the linker's script that a wheel has in the place of a link.
OLDER = (
    Mpi("MPICH by its older interface", "mpich", HYDRA, library="libmpi.so.12"),
    Mpi("MPICH by a script", "mpich", HYDRA, library="libmpi_abi.so"),
    Mpi("Intel MPI", "impi-rt", HYDRA),
    Mpi("Intel MPI by its older interface", "impi-rt", HYDRA, library="libmpi.so.12"),
    Mpi("MPICH of the system", None, HYDRA, "mpiexec.mpich"),
)
