"""Mixed precision under the names of torch.cuda.amp: torch.amp's classes, for this device."""

import functools

import torch
from torch.amp import custom_bwd as _custom_bwd
from torch.amp import custom_fwd as _custom_fwd


class autocast(torch.amp.autocast):
    def __init__(self, enabled=True, dtype=torch.float16, cache_enabled=True):
        super().__init__("sim", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    def __init__(self, **options):
        super().__init__("sim", **options)


custom_fwd = functools.partial(_custom_fwd, device_type="sim")
custom_bwd = functools.partial(_custom_bwd, device_type="sim")
