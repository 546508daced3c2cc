"""``torch.sim``: the module of the simulated device, with the names torch.cuda and torch.accelerator taught."""

from torch_sim._C import reset_traffic, traffic
from torch_sim.sim import amp
from torch_sim.sim.devices import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
    _is_in_bad_fork,
    _lazy_init,
)
from torch_sim.sim.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from torch_sim.sim.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_sim.sim.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    is_current_stream_capturing,
    launch_host_func,
    set_stream,
    stream,
    synchronize,
    _sleep,
)


def __getattr__(name: str):
    if name == "_initialized":  # activation checkpointing asks for it before it saves the random state
        return is_initialized()
    raise AttributeError(f"module 'torch.sim' has no attribute '{name}'")


__all__ = [name for name in dir() if not name.startswith("_")]
