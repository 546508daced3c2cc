"""What a case needs of the machine: each function says why that is not to be had, or nothing."""

import os
import shutil
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "python"))  # for hosts.py, several hosts on one machine

import hosts  # noqa: E402


def nothing() -> str:
    return ""


def root() -> str:
    return "takes root" if os.geteuid() != 0 else ""


def network_namespaces() -> str:
    return hosts.why_not() or ""


def firewall() -> str:
    return network_namespaces() or ("takes nft (nftables)" if shutil.which("nft") is None else "")


def simulator() -> str:
    return "" if hasattr(torch, "sim") else "takes the simulated accelerator (pip install ./simulator)"


def memory(gib: int):
    """That much is available."""

    def missing() -> str:
        with open("/proc/meminfo") as lines:
            available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) >> 20
        return f"takes {gib} GiB of memory, {available} are available" if available < gib else ""

    return missing
