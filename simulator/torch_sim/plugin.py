"""Where the device's plugin table is: the value of the entry point ``sim`` in the group ``hccl_like.devices``."""

from pathlib import Path


def library_path() -> str:
    """The shared library that exports ``hcd_get_api``."""
    return str(Path(__file__).parent / "libtorch_sim.so")
