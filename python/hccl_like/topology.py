"""What the hosts of a job are made of: processors, memory nodes, interfaces, and how far devices are from them.

    python -m hccl_like.topology                       # this host
    torchrun ... -m hccl_like.topology --picture t.png # all hosts of a job, as text and as a picture

Looks through hwloc (libhwloc15) where it is installed.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence

from hccl_like import _tables


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hccl-like topology", description=__doc__.splitlines()[0])
    parser.add_argument("--picture", metavar="FILE", help="also draws it (png, svg or pdf; needs matplotlib)")
    asked = parser.parse_args(argv)
    hosts = job() if _launched() else [this_host()]
    if not hosts:  # another rank prints
        return 0
    print(text(hosts))
    if asked.picture:
        draw(hosts, asked.picture)
    return 0


def this_host() -> dict:
    """This host as a dict: name, machine (what hwloc sees), devices with their places and distances."""
    from hccl_like import _accelerator, _extension

    extension = _extension.load()
    places = []
    if (kind := _accelerator.named()) is not None and _accelerator.is_available():
        places = [(f"{kind}:{i}", *_place(extension, kind, i)) for i in range(_accelerator.device_count())]
    machine = extension.look_at_machine([pci for _, pci, _ in places])
    devices = [
        {"name": name, "pci": pci, "node": node, "near": dict(zip((nic["name"] for nic in machine["nics"]), row))}
        for (name, pci, node), row in zip(places, machine.pop("distances"))
    ]
    return {"name": socket.gethostname(), "machine": machine, "devices": devices, "ranks": []}


def job() -> list[dict]:
    """The hosts of a job that a launcher started, on rank 0; nothing on the others. Every rank calls it."""
    import torch
    import torch.distributed as dist

    ours = not dist.is_initialized()
    if ours:
        dist.init_process_group("hccl-like")
    try:
        info = dist.group.WORLD._get_backend(torch.device("cpu"))._info()
        layout = info["layout"]
        first = layout.index(layout[dist.get_rank()]) == dist.get_rank()
        seen: list[dict | None] = [None] * len(layout)
        dist.all_gather_object(seen, this_host() if first else None)
        if dist.get_rank() != 0:
            return []
        hosts = [host for host in seen if host is not None]
        for number, host in enumerate(hosts):
            host["ranks"] = [rank for rank, its in enumerate(layout) if its == number]
        return hosts
    finally:
        if ours:
            dist.destroy_process_group()


def text(hosts: list[dict]) -> str:
    return "\n".join(_host_text(host) for host in hosts)


def draw(hosts: list[dict], target: str) -> None:
    """Hosts as boxes, their memory nodes in them, and in these what hangs on them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Rectangle

    columns = min(len(hosts), 4)
    rows = -(-len(hosts) // columns)
    figure, all_axes = pyplot.subplots(rows, columns, figsize=(4.5 * columns, 3.2 * rows), squeeze=False, layout="constrained")
    for axes in all_axes.flat:
        axes.axis("off")
    for host, axes in zip(hosts, all_axes.flat):
        axes.set(xlim=(0, 1), ylim=(0, 1), title=_title(host))
        nodes = _by_node(host)
        width = 1 / len(nodes)
        for i, (node, things) in enumerate(nodes.items()):
            axes.add_patch(Rectangle((i * width + 0.01, 0.02), width - 0.02, 0.96, fill=False))
            name = "place unknown" if node < 0 else f"NUMA node {node}"
            axes.text((i + 0.5) * width, 0.92, name, ha="center", va="top", fontsize=9, weight="bold")
            for line, (thing, colour) in enumerate(things):
                axes.text((i + 0.5) * width, 0.78 - 0.1 * line, thing, ha="center", va="top", fontsize=8,
                          bbox={"boxstyle": "round", "facecolor": colour, "edgecolor": "grey"})
    figure.savefig(target, dpi=120)
    pyplot.close(figure)


def _place(extension, kind: str, index: int) -> tuple[str, int]:
    import torch

    try:
        return extension.device_place(torch.device(kind, index))
    except RuntimeError:  # nobody wrote a plugin for it
        return "", -1


def _launched() -> bool:
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))


def _title(host: dict) -> str:
    machine = host["machine"]
    parts = [f"{machine[what]} {what if machine[what] != 1 else what[:-1]}" for what in ("sockets", "nodes", "cores", "threads")
             if machine[what]]
    return f"{host['name']}: {', '.join(parts)}"


def _by_node(host: dict) -> dict[int, list[tuple[str, str]]]:
    things: dict[int, list[tuple[str, str]]] = {node: [] for node in range(host["machine"]["nodes"])}
    for nic in host["machine"]["nics"]:
        things.setdefault(nic["node"], []).append((nic["name"] + _speed(nic), "lightblue"))
    for device in host["devices"]:
        things.setdefault(device["node"], []).append((device["name"], "lightgreen"))
    return things or {-1: []}


def _speed(nic: dict) -> str:
    return f", {nic['megabits'] / 1000:g} Gbit/s" if nic["megabits"] else ""


def _host_text(host: dict) -> str:
    machine = host["machine"]
    lines = [_title(host) + (f"; ranks {', '.join(map(str, host['ranks']))}" if host["ranks"] else "")]
    if machine.get("missing"):
        lines.append(f"  {machine['missing']}")
    lines.append("")
    nics = [(nic["name"], nic["pci"] or "-", str(nic["node"]) if nic["node"] >= 0 else "-",
             f"{nic['megabits'] / 1000:g} Gbit/s" if nic["megabits"] else "-") for nic in machine["nics"]]
    if nics:
        lines.append(_tables.plain("interfaces", ("name", "PCI", "node", "speed"), nics))
    names = [nic["name"] for nic in machine["nics"]]
    devices = [(device["name"], device["pci"] or "-", str(device["node"]) if device["node"] >= 0 else "-",
                *(device["near"].get(name, "?") for name in names)) for device in host["devices"]]
    if devices:
        lines.append(_tables.plain("devices, and what is the smallest thing that holds them and an interface",
                                   ("name", "PCI", "node", *names), devices))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
