"""A byte-level GPT: rotary positions, RMS norms, no biases.

There is no bias because the gradient of a key's bias is zero in exact arithmetic. In float32 it is noise, and AdamW
would turn the noise into steps of full size, different in every layout.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from .attention import causal
from .data import VOCABULARY
from .experts import Experts


@dataclass(frozen=True)
class Size:
    width: int
    depth: int
    heads: int
    context: int  # bytes of one sequence
    batch: int  # sequences of a step, over all ranks together
    steps: int
    learning_rate: float


SIZES = {
    "tiny": Size(width=32, depth=4, heads=4, context=32, batch=8, steps=10, learning_rate=1e-2),
    "small": Size(width=192, depth=8, heads=8, context=128, batch=16, steps=200, learning_rate=5e-4),
}


@dataclass(frozen=True)
class Mixture:
    """The experts of every block; `count` 0 is an ordinary perceptron."""

    count: int = 0
    top: int = 2
    capacity: float | None = None


def rotate(x: torch.Tensor, first: int) -> torch.Tensor:
    """Rotary embedding of x (rows, heads, tokens, width of a head), whose first token has the position `first`."""
    half = x.shape[-1] // 2
    frequency = 1e4 ** (-torch.arange(half, device=x.device) / half)
    angle = (first + torch.arange(x.shape[-2], device=x.device))[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    left, right = x[..., :half], x[..., half:]
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


class Attention(nn.Module):
    """Multi-head attention. `attend` and `first` are replaced when the sequence is cut over ranks."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.head_width = width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.attend = causal
        self.first = 0  # position of this rank's first token

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # The number of heads follows from the tensors: a tensor-parallel rank has a part of them.
        query, key, value = (part(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
                             for part in (self.query, self.key, self.value))
        mixed = self.attend(rotate(query, self.first), rotate(key, self.first), value)
        return self.project(mixed.transpose(1, 2).flatten(2))


class Perceptron(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.expand = nn.Linear(width, 4 * width, bias=False)
        self.contract = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.contract(F.gelu(self.expand(x)))


class Block(nn.Module):
    def __init__(self, size: Size, mixture: Mixture):
        super().__init__()
        self.norm_attention = nn.RMSNorm(size.width, eps=1e-5)
        self.attention = Attention(size.width, size.heads)
        self.norm_mlp = nn.RMSNorm(size.width, eps=1e-5)
        if mixture.count:
            self.mlp = Experts(size.width, mixture.count, mixture.top, mixture.capacity)
        else:
            self.mlp = Perceptron(size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class GPT(nn.Module):
    """Bytes to logits, or a part of that: a pipeline stage has some of the blocks, and None for what others have.

    The names of the parameters are those of the whole model in every part.
    """

    def __init__(self, embed, blocks: dict[str, Block], norm, head):
        super().__init__()
        self.embed = embed
        self.blocks = nn.ModuleDict(blocks)
        self.norm = norm
        self.head = head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))

    def part(self, blocks: range) -> "GPT":
        """The stage with these blocks. It shares the modules with this model."""
        first, last = blocks.start == 0, blocks.stop == len(self.blocks)
        return GPT(self.embed if first else None, {str(i): self.blocks[str(i)] for i in blocks},
                   self.norm if last else None, self.head if last else None)


def whole(size: Size, mixture: Mixture, seed: int) -> GPT:
    """The complete model on the host: the same weights on every rank and for every device."""
    torch.manual_seed(seed)
    model = GPT(nn.Embedding(VOCABULARY, size.width), {str(i): Block(size, mixture) for i in range(size.depth)},
                nn.RMSNorm(size.width, eps=1e-5), nn.Linear(size.width, VOCABULARY, bias=False))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.4 * size.width**-0.5)
    return model


def joined(parts: list[GPT]) -> GPT:
    """One module with everything that the stages of this rank hold, for the optimiser and for checkpoints."""
    def one(name):
        return next((getattr(part, name) for part in parts if getattr(part, name) is not None), None)

    blocks = {number: block for part in parts for number, block in part.blocks.items()}
    return GPT(one("embed"), blocks, one("norm"), one("head"))
