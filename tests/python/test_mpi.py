"""mpirun: init_method="mpi://", and the transport that goes over MPI, with each MPI there is."""

import re

import pytest

import mpis
from conftest import slow_after_first


@pytest.fixture(params=[mpis.MPICH, pytest.param(mpis.OPEN_MPI, marks=pytest.mark.slow), mpis.SYSTEM_OPEN_MPI], ids=lambda mpi: mpi.name)
def mpi(request):
    return request.param


def said_ok(done, size):
    said = sorted(line for line in done.stdout.splitlines() if line.startswith("ok"))
    return said == [f"ok {rank} {size}" for rank in range(size)]


def test_ranks_find_each_other_under_mpirun(mpi):
    assert said_ok(mpi.run(3, "mpi_program.py", "nothing"), 3)


@pytest.mark.parametrize("other", [mpis.OLDER[0], *(pytest.param(one, marks=pytest.mark.slow) for one in mpis.OLDER[1:])],
                         ids=lambda mpi: mpi.name)  # fmt: skip
def test_every_collective_goes_over_any_mpi(other, tmp_path):
    log = {"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": str(tmp_path / "log")}
    done = other.run(2, "mpi_program.py", "every_collective", HCCL_LIKE_TRANSPORTS="mpi", HCCL_LIKE_BOARD="0", **log)
    assert said_ok(done, 2)
    assert ": mpi by " in (tmp_path / "log").read_text()


@pytest.mark.parametrize("mpi", [mpis.MPICH, *slow_after_first([mpis.OPEN_MPI, mpis.SYSTEM_OPEN_MPI])], ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_every_collective_goes_over_mpi(mpi, size, tmp_path):
    log = {"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": str(tmp_path / "log")}
    done = mpi.run(size, "mpi_program.py", "every_collective", HCCL_LIKE_TRANSPORTS="mpi", HCCL_LIKE_BOARD="0", **log)
    assert said_ok(done, size)
    assert ": mpi by " in (tmp_path / "log").read_text()


@pytest.mark.parametrize("mpi", slow_after_first(mpis.ALL[:2]), ids=lambda mpi: mpi.name)
def test_all_ranks_are_told_of_calls_that_differ(mpi, tmp_path):
    log = {"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": str(tmp_path / "log")}
    assert said_ok(mpi.run(3, "mpi_program.py", "calls_that_differ", HCCL_LIKE_TRANSPORTS="mpi", HCCL_LIKE_BOARD="0", **log), 3)
    assert ": mpi by " in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_large_messages_go_over_mpi(mpi):
    assert said_ok(mpi.run(2, "mpi_program.py", "large", HCCL_LIKE_TRANSPORTS="mpi"), 2)


@pytest.mark.slow
def test_groups_come_and_go(mpi):
    assert said_ok(mpi.run(2, "mpi_program.py", "again", HCCL_LIKE_TRANSPORTS="mpi"), 2)


# The library that a program of each has loaded itself.
OWN = {"mpich": "lib/libmpi_abi.so.1", "openmpi": "lib/libmpi.so.40"}


@pytest.mark.parametrize("mpi", slow_after_first(mpis.ALL[:2]), ids=lambda mpi: mpi.name)
def test_a_program_that_has_started_mpi_keeps_it(mpi):
    own = str(mpi.prefix() / OWN[mpi.package])
    assert said_ok(mpi.run(2, "mpi_program.py", "started_before", HCCL_LIKE_TRANSPORTS="mpi", OWN_MPI=own), 2)


@pytest.mark.parametrize("mpi", mpis.ALL[:1], ids=lambda mpi: mpi.name)
def test_a_program_that_has_started_it_for_one_thread_is_told(mpi):
    own = str(mpi.prefix() / OWN[mpi.package])
    done = mpi.run(2, "mpi_program.py", "started_before", "single", HCCL_LIKE_TRANSPORTS="mpi", check=False, OWN_MPI=own)
    assert done.returncode != 0
    assert "without MPI_THREAD_MULTIPLE" in done.stderr


@pytest.mark.parametrize("mpi", slow_after_first(mpis.ALL), ids=lambda mpi: mpi.name)
def test_a_library_that_is_no_mpi_is_named(mpi):
    done = mpi.run(1, "mpi_program.py", "nothing", check=False, HCCL_LIKE_MPI_LIBRARY="libz.so.1")
    assert done.returncode != 0
    assert "libz.so.1 is not an MPI that is known" in done.stderr


# Without this flag mpiexec kills the ranks that are left.
LEFT_ALONE = "-disable-auto-cleanup"


# MPICH's mpiexec ends all ranks of a host with the first, whatever it is told; between hosts it is tried below.
@pytest.mark.parametrize("mpi", slow_after_first(mpis.ALL[1:]), ids=lambda mpi: mpi.name)
def test_a_rank_that_is_killed_is_named_to_all_that_are_left(mpi):
    done = mpi.run(3, "mpi_program.py", "one_is_killed", more=("--enable-recovery",), check=False, HCCL_LIKE_TRANSPORTS="mpi")
    told = re.findall(r"after (\S+) s: (.*)", done.stdout)
    assert len(told) == 2, done.stdout + done.stderr
    for late, error in told:
        assert "lost rank 1 (" in error and "the mpi connection to " in error and "its process has ended" in error, error
        assert float(late) < 5, error


# The hosts are one machine, so MPICH finds shared memory between them.
NETWORK_ONLY = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}


def launcher(tmp_path, hosts):
    """What mpiexec calls instead of ssh: starts a command on the host of that address."""
    script = tmp_path / "on_host"
    cases = "\n".join(f"  {host.address()}) namespace={host.name} ;;" for host in hosts)
    script.write_text(
        f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\ncase $1 in\n{cases}\nesac\nshift\n'
        'exec ip netns exec "$namespace" sh -c "$*"\n'
    )
    script.chmod(0o755)
    return script


@pytest.mark.slow
@pytest.mark.parametrize("transports", [pytest.param("mpi", marks=pytest.mark.slow), "shm,mpi"])
def test_every_collective_is_exact_between_two_hosts(transports, make_hosts, tmp_path):
    hosts = make_hosts(2)
    there = ",".join(f"{host.address()}:2" for host in hosts)
    mpi = mpis.Mpi("MPICH", "mpich", ("-launcher", "ssh", "-launcher-exec", str(launcher(tmp_path, hosts))))
    log = {"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": str(tmp_path / "log")}
    done = mpi.run(4, "mpi_program.py", "every_collective", more=("-hosts", there, "-iface", "eth0"),
                   command=hosts[0].command, HCCL_LIKE_TRANSPORTS=transports, **NETWORK_ONLY, **log)  # fmt: skip
    assert said_ok(done, 4)
    assert hosts[1].counters()["tx_bytes"] > 1 << 20, "MPI has found a way past the network"
    routes = (tmp_path / "log").read_text()
    assert routes.count(": mpi by ") == (12 if transports == "mpi" else 8)


@pytest.mark.slow
def test_a_rank_that_is_killed_on_another_host_is_noticed_within_a_second(make_hosts, tmp_path):
    hosts = make_hosts(2)
    there = ",".join(f"{host.address()}:1" for host in hosts)
    mpi = mpis.Mpi("MPICH", "mpich", ("-launcher", "ssh", "-launcher-exec", str(launcher(tmp_path, hosts))))
    done = mpi.run(2, "mpi_program.py", "one_is_killed", more=(LEFT_ALONE, "-hosts", there, "-iface", "eth0"),
                   command=hosts[0].command, check=False, HCCL_LIKE_TRANSPORTS="mpi", **NETWORK_ONLY)  # fmt: skip
    assert "the mpi connection to " in done.stdout and "lost rank 1 (" in done.stdout, done.stdout + done.stderr
    assert float(re.search(r"after (\S+) s:", done.stdout).group(1)) < 1, done.stdout
