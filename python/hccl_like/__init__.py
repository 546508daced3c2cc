"""Collective communication for PyTorch on any accelerator: ``dist.init_process_group("hccl-like")``.

Nothing needs to be imported: torch finds this package through its entry point and registers the backend. What is here
is for those who want more: options for one group, the settings in force, the device plugins that were found.

This module is imported by every process that imports torch, so it imports nothing that costs time. The C++ extension is
loaded when the first group is made, or when a name below that needs it is used.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from hccl_like._C import Options, ProcessGroupHcclLike
    from hccl_like._device_plugin import DevicePlugin
    from hccl_like._failures import Failure
    from hccl_like.elastic import grow, join, replace
    from hccl_like.suspension import resume, suspend

    __version__: str

__all__ = [
    "DevicePlugin",
    "Options",
    "ProcessGroupHcclLike",
    "dump_flight_recorder",
    "empty",
    "enable_symmetric_memory",
    "failure",
    "grow",
    "is_available",
    "is_mappable",
    "join",
    "local_device",
    "plugins",
    "register",
    "replace",
    "resume",
    "settings",
    "suspend",
    "transports",
    "version",
    "write_flight_recorder",
]

_autoload_error: BaseException | None = None


def _autoload() -> None:
    """Registers the backend with torch; what the entry points call. Never raises for that, starts no thread, opens no device.

    An error is kept and told when the backend is used, since raising here would break ``import torch`` itself.
    """
    global _autoload_error
    try:
        from hccl_like import _plugins, _registration, integrations

        _registration.register()
        _plugins.initialize_early()
        integrations.install()
    except Exception as error:  # whatever it is: torch must still import
        _autoload_error = error
        _register_the_error(error)
    if "_HCCL_LIKE_IMPORT" in os.environ:  # one of our commands was told what else brings a device: this must not fail unheard
        from hccl_like import _imports

        _imports.after_torch()


def _register_the_error(error: Exception) -> None:
    """Lets ``init_process_group("hccl-like")`` say why there is no such backend, where torch takes a registration at all."""

    try:
        _stand_in(
            f"hccl-like could not be loaded when torch was imported ({type(error).__name__}: {error}); 'hccl-like info' tells more",
            error,
        )
    except Exception:
        pass  # the error is kept for hccl_like.is_available() and the command line


def _stand_in(why: str, cause: BaseException | None = None) -> None:
    """Registers a backend that says why it is none."""
    import torch.distributed

    def tell(*_):
        raise RuntimeError(why) from cause

    torch.distributed.Backend.register_backend("hccl-like", tell, extended_api=True, devices=["cpu"])


def register() -> None:
    """Makes the backend known to torch where ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` keeps torch from doing it. Does nothing if it is."""
    from hccl_like import _registration

    _registration.register()


def is_available() -> bool:
    """Whether the backend can be used in this process: it is registered and its extension fits the running torch."""
    from hccl_like import _extension

    return _autoload_error is None and _extension.problem() is None


def failure(error: BaseException | str) -> Failure | None:
    """What an error that a call or a wait raised says, as values: number, kind, guilty rank, host, call (docs/errors.md).

    None if it is no error of a group of this backend.
    """
    from hccl_like import _failures

    return _failures.failure(error)


def version() -> dict[str, str]:
    """The versions that matter for a report: ours, torch's, the torch that the extension was built for, Python's."""
    from hccl_like import _extension

    return _extension.versions()


def settings() -> list[tuple[str, str, str, str]]:
    """Every setting as (name, value in force, default, what it means). Names are those of environment variables.

    A value that equals the default, however it was written (``64K``, ``65536``), is shown as the default is.
    """
    from hccl_like import _extension

    return _extension.load().settings()


def plugins() -> dict[str, str]:
    """The device plugins that were found: device name to the path of its library, or to the reason why it is unusable."""
    from hccl_like import _plugins

    return _plugins.describe()


def local_device(kind: str | None = None) -> torch.device:
    """The device that this process should take, by its number among those of the job on this host.

    ``kind`` is the accelerator of this process if it is not given, and the CPU where there is none. Takes no device: pass the
    result to ``torch.accelerator.set_device_index``. The device's plugin may know better than one after the other.
    """
    import torch

    from hccl_like import _accelerator, _plugins, _registration

    if kind is None:
        kind = _registration.served_accelerator()
        # A build of torch for CUDA also runs on hosts without a GPU.
        if kind != _registration.accelerator_name() and not _accelerator.is_available():
            kind = None
    if kind in (None, "cpu"):
        return torch.device("cpu")
    count = _accelerator.device_count(kind)
    if count == 0:
        return torch.device(kind, 0)
    plugin = _plugins.plugin_of(kind)
    return torch.device(kind, plugin.device_index(plugin.local_rank(), plugin.local_world_size(), count))


def transports() -> dict[str, str]:
    """The transports that ``HCCL_LIKE_TRANSPORTS`` may name: to where each comes from, or why it is unusable."""
    from hccl_like import _transports

    return _transports.describe()


def empty(*size, dtype: torch.dtype | None = None) -> torch.Tensor:
    """``torch.empty`` for a host tensor whose memory the other ranks on this host can map: see docs/shared-memory.md.

    Nothing is copied on the way between such tensors. They come from a pool, so making one again is cheap.
    """
    import torch

    from hccl_like import _extension

    sizes = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return _extension.load()._empty(list(sizes), dtype or torch.get_default_dtype())


def is_mappable(tensor: torch.Tensor) -> bool:
    """Whether the other ranks on this host can map the memory of a tensor, of the host or of the accelerator."""
    from hccl_like import _extension

    return _extension.load()._shared_range(tensor) is not None


def enable_symmetric_memory() -> None:
    """Serves ``torch.distributed._symmetric_memory`` on host tensors and on the accelerator, in any backend's groups.

    Groups of this backend do it by themselves. See docs/symmetric-memory.md.
    """
    from hccl_like import _extension, _plugins

    _plugins.register(_extension.load())


def dump_flight_recorder(format: str = "pickle", *, stacks: bool = True, only_active: bool = False) -> dict:
    """The last calls of this process, as torch's flight recorder tells them (``docs/diagnosis.md``).

    ``format``: "pickle" for all there is, or "json" for what fits that. ``only_active``: calls that are not over.
    """
    import json
    import pickle

    from hccl_like import _extension

    extension = _extension.load()
    if format == "json":
        dump = json.loads(extension._dump_fr_trace_json(onlyActive=only_active))
        dump.setdefault("entries", [])
        return dump
    if format != "pickle":
        raise ValueError(f"there is no format '{format}'; there are 'pickle' and 'json'")
    return pickle.loads(extension._dump_fr_trace(includeStackTraces=stacks, onlyActive=only_active))


def write_flight_recorder() -> str:
    """Writes the flight recorder to the file where torch's analyser looks for that of this rank; returns its path."""
    import torch.distributed as dist

    from hccl_like import _extension

    return _extension.load()._write_fr_trace(dist.get_rank() if dist.is_initialized() else 0)


def __getattr__(name: str):
    if name == "__version__":
        from hccl_like import _extension

        return _extension.version()
    if name in ("grow", "join", "replace"):
        from hccl_like import elastic

        return getattr(elastic, name)
    if name in ("suspend", "resume"):
        from hccl_like import suspension

        return getattr(suspension, name)
    if name == "DevicePlugin":
        from hccl_like._device_plugin import DevicePlugin

        return DevicePlugin
    if name in ("Options", "ProcessGroupHcclLike", "_C"):
        from hccl_like import _extension

        return _extension.load() if name == "_C" else getattr(_extension.load(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# torch calls no entry point then, but a program that imports this module expects the backend.
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0" and "torch.distributed" in sys.modules:
    _stand_in(
        "the backend hccl-like is not registered, because TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading backends by itself: "
        "unset the variable, or call hccl_like.register() before init_process_group"
    )
