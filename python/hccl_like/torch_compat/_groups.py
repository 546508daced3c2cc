"""Which of a group's backends torch takes for the default one."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist

from hccl_like._registration import NAME
from hccl_like.torch_compat import _ours


def default_backend(c10d) -> None:
    """A group of several backends, or of none named, gets the default type that its backends call for."""
    original = c10d._new_process_group_helper

    @functools.wraps(original)
    def _new_process_group_helper(*args, **kwargs):
        group, store = original(*args, **kwargs)
        if isinstance(group, c10d.ProcessGroup):
            kind = _default_type(c10d, kwargs["backend"] if "backend" in kwargs else args[3])
            if kind is not None:
                group._set_default_backend(kind)
        return group, store

    c10d._new_process_group_helper = _new_process_group_helper


def _default_type(c10d, asked: str):
    """The type that torch fails to set for `asked`; None where it sets the right one.

    torch looks for the first registered plugin's upper-case key among lower-case names, so it never finds one, and does
    not come to its own default, GLOO, either: with any plugin registered even cpu:gloo,cuda:gloo has no default backend.
    """
    types = c10d.ProcessGroup.BackendType
    is_composite = ":" in str(asked)
    if not is_composite and asked != c10d.Backend.UNDEFINED:
        return None
    names = set(c10d.BackendConfig(asked).get_device_backend_map().values())
    if c10d.Backend.NCCL in names:
        return None
    if NAME in names:
        return types.CUSTOM
    # What it would be if this package were not installed.
    return types.GLOO if is_composite and set(c10d.Backend._plugins) == {NAME.upper()} else None


def unnamed_cpu(c10d) -> None:
    """init_process_group() without a name serves CPU tensors too, as it does with the name or with a device_id."""
    original = c10d.BackendConfig.__init__

    @functools.wraps(original)
    def __init__(self, backend):
        original(self, backend)
        if backend == c10d.Backend.UNDEFINED and set(self.device_backend_map.values()) == {NAME}:
            self.device_backend_map = dict.fromkeys(c10d.Backend.backend_capability[NAME], NAME)

    c10d.BackendConfig.__init__ = __init__


def beside_bound_device(c10d) -> None:
    """A group without the device that the default group is bound to is not asked to connect it."""
    original = c10d._new_process_group_helper

    @functools.wraps(original)
    def _new_process_group_helper(*args, **kwargs):
        device = kwargs.get("device_id")
        if device is not None and c10d.is_initialized() and device.type in _ours.backends(None):
            asked = kwargs["backend"] if "backend" in kwargs else args[3]
            if device.type not in c10d.BackendConfig(asked).get_device_backend_map():
                kwargs["device_id"] = None
        return original(*args, **kwargs)

    c10d._new_process_group_helper = _new_process_group_helper


def split_by_name(c10d) -> None:
    """split_group(backend="hccl-like") means all devices that this backend serves, not those it is the default of."""
    original = c10d._parse_backend_string

    @functools.wraps(original)
    def _parse_backend_string(backend):
        if backend.lower() != NAME:
            return original(backend)
        return dict.fromkeys(c10d.Backend.backend_capability[NAME], NAME)

    c10d._parse_backend_string = _parse_backend_string


def shrunk_group(c10d) -> None:
    """shrink_group asks our backend of a group, and what is left keeps its type and the devices it served."""
    asks, creates = c10d._validate_shrink_backend_requirements, c10d._create_shrunk_process_group

    @functools.wraps(asks)
    def _validate_shrink_backend_requirements(group_info):
        mine = _ours.backends(group_info["process_group"])
        # Without a bound device torch asks the CPU's backend, and in its debug mode a wrapper that cannot shrink.
        able = [backend for backend in mine.values() if backend.supports_shrinking]
        return able[0] if able else asks(group_info)

    @functools.wraps(creates)
    def _create_shrunk_process_group(new_backend, remaining_ranks, metadata, is_default_group):
        group = creates(new_backend, remaining_ranks, metadata, is_default_group)
        if _ours.backends(group):
            custom = c10d.ProcessGroup.BackendType.CUSTOM
            for device in _devices_of_ours(c10d, metadata["backend_name"]):
                group._register_backend(torch.device(device), custom, new_backend)
            group._set_default_backend(custom)
        return group

    c10d._validate_shrink_backend_requirements = _validate_shrink_backend_requirements
    c10d._create_shrunk_process_group = _create_shrunk_process_group


def _devices_of_ours(c10d, asked: str) -> list[str]:
    return [device for device, name in c10d.BackendConfig(asked).get_device_backend_map().items() if name == NAME]


def subgroup_size(c10d) -> None:
    """new_subgroups() without a size makes groups of one host, by its accelerators, whoever made them."""
    original = c10d.new_subgroups

    @functools.wraps(original)
    def new_subgroups(group_size=None, group=None, *args, **kwargs):
        if group_size is None and _ours.accelerator() in _ours.backends(group):
            group_size = torch.accelerator.device_count()
        return original(group_size, group, *args, **kwargs)

    c10d.new_subgroups = dist.new_subgroups = new_subgroups


def sequence_numbers(c10d) -> None:
    """A group tells its sequence number though its type is CUSTOM."""

    def passes_on(name: str):
        original = getattr(c10d.ProcessGroup, name)

        @functools.wraps(original)
        def call(group):
            mine = _ours.backends(group)
            return original(group) if not mine else getattr(next(iter(mine.values())), name)()

        return call

    for name in ("_get_sequence_number_for_group", "_set_sequence_number_for_group"):
        setattr(c10d.ProcessGroup, name, passes_on(name))
