"""The libraries we compare with: where their packages go, how their programs are built and started.

What a library is told is what measured best for it: where ranks outnumber cores, one that can yield is told to, and one
that can only spin is left out (milliseconds for every call, for everyone on the machine).
"""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
AGENT = str(HERE / "agent.sh")
ROOT = HERE.parents[1]
FLAGS = ["-std=c++20", "-O3", "-march=native", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"]


@dataclass(frozen=True)
class Library:
    name: str
    title: str
    packages: tuple[str, ...]
    link: str
    source: str = "mpi_serve.cc"
    launch: tuple[str, ...] | None = ("-n", "{ranks}")  # of mpiexec; None: the ranks are started one by one
    environment: dict = field(default_factory=dict)
    crowded: dict | None = None  # more settings where ranks outnumber cores; None: not to be measured there on one host
    between: dict = field(default_factory=dict)  # more settings between hosts
    across: tuple[str, ...] = ("-launcher", "ssh", "-launcher-exec", AGENT, "-iface", "eth0", "-hosts", "{addresses}",
                               "-ppn", "1", "-n", "{ranks}")  # of mpiexec between hosts
    shares: str = ""  # the library whose folder it is in
    bfloat16: str = "own type"

    def folder(self, under: Path) -> Path:
        return under / (self.shares or self.name)

    def program(self, under: Path) -> Path:
        return self.folder(under) / "serve"


LIBRARIES = {
    library.name: library
    for library in (
        Library("mpich", "MPICH", ("mpich",), "mpi", launch=("-launcher", "fork", "-n", "{ranks}"),
                between={"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}),
        Library("mpich-ucx", "MPICH (UCX)", ("mpich",), "mpi", launch=("-launcher", "fork", "-n", "{ranks}"), shares="mpich",
                between={"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self"}),
        Library("openmpi", "Open MPI", ("openmpi",), "mpi",
                launch=("--bind-to", "none", "--map-by", ":OVERSUBSCRIBE", "-n", "{ranks}"),
                environment={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                             "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
                across=("--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", AGENT, "--bind-to", "none", "--host",
                        "{addresses}", "-n", "{ranks}"),
                crowded={"OMPI_MCA_mpi_yield_when_idle": "1"}, bfloat16="uint16 with an operation of ours"),
        Library("impi", "Intel MPI", ("impi-rt", "impi-devel"), "mpi", launch=("-launcher", "fork", "-n", "{ranks}"),
                environment={"I_MPI_PIN": "0", "I_MPI_FABRICS": "shm"}, crowded={"I_MPI_THREAD_YIELD": "2"},
                between={"I_MPI_FABRICS": "ofi", "FI_PROVIDER": "tcp"}),
        Library("oneccl", "oneCCL", ("oneccl", "oneccl-devel"), ":libccl.so.1", source="oneccl_serve.cc", launch=None,
                environment={"CCL_ATL_TRANSPORT": "ofi", "CCL_WORKER_OFFLOAD": "0", "CCL_ATL_SHM": "1", "CCL_LOG_LEVEL": "error"},
                between={"CCL_ATL_SHM": "0", "FI_PROVIDER": "tcp", "CCL_KVS_IFACE": "eth0"}),
        Library("ucc", "UCC", (), "ucc", source="ucc_serve.cc", launch=None, environment={"UCX_TLS": "sm,self"},
                between={"UCX_TLS": "tcp,self"}),
    )
}


def install(library: Library, under: Path) -> str | None:
    """Fetches the packages and builds the program; what went wrong, if anything did."""
    folder = library.folder(under)
    if not (folder / "include").exists():
        if not library.packages:
            return f"no package in the index has it: build it with the prefix {folder}"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-warn-script-location", "--ignore-installed",
                   "--prefix", str(folder), *library.packages]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"pip cannot install {' '.join(library.packages)}: {last_line(done.stderr)}"
    program = library.program(under)
    sources = [HERE / library.source, HERE / "serve.cc"]
    newest = max(path.stat().st_mtime for path in (*HERE.glob("serve.*"), HERE / library.source))
    if program.exists() and program.stat().st_mtime > newest:
        return None
    libraries = folder / "lib"
    command = [os.environ.get("CXX", "g++"), *FLAGS, f"-I{ROOT}", "-isystem", str(folder / "include"),
               *map(str, sources), "-o", str(program), f"-L{libraries}", f"-l{library.link}", f"-Wl,-rpath,{libraries}",
               "-Wl,--allow-shlib-undefined"]
    done = subprocess.run(command, capture_output=True, text=True)
    return f"cannot build its program: {last_line(done.stderr)}" if done.returncode else None


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]


def commands(library: Library, under: Path, ranks: int, hosts=None) -> list[list[str]]:
    """What starts its ranks, one on each of the hosts if there are any: a launcher, or one command a rank. "{pipes}" stands
    for the folder of the pipes."""
    program = str(library.program(under))
    if library.launch is None:
        return placed([[program, "{pipes}", str(rank), str(ranks)] for rank in range(ranks)], hosts)
    launcher = str(library.folder(under) / "bin" / "mpiexec")
    addresses = ",".join(host.address() for host in hosts or ())
    how = [part.format(ranks=ranks, addresses=addresses) for part in (library.across if hosts else library.launch)]
    command = [launcher, *how, program, "{pipes}"]
    if not hosts:
        return [command]
    return [hosts[0].command(["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', hosts[0].name, *command])]


def placed(commands: list[list[str]], hosts) -> list[list[str]]:
    """One command a rank, each on its host."""
    return [host.command(command) for host, command in zip(hosts, commands)] if hosts else commands


def environment(library: Library, under: Path, ranks: int, cores: int, hosts=None) -> dict | None:
    """Its variables; None if it must not run with so many ranks on so few cores."""
    settings = {**library.environment, "I_MPI_ROOT": str(library.folder(under))}
    if library.launch is None:
        settings["LD_LIBRARY_PATH"] = settings["FI_PROVIDER_PATH"] = str(library.folder(under) / "lib")
    if hosts:
        settings |= {**library.between, "HOSTS": " ".join(f"{host.address()}={host.name}" for host in hosts)}
    if ranks > cores:
        if library.crowded is None and not hosts:
            return None
        settings |= library.crowded or {}
    return {**os.environ, **settings}
