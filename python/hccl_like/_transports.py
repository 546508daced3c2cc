"""Finds transport modules: packages that publish an entry point in the group ``hccl_like.transports``.

The entry point's name is what users write in ``HCCL_LIKE_TRANSPORTS``, its value a function that returns the path of a
library which exports ``hct_get_api`` (see docs/transport-guide.md). A module is loaded when the setting names it, so one
that is broken disturbs nobody else.
"""

from __future__ import annotations

import functools
from pathlib import Path

from hccl_like import _packages, _plugins

GROUP = "hccl_like.transports"

# Packages that bring a library which a transport of ours can load, from folders that the loader does not search.
LIBRARIES = (
    ("mpi", "mpich", "libmpi_abi.so.1"),
    ("mpi", "openmpi", "libmpi.so.40"),
    ("mpi", "impi-rt", "libmpi_abi.so.1"),
    ("mpi", "impi-rt", "libmpi.so.12"),  # of versions before MPI 5
    ("fabric", "mpich", "libfabric.so.1"),
    ("fabric", "impi-rt", "libfabric.so.1"),
)


@functools.cache
def register(extension) -> None:
    """Tells the extension about every module, and why some are unusable."""
    for name, path in _plugins.libraries(GROUP).items():
        if isinstance(path, str):
            extension.register_transport(name, path)
        else:
            extension.register_broken_transport(name, f"{type(path).__name__}: {path}")
    for transport, package, name in LIBRARIES:
        for path in packaged(package, name):
            extension.register_transport_library(transport, path)


def describe() -> dict[str, str]:
    """See :func:`hccl_like.transports`."""
    known = {name: "built in" for name in ("shm", "tcp")}
    for transport, package, name in reversed(LIBRARIES):
        for path in packaged(package, name):
            known[transport] = path
    known |= {name: "loaded at run time, if the loader finds its library" for name in ("fabric", "mpi") if name not in known}
    for name, found in _plugins.libraries(GROUP).items():
        known[name] = found if isinstance(found, str) else f"unusable: {type(found).__name__}: {found}"
    return known


def packaged(package: str, name: str) -> list[str]:
    """Where an installed package keeps files of this name."""
    found = _packages.find(package)
    files = found.files if found is not None else None
    return [str(Path(file.locate()).resolve()) for file in files or [] if file.name == name]
