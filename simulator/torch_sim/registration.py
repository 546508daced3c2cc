"""Making the device known to torch."""

import atexit
from pathlib import Path

import torch_sim

_registered = False


def register() -> None:
    global _registered
    if _registered:
        return
    import torch

    find_adapter(torch.__version__)
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


def find_adapter(version: str) -> None:
    """Makes `torch_sim._C` the extension that was compiled for this minor version of torch."""
    adapters = Path(__file__).parent / "adapters"
    folder = adapters / "_".join(["torch", *version.split(".")[:2]])
    if not folder.is_dir():
        built_for = ", ".join(sorted(path.name[len("torch_") :].replace("_", ".") for path in adapters.glob("torch_*")))
        raise ImportError(
            f"torch_sim was built for torch {built_for or '(no version)'} and this is torch {version}: build it again from its sources, "
            "with `pip install ./simulator`"
        )
    torch_sim.__path__.insert(0, str(folder))
