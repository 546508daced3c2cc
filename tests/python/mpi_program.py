"""What the ranks that mpirun starts do: mpi_program.py FUNCTION. Prints "ok RANK SIZE" at its end."""

import ctypes
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from test_collectives import every_collective
from test_mismatches import disagree


def large(rank, size):
    many = (16 << 20) + 13
    tensor = torch.full((many,), rank + 1, dtype=torch.int32)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((many,), size * (size + 1) // 2, dtype=torch.int32))


def calls_that_differ(rank, size):
    wrong = disagree(rank, size, "cpu", odd_ranks=1)
    assert not wrong, "\n".join(wrong)


def again(rank, size):
    """Groups come and go; MPI is started once."""
    for _ in range(3):
        dist.destroy_process_group()
        dist.init_process_group("hccl-like", init_method="mpi://", timeout=timedelta(seconds=30))
        tensor = torch.ones(5)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [size] * 5


def one_is_killed(rank, size):
    """The other waits for a message of it. MPI can't be ended in order after that."""
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        dist.recv(tensor, src=1)
    except RuntimeError as error:
        os.write(1, f"after {time.monotonic() - begin} s: {error}\n".encode())
    os._exit(0)


def nothing(rank, size):
    pass


def start_mpi_first():
    """As a program does that uses MPI itself: its own library, started by itself."""
    mpi = ctypes.CDLL(os.environ["OWN_MPI"], mode=ctypes.RTLD_GLOBAL)
    multiple = 4096 if "abi" in os.environ["OWN_MPI"] else 3
    provided = ctypes.c_int()
    wanted = multiple if sys.argv[2:] != ["single"] else 0
    assert mpi.MPI_Init_thread(None, None, wanted, ctypes.byref(provided)) == 0
    return mpi


def main():
    torch.set_num_threads(1)
    own = start_mpi_first() if sys.argv[1] == "started_before" else None
    dist.init_process_group("hccl-like", init_method="mpi://", timeout=timedelta(seconds=30))
    rank, size = dist.get_rank(), dist.get_world_size()
    globals().get(sys.argv[1], every_collective)(rank, size)
    dist.destroy_process_group()
    if own is not None:
        assert own.MPI_Finalize() == 0
    os.write(1, f"ok {rank} {size}\n".encode())


main()
