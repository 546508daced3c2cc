"""How much memory is used: torch.accelerator's functions under the names of torch.cuda."""

import torch
from torch_sim.sim.devices import index_of


def memory_stats(device=None) -> dict:
    return torch.accelerator.memory_stats(index_of(device))


def memory_allocated(device=None) -> int:
    return torch.accelerator.memory_allocated(index_of(device))


def max_memory_allocated(device=None) -> int:
    return torch.accelerator.max_memory_allocated(index_of(device))


def memory_reserved(device=None) -> int:
    return torch.accelerator.memory_reserved(index_of(device))


def max_memory_reserved(device=None) -> int:
    return torch.accelerator.max_memory_reserved(index_of(device))


def reset_peak_memory_stats(device=None) -> None:
    torch.accelerator.reset_peak_memory_stats(index_of(device))


def reset_accumulated_memory_stats(device=None) -> None:
    torch.accelerator.reset_accumulated_memory_stats(index_of(device))


def mem_get_info(device=None) -> tuple:
    """(free, total) bytes of the device."""
    return torch.accelerator.memory.get_memory_info(index_of(device))


def empty_cache() -> None:
    """Give cached memory that no tensor uses back to the host."""
    torch.accelerator.empty_cache()
