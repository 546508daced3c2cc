"""Finds device plugins: packages that publish an entry point in the group ``hccl_like.devices``.

The entry point's name is the device's PrivateUse1 name, its value a function that returns the path of a library which
exports ``hcd_get_api`` (see docs/plugin-guide.md). A plugin is looked up when its device is first used by a group; one
that is broken does not disturb groups of CPU tensors.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os

GROUP = "hccl_like.devices"


@functools.cache
def found() -> dict[str, str | Exception]:
    """Device name to its library's path, or to what went wrong when its package was asked for it."""
    return libraries(GROUP)


def libraries(group: str) -> dict[str, str | Exception]:
    """The entry points of a group that name libraries: name to path, or to what went wrong."""
    result: dict[str, str | Exception] = {}
    for entry in importlib.metadata.entry_points(group=group):
        try:
            path = os.fspath(entry.load()())
            if not os.path.exists(path):
                raise FileNotFoundError(f"{entry.value} names {path}, which does not exist")
            result[entry.name] = path
        except Exception as error:  # a vendor's code: anything can come out of it
            result[entry.name] = error
    return result


def describe() -> dict[str, str]:
    """See :func:`hccl_like.plugins`."""
    return {
        name: path if isinstance(path, str) else f"unusable: {type(path).__name__}: {path}"
        for name, path in found().items()
    }


@functools.cache
def register(extension) -> None:
    """Tells the extension about every usable plugin, and why the others are not."""
    for name, path in found().items():
        if isinstance(path, str):
            extension.register_device_plugin(name, path)
        else:
            extension.register_broken_device_plugin(name, f"{type(path).__name__}: {path}")
