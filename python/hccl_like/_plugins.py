"""Finds device plugins: packages that publish an entry point in the group ``hccl_like.devices``.

The entry point's name is what torch calls the device, its value a :class:`hccl_like.DevicePlugin`, or a function that
returns the path of a library which exports ``hcd_get_api`` (see docs/plugin-guide.md). ``HCCL_LIKE_DEVICE_PLUGINS`` goes
before both. A library is loaded when its device is first used by a group; one that is broken does not disturb groups of CPU
tensors.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
from pathlib import Path

from hccl_like import _device_plugin, _packages

GROUP = "hccl_like.devices"
SETTING = "HCCL_LIKE_DEVICE_PLUGINS"

# Those that were built with this package, where the build found what they take; a vendor's own goes before.
BUNDLED = Path(__file__).parent / "plugins"

# Devices whose plugin's initialize() was called, and what it raised.
_initialized: dict[str, Exception | None] = {}


@functools.cache
def packaged() -> dict[str, _device_plugin.DevicePlugin | Exception]:
    """Device name to what a package brings for it, or to what went wrong when the package was asked."""
    result: dict[str, _device_plugin.DevicePlugin | Exception] = {}
    for file in os.listdir(BUNDLED) if BUNDLED.is_dir() else ():
        if file.endswith(".so"):
            result[file[:-3]] = _device_plugin.of(BUNDLED / file)
    for name, entry in entries(GROUP).items():
        try:
            result[name] = entry if isinstance(entry, Exception) else _device_plugin.of(entry.load())
        except Exception as error:  # a vendor's code: anything can come out of it
            result[name] = error
    return result


@functools.cache
def found() -> dict[str, str | Exception]:
    """Device name to its library's path, or to what went wrong when its package was asked for it."""
    result: dict[str, str | Exception] = {}
    for name, plugin in packaged().items():
        result[name] = plugin if isinstance(plugin, Exception) else path_or_error(plugin.library_path, type(plugin).__name__)
    for part in filter(None, os.environ.get(SETTING, "").split(",")):
        name, _, path = part.partition("=")
        if path == "none":
            result.pop(name, None)
        else:
            result[name] = path_or_error(lambda path=path: path, SETTING)
    return result


def _installed() -> list[importlib.metadata.EntryPoint]:
    """The entry points of this package's groups."""
    return [entry for package in _packages.with_entry_points("hccl_like.") for entry in package.entry_points]


def entries(group: str) -> dict[str, importlib.metadata.EntryPoint | Exception]:
    """The entry points of a group by name; an error for a name that two packages claim."""
    result: dict[str, importlib.metadata.EntryPoint | Exception] = {}
    chosen = [entry for entry in _installed() if entry.group == group]
    for entry in chosen:
        if entry.name in result:
            both = " and ".join(
                f"{one.value} (of {one.dist.name if one.dist else 'a package'})" for one in chosen if one.name == entry.name
            )
            result[entry.name] = RuntimeError(f"there are two for '{entry.name}', {both}; uninstall one of the packages")
        else:
            result[entry.name] = entry
    return result


def path_or_error(path_of, origin: str) -> str | Exception:
    try:
        path = os.fspath(path_of())
        if not os.path.exists(path):
            raise FileNotFoundError(f"{origin} names {path}, which does not exist")
        return path
    except Exception as error:  # a vendor's code again
        return error


def libraries(group: str) -> dict[str, str | Exception]:
    """The entry points of a group whose functions return paths: name to path, or to what went wrong."""
    return {
        name: entry if isinstance(entry, Exception) else path_or_error(lambda entry=entry: entry.load()(), entry.value)
        for name, entry in entries(group).items()
    }


def describe() -> dict[str, str]:
    """See :func:`hccl_like.plugins`."""
    return {
        name: path if isinstance(path, str) else f"unusable: {type(path).__name__}: {path}"
        for name, path in found().items()
    }


def properties(name: str) -> dict[str, str]:
    """What the package of a device tells of its plugin; empty if there is none, or if it cannot."""
    plugin = packaged().get(name)
    try:
        return dict(plugin.properties()) if isinstance(plugin, _device_plugin.DevicePlugin) else {}
    except Exception as error:  # it is only for people to read
        return {"unknown": f"{type(error).__name__}: {error}"}


def plugin_of(name: str) -> _device_plugin.DevicePlugin:
    """What places ranks on devices of this name: the package's plugin, or the rule for all others."""
    plugin = packaged().get(name)
    return plugin if isinstance(plugin, _device_plugin.DevicePlugin) else _device_plugin.DevicePlugin()


def initialize_early() -> None:
    """While torch is imported by a rank that a launcher has started: before a call to the device is possible.

    Which device this process will use is not known yet, since torch loads packages in any order.
    """
    if not _device_plugin.is_launched():
        return
    for name, plugin in packaged().items():
        if isinstance(plugin, _device_plugin.DevicePlugin) and type(plugin).initialize is not _device_plugin.DevicePlugin.initialize:
            _initialize(name)


def register(extension) -> None:
    """Tells the extension about every usable plugin, and why the others are not; initialises the one that may be used now.

    To be called for every group: what PrivateUse1 stands for may have been named since the last.
    """
    _register_paths(extension)
    from hccl_like import _registration

    name = _registration.served_accelerator()
    if name is not None and isinstance(found().get(name), str):
        _initialize(name)
        if (error := _initialized[name]) is not None:
            extension.register_broken_device_plugin(name, f"its initialize() raised {type(error).__name__}: {error}")


@functools.cache
def _register_paths(extension) -> None:
    for name, path in found().items():
        if isinstance(path, str):
            extension.register_device_plugin(name, path)
        else:
            extension.register_broken_device_plugin(name, f"{type(path).__name__}: {path}")


def _initialize(name: str) -> None:
    if name in _initialized:
        return
    _initialized[name] = None
    try:
        plugin_of(name).initialize()
    except Exception as error:
        _initialized[name] = error
