"""What ``import torch`` calls. It must be quick, must start nothing, and can never make ``import torch`` fail.

A process has one PrivateUse1 device. ``sim`` is a stand-in for a real one, so it stands aside

* when ``TORCH_SIM=0`` is set,
* when another backend has already given PrivateUse1 its name,
* when another package is installed that ``import torch`` loads a backend from (an entry point of the group
  ``torch.backends``), because its turn may come after ours. ``hccl_like`` is none: it brings no device.

``TORCH_SIM=1`` asks for ``sim`` in spite of the last rule. An error is kept, and told when ``torch.sim`` is used.
"""

import os

# Distributions with an entry point of that group that brings no device.
_NO_DEVICE = {"torch_sim", "hccl_like"}


def autoload() -> None:
    try:
        if _stands_aside():
            return
        from torch_sim import registration

        registration.register()
    except Exception as error:
        from torch_sim import broken

        broken.install(error)


def _stands_aside() -> bool:
    wish = os.environ.get("TORCH_SIM", "")
    if wish == "0":
        return True
    import torch

    if torch._C._get_privateuse1_backend_name() != "privateuseone":
        return True
    return wish != "1" and any(module not in _NO_DEVICE for module in _backend_modules())


def _backend_modules():
    from importlib.metadata import entry_points

    return {entry.value.split(":")[0].split(".")[0] for entry in entry_points(group="torch.backends")}
