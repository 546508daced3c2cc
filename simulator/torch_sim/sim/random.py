"""Random state. A device's generator is 16 bytes: its seed and its offset."""

import torch
from torch_sim import _C
from torch_sim.sim.devices import device_count, index_of


def _generator(device=None) -> torch.Generator:
    return _C.default_generator(index_of(device))


def get_rng_state(device="sim") -> torch.Tensor:
    return _generator(device).get_state()


def get_rng_state_all() -> list:
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(state: torch.Tensor, device="sim") -> None:
    _generator(device).set_state(state.cpu())


def set_rng_state_all(states) -> None:
    for index, state in enumerate(states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device."""
    _generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    for index in range(device_count()):
        _generator(index).manual_seed(seed)


def seed() -> int:
    """Seed the current device by chance, and return the seed."""
    return _generator().seed()


def seed_all() -> None:
    manual_seed_all(seed())


def initial_seed() -> int:
    return _generator().initial_seed()
