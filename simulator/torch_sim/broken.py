"""What ``torch.sim`` is when the device could not be loaded: everything but the cause is unavailable."""

import types


class _Broken(types.ModuleType):
    def __init__(self, error: Exception):
        super().__init__("torch.sim", "The simulated device, which could not be loaded.")
        self._error = error

    def is_available(self) -> bool:
        return False

    def device_count(self) -> int:
        return 0

    def is_initialized(self) -> bool:
        return False

    def _is_in_bad_fork(self) -> bool:
        return True  # torch.manual_seed then leaves us alone

    def manual_seed_all(self, seed: int) -> None:
        pass

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"torch.sim.{name} is unavailable: the simulated device could not be loaded when torch was imported "
            f"({type(self._error).__name__}: {self._error}). TORCH_SIM=0 switches it off"
        ) from self._error


def install(error: Exception) -> None:
    try:
        import torch

        if torch._C._get_privateuse1_backend_name() == "privateuseone":
            torch.utils.rename_privateuse1_backend("sim")
        if not hasattr(torch, "sim"):
            torch._register_device_module("sim", _Broken(error))
    except Exception:
        pass  # nothing may come out of here: `import torch` would fail
