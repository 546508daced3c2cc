"""How the ranks of a job are arranged: `dp2,tp2` is a grid of two by two ranks."""

import re
from dataclasses import dataclass, fields

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

MEANING = {
    "pp": "pipeline stages",
    "replicate": "copies of what dp shards (hybrid sharding)",
    "dp": "data parallel",
    "cp": "parts of each sequence",
    "ep": "parts of the experts; data parallel for everything else",
    "tp": "parts of each layer",
}


@dataclass(frozen=True)
class Layout:
    """The ranks in each dimension, the outermost first: neighbours in `tp` are neighbours in rank."""

    pp: int = 1
    replicate: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    tp: int = 1

    @staticmethod
    def parse(text: str) -> "Layout":
        sizes = {}
        for part in text.split(","):
            match = re.fullmatch(r"([a-z]+)([1-9]\d*)", part.strip())
            if not match or match[1] not in MEANING or match[1] in sizes:
                raise SystemExit(f"--layout {text}: '{part}' is no dimension and its size, or comes twice. "
                                 f"Dimensions: {', '.join(MEANING)}; an example: dp2,tp2")
            sizes[match[1]] = int(match[2])
        return Layout(**sizes)

    def sizes(self) -> dict[str, int]:
        """The dimensions of more than one rank."""
        return {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name) > 1}

    @property
    def ranks(self) -> int:
        return self.pp * self.tp * self.data_ranks

    @property
    def row_ranks(self) -> int:
        """Ranks that take different sequences of a batch."""
        return self.replicate * self.dp * self.ep

    @property
    def data_ranks(self) -> int:
        """Ranks that take different bytes of a batch, so that their gradients are averaged."""
        return self.row_ranks * self.cp

    def __str__(self) -> str:
        return ",".join(f"{name}{size}" for name, size in self.sizes().items()) or "one rank"

    def check(self, world: int, size, mixture, batch: int, micro_batches: int, stages: int, data: str) -> None:
        """Refuses what cannot be cut as asked, in a sentence."""
        def need(right: bool, complaint: str):
            if not right:
                raise SystemExit(f"--layout {self}: {complaint}")

        need(self.ranks == world, f"these are {self.ranks} ranks, but the job has {world}")
        need(batch % (self.row_ranks * micro_batches) == 0,
             f"--batch {batch} does not divide by {self.row_ranks} ranks times {micro_batches} micro-batches")
        need(size.context % (self.cp * self.tp) == 0, f"the context of {size.context} bytes does not divide by cp x tp")
        need(size.heads % self.tp == 0, f"{size.heads} heads do not divide by tp")
        need(stages <= size.depth, f"{stages} pipeline stages want as many blocks, the model has {size.depth}")
        need(self.ep == 1 or mixture.count, "ep needs --experts N")
        need(mixture.count % self.ep == 0, f"--experts {mixture.count} does not divide by ep")
        need(self.replicate == 1 or self.dp > 1 and data == "fsdp2",
             "replicate is for copies of a sharded model: it needs dp and --data fsdp2, too")


class Grid:
    """The device mesh of a layout and this rank's place in it. A dimension of one rank has no mesh."""

    def __init__(self, layout: Layout, device: torch.device):
        self.layout = layout
        self.device = device
        self._root = None
        if sizes := layout.sizes():
            self._root = init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))

    def mesh(self, name: str):
        return self._root[name] if name in self.layout.sizes() else None

    def group(self, name: str):
        return self._root.get_group(name) if name in self.layout.sizes() else None

    def place(self, name: str) -> int:
        return self._root.get_local_rank(name) if name in self.layout.sizes() else 0

    def flat(self, *names: str):
        """One mesh of the ranks that differ in these dimensions only, or None if that is this rank alone."""
        present = [name for name in names if name in self.layout.sizes()]
        if len(present) < 2:
            return self._root[present[0]] if present else None
        return self._root[tuple(present)]._flatten("_".join(present))

    def replicated(self, *names: str):
        """`flat`, and before it the dimension `replicate` if there is one: the mesh of hybrid sharding."""
        sharded = self.flat(*names)
        if self.layout.replicate == 1:
            return sharded
        return self._root["replicate", sharded.mesh_dim_names[0]]

    def part_of(self, batch: torch.Tensor) -> torch.Tensor:
        """This rank's part of a global batch (rows, bytes)."""
        layout = self.layout
        row = (self.place("replicate") * layout.dp + self.place("dp")) * layout.ep + self.place("ep")
        return batch.chunk(layout.row_ranks)[row].chunk(layout.cp, dim=1)[self.place("cp")].to(self.device)

    def whole(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """All weights (or gradients) on the host of rank 0, by name; the other ranks take part and get some."""
        mine = {}
        for name, tensor in tensors.items():
            tensor = tensor.detach()
            mine[name] = (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()
        if self.layout.pp == 1:
            return mine
        parts = [None] * self.layout.pp if self.place("pp") == 0 else None
        dist.gather_object(mine, parts, group=self.group("pp"), group_dst=0)
        return {name: tensor for part in parts or [mine] for name, tensor in part.items()}
