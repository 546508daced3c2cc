"""Making the device known to torch."""

import atexit

_registered = False


def register() -> None:
    global _registered
    if _registered:
        return
    import torch

    _check_version(torch.__version__)
    name = torch._C._get_privateuse1_backend_name()
    if name != "privateuseone":
        raise RuntimeError(f"torch_sim cannot be enabled: this process' PrivateUse1 device is already '{name}'")
    from torch_sim import _C

    torch.utils.rename_privateuse1_backend("sim")
    _C.register_graphs()
    from torch_sim import sharing, sim

    sharing.install()
    torch._register_device_module("sim", sim)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    atexit.register(_C.stop_streams)
    _registered = True


def _check_version(version: str) -> None:
    from torch_sim._build import TORCH_VERSION

    if version.split(".")[:2] != TORCH_VERSION.split(".")[:2]:
        raise ImportError(
            f"torch_sim was built for torch {TORCH_VERSION} and this is torch {version}: "
            "build it again with `pip install --no-build-isolation`"
        )
