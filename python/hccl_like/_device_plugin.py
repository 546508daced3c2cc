"""What a device's package tells about the device. See docs/plugin-guide.md."""

from __future__ import annotations

import os

# Launchers and what they call the rank's number on its host, and how many there are.
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_LOCAL_WORLD_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")


class DevicePlugin:
    """The base of what an entry point in the group ``hccl_like.devices`` names: a class of this kind, or an object of one.

    Only :meth:`library_path` must be there. None of the methods may open the device, but :meth:`initialize`, and no other is
    called in a process that makes no group. An exception from any makes the plugin unusable and is told to whoever uses the
    device; groups of CPU tensors go on.
    """

    def library_path(self) -> str | os.PathLike:
        """The shared library that exports ``hcd_get_api``."""
        raise NotImplementedError(f"{type(self).__name__} must say where its library is: define library_path()")

    def initialize(self) -> None:
        """Called once in a process, before the library is loaded: in a rank that a launcher has started (torchrun, mpirun, srun)
        while torch is imported, in any other process when the first group is made that may use the device.

        For what must come before the first client of the device: environment variables of its runtime, which device this process may
        see (:meth:`local_rank`), a licence, a lock. torch is not imported completely then.
        """

    def properties(self) -> dict[str, str]:
        """What people should see of the plugin, its version for one; ``hccl-like info`` shows it."""
        return {}

    def local_rank(self) -> int:
        """This process' number among those of the job on this host; 0 if no launcher says."""
        return _first_number(_LOCAL_RANK, 0)

    def local_world_size(self) -> int:
        """How many processes of the job run on this host; 1 if no launcher says."""
        return _first_number(_LOCAL_WORLD_SIZE, 1)

    def device_index(self, local_rank: int, local_world_size: int, device_count: int) -> int:
        """Which device a process should take. One after the other, and round again if there are more processes.

        A vendor whose devices are wired in pairs, or who lets several processes share one, knows better.
        """
        del local_world_size
        return local_rank % device_count


class LibraryAlone(DevicePlugin):
    """What a function that returns a path stands for."""

    def __init__(self, path: str | os.PathLike):
        self._path = path

    def library_path(self):
        return self._path


def of(value) -> DevicePlugin:
    """The plugin that an entry point's value stands for: an object, a class, or a function that returns either or a path."""
    made = value if isinstance(value, (DevicePlugin, str, os.PathLike)) else value()
    return made if isinstance(made, DevicePlugin) else LibraryAlone(os.fspath(made))


def is_launched() -> bool:
    """Whether a launcher has told this process its place on the host."""
    return any(name in os.environ for name in _LOCAL_RANK)


def _first_number(names: tuple[str, ...], otherwise: int) -> int:
    for name in names:
        if (text := os.environ.get(name, "")).isdecimal():
            return int(text)
    return otherwise
