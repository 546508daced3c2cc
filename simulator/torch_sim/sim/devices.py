"""Which devices there are, and which is the current one."""

from dataclasses import dataclass

import torch
from torch_sim import _C

# Names the device under whatever name a package has given it.
UNNAMED = "privateuseone"


def is_ours(device: torch.device) -> bool:
    return device.type == torch.device(UNNAMED).type


def index_of(device=None) -> int:
    """The index of a device given as an index, a name, a torch.device, or None for the current one."""
    if device is None:
        return _C.current_device()
    if isinstance(device, int):
        return device if device >= 0 else _C.current_device()
    device = torch.device(device)
    if not is_ours(device):
        raise ValueError(f"expected a sim device, not {device}")
    return _C.current_device() if device.index is None else device.index


def is_available() -> bool:
    return device_count() > 0


def device_count() -> int:
    try:
        return _C.device_count()
    except ValueError:  # TORCH_SIM_DEVICES makes no sense: told as soon as a device is used
        return 0


def is_initialized() -> bool:
    return _C.initialised() and not _C.forked_away()


def init() -> None:
    """Use the device, which otherwise happens by itself."""
    _C.init()


_lazy_init = init


def _is_in_bad_fork() -> bool:
    return _C.forked_away()


def current_device() -> int:
    return _C.current_device()


def set_device(device) -> None:
    """Make it the calling thread's current device. A negative index changes nothing."""
    if not (isinstance(device, int) and device < 0):
        _C.set_device(index_of(device))


class device:
    """A context in which another device is the current one. None or a negative index changes nothing."""

    def __init__(self, device):
        self.idx = -1 if device is None else device if isinstance(device, int) else index_of(device)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = current_device()
        set_device(self.idx)
        return self

    def __exit__(self, *exception):
        set_device(self.prev_idx)
        return False


class device_of(device):
    """A context in which the current device is that of a tensor or storage, if it is on a sim device."""

    def __init__(self, obj):
        super().__init__(obj.device.index if is_ours(obj.device) else -1)


@dataclass(frozen=True)
class DeviceProperties:
    name: str
    total_memory: int
    multi_processor_count: int
    major: int = 1
    minor: int = 0


def get_device_name(device=None) -> str:
    return get_device_properties(device).name


def get_device_capability(device=None) -> tuple:
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_device_properties(device=None) -> DeviceProperties:
    index = index_of(device)
    if index >= device_count():
        raise ValueError(f"there is no device sim:{index}, only {device_count()}")
    _, total = torch.accelerator.memory.get_memory_info(index)
    return DeviceProperties("Simulated accelerator in host memory", total, 1)


def can_device_access_peer(device, peer) -> bool:
    return True


def get_amp_supported_dtype() -> list:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True
