"""mpirun: init_method="mpi://", and the transport that goes over MPI, with each MPI there is."""

import pytest

import mpis


@pytest.fixture(params=mpis.ALL, ids=lambda mpi: mpi.name)
def mpi(request):
    return request.param


def said_ok(done, size):
    said = sorted(line for line in done.stdout.splitlines() if line.startswith("ok"))
    return said == [f"ok {rank} {size}" for rank in range(size)]


def test_ranks_find_each_other_under_mpirun(mpi):
    assert said_ok(mpi.run(3, "mpi_program.py", "nothing"), 3)


@pytest.mark.parametrize("size", [2, 4])
def test_every_collective_goes_over_mpi(mpi, size, tmp_path):
    log = {"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": str(tmp_path / "log")}
    done = mpi.run(size, "mpi_program.py", "every_collective", HCCL_LIKE_TRANSPORTS="mpi", HCCL_LIKE_BOARD="0", **log)
    assert said_ok(done, size)
    assert ": mpi by " in (tmp_path / "log").read_text()


def test_large_messages_go_over_mpi(mpi):
    assert said_ok(mpi.run(2, "mpi_program.py", "large", HCCL_LIKE_TRANSPORTS="mpi"), 2)


def test_groups_come_and_go(mpi):
    assert said_ok(mpi.run(2, "mpi_program.py", "again", HCCL_LIKE_TRANSPORTS="mpi"), 2)


@pytest.mark.parametrize("mpi", mpis.ALL[:2], ids=lambda mpi: mpi.name)
def test_a_program_that_has_started_mpi_keeps_it(mpi):
    assert said_ok(mpi.run(2, "mpi_program.py", "started_before", HCCL_LIKE_TRANSPORTS="mpi"), 2)


@pytest.mark.parametrize("mpi", mpis.ALL[:1], ids=lambda mpi: mpi.name)
def test_a_program_that_has_started_it_for_one_thread_is_told(mpi):
    done = mpi.run(2, "mpi_program.py", "started_before", "single", HCCL_LIKE_TRANSPORTS="mpi", check=False)
    assert done.returncode != 0
    assert "without MPI_THREAD_MULTIPLE" in done.stderr


def test_a_library_that_is_no_mpi_is_named(mpi):
    done = mpi.run(1, "mpi_program.py", "nothing", check=False, HCCL_LIKE_MPI_LIBRARY="libz.so.1")
    assert done.returncode != 0
    assert "libz.so.1 is not an MPI that is known" in done.stderr
