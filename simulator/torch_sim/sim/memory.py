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


# What both are in torch.cuda since it counts more than the allocated bytes.
reset_max_memory_allocated = reset_peak_memory_stats


def memory_summary(device=None, abbreviated=False) -> str:
    """How much memory is allocated to tensors and reserved from the host, now and at most, as a table to print."""
    rows = [
        ("allocated", memory_allocated(device), max_memory_allocated(device)),
        ("reserved", memory_reserved(device), max_memory_reserved(device)),
    ]
    lines = [f"memory of sim:{index_of(device)}, bytes", f"{'':9} {'now':>15} {'at most':>15}"]
    return "\n".join(lines + [f"{name:9} {now:>15,} {most:>15,}" for name, now, most in rows])


def mem_get_info(device=None) -> tuple:
    """(free, total) bytes of the device."""
    return torch.accelerator.memory.get_memory_info(index_of(device))


def empty_cache() -> None:
    """Give cached memory that no tensor uses back to the host."""
    torch.accelerator.empty_cache()
