"""Makes the backend known to torch.distributed.

Two things are unusual here, because torch runs the entry points of ``torch.backends`` in no particular order, so this
may run before the accelerator's own package gave ``privateuseone`` its name:

* the list of device types that is registered looks up the accelerator's name each time it is iterated;
* the map of default backends answers for the accelerator when somebody asks, instead of holding an entry that may be
  wrong. It never answers for a device that has a backend of its own, nor while one is being registered.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import register_rendezvous_handler

from hccl_like import _endings
from hccl_like.torch_compat import _apply, _patches

NAME = "hccl-like"
_UNNAMED = "privateuseone"


def accelerator_name() -> str | None:
    """The device type that PrivateUse1 goes by in this process; None while nobody has named it."""
    name = torch._C._get_privateuse1_backend_name()
    return None if name == _UNNAMED else name


def served_accelerator() -> str | None:
    """The accelerator whose tensors a group takes: PrivateUse1's, or else what torch itself was built for."""
    if name := accelerator_name():
        return name
    built_for = torch._C._accelerator_getAccelerator()
    return None if built_for is None or built_for.type == _UNNAMED else built_for.type


class _Devices(list):
    """The device types served: cpu and, under whatever name it has by now, the accelerator.

    ``cpu`` comes first on every rank, since torch puts the first device's name into the store's prefix.
    """

    def __iter__(self) -> Iterator[str]:
        yield "cpu"
        if name := served_accelerator():
            yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, item: object) -> bool:
        return any(item == device for device in self)

    def __repr__(self) -> str:
        return repr(list(iter(self)))


class _DefaultBackends(dict):
    """torch's map from device type to default backend, with this backend for an accelerator that nobody claimed.

    The entry for the accelerator is computed, so that a vendor's own backend can still take the device. All else that a dict does is
    done on both.
    """

    def _unclaimed(self) -> str | None:
        name = accelerator_name()
        return None if name is None or super().__contains__(name) else name

    def _dict(self) -> dict[str, str]:
        found = {key: super(_DefaultBackends, self).__getitem__(key) for key in super().__iter__()}
        if name := self._unclaimed():
            found[name] = NAME
        return found

    def __missing__(self, device: str) -> str:
        if device == accelerator_name():
            return NAME
        raise KeyError(device)

    def get(self, device, default=None):
        # A vendor's own backend registers itself only if the device is free: to that question it is.
        if sys._getframe(1).f_code.co_name == "register_backend":
            return super().get(device, default)
        return self._dict().get(device, default)

    def __contains__(self, device: object) -> bool:
        return super().__contains__(device) or (device is not None and device == self._unclaimed())

    def __iter__(self):
        return iter(self._dict())

    def __reversed__(self):
        return reversed(self._dict())

    def __len__(self) -> int:
        return len(self._dict())

    def keys(self):
        return self._dict().keys()

    def values(self):
        return self._dict().values()

    def items(self):
        return self._dict().items()

    def __eq__(self, other: object) -> bool:
        return self._dict() == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __or__(self, other):
        return self._dict() | other

    def __ror__(self, other):
        return other | self._dict()

    def __repr__(self) -> str:
        return repr(self._dict())

    def copy(self) -> dict[str, str]:
        return self._dict()

    def __copy__(self) -> dict[str, str]:
        return self._dict()

    def __deepcopy__(self, _) -> dict[str, str]:
        return self._dict()

    def __reduce__(self):  # another process has a map of its own
        return dict, (self._dict(),)


def is_registered() -> bool:
    """Whether torch has the backend itself, and no stand-in that tells why not."""
    plugin = dist.Backend._plugins.get(NAME.upper())
    return plugin is not None and plugin[0] is create


def register() -> None:
    """Registers the backend under ``hccl-like`` and its alias ``hccl_like``. Harmless when called again."""
    backend = dist.Backend
    if is_registered():
        return
    if not isinstance(backend.default_device_backend_map, _DefaultBackends):
        backend.default_device_backend_map = _DefaultBackends(backend.default_device_backend_map)
    backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])
    backend.backend_capability[NAME] = _Devices()
    backend.HCCL_LIKE = NAME
    for scheme in ("mpi", "slurm"):
        with contextlib.suppress(RuntimeError):  # somebody has registered the scheme before
            register_rendezvous_handler(scheme, functools.partial(_rendezvous, scheme))
    _apply.install(_patches.PATCHES)
    _endings.install()


def _rendezvous(scheme: str, url: str, **how):
    """What torch calls for a URL of the scheme; what it takes is imported then."""
    from hccl_like import _rendezvous

    return getattr(_rendezvous, scheme)(url, **how)


def create(options, group_options=None):
    """Makes the backend of one group; torch calls it with its ``_DistributedBackendOptions`` and ``pg_options``."""
    from hccl_like import _extension

    extension = _extension.load()
    _refuse_companions(sys._getframe(1))
    if group_options is None:
        group_options = extension.Options()
    elif not isinstance(group_options, extension.Options):
        raise TypeError(
            f"pg_options is a {type(group_options).__module__}.{type(group_options).__qualname__}; "
            "the backend hccl-like takes hccl_like.Options()"
        )
    return make_backend(
        options.store, options.group_rank, options.group_size, copy.copy(group_options), options.timeout, options.group_id,
        options.global_ranks_in_group, _endings.membership(options.group_id, options.global_ranks_in_group),
    )  # fmt: skip


def make_backend(store, rank, size, group_options, timeout, name, global_ranks, membership=None):
    """The backend of one group; the options are filled in and kept, so they must not serve another group.

    ``membership``: for a group that all ranks of a larger one make or, if they are no members, declare.
    """
    from hccl_like import _extension, _plugins

    extension = _extension.load()
    group_options._timeout = timeout
    group_options.group_name = name
    group_options.global_ranks_in_group = global_ranks
    _plugins.register(extension)
    if os.environ.get("HCCL_LIKE_TRANSPORTS"):  # the default names none of a package
        from hccl_like import _transports

        _transports.register(extension)
    _endings.watch_accelerator(accelerator_name())
    _endings.watch_child()
    return extension.ProcessGroupHcclLike(store, rank, size, group_options, membership)


def _refuse_companions(caller) -> None:
    """Raises if the group has another out-of-tree backend beside this one.

    torch keeps one backend of type CUSTOM for a group: with ``cpu:other,npu:hccl-like`` one of the two would serve both
    devices, without a word. Which backends a group gets is known only to torch's function that asks for them, so its
    variable is looked at; if a later torch names it otherwise, nothing is refused.
    """
    config = caller.f_locals.get("backend_config")
    if not isinstance(config, dist.distributed_c10d.BackendConfig):
        return
    devices = config.get_device_backend_map()
    custom = dist.ProcessGroup.BackendType.CUSTOM
    others = {name for name in devices.values() if name != NAME and dist.Backend.backend_type_map.get(name) == custom}
    if others:
        asked = ",".join(f"{device}:{name}" for device, name in devices.items())
        raise ValueError(
            f"the backend '{asked}' names two backends that are not torch's own, hccl-like and {min(others)}: torch would "
            f"let one of them serve both devices. Use '{NAME}' alone, which serves CPU tensors too, or make two groups"
        )
