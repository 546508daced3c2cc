"""torch_sim: a PrivateUse1 accelerator named ``sim`` that lives in host memory.

``import torch`` brings it by itself (see :mod:`torch_sim.autoload` for when it stands aside). Importing this package does
nothing; :func:`enable` makes the device available where autoloading is off or stood aside.
"""

__version__ = "0.1.0"


def enable() -> None:
    """Make ``sim`` this process' PrivateUse1 device. Does nothing if it is already; raises if it cannot be."""
    from torch_sim import registration

    registration.register()
