"""A vision transformer, as small as the images: 16 patches of 4 x 4 pixels that overlap by half."""

import torch
import torch.nn.functional as F
from torch import nn

PATCH = 4
STRIDE = 2
PATCHES = (8 // STRIDE) ** 2
CLASSES = 10


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm and a residual connection."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self._attend(self.norm_attention(x))
        return x + self.contract(F.gelu(self.expand(self.norm_mlp(x))))

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        images, tokens, width = x.shape
        split = self.query_key_value(x).view(images, tokens, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.project(mixed.transpose(1, 2).reshape(images, tokens, width))


class VisionTransformer(nn.Module):
    """N x 8 x 8 images to N x 10 logits."""

    def __init__(self, width: int = 64, depth: int = 4, heads: int = 4):
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH, width)
        self.position = nn.Parameter(0.5 * torch.randn(PATCHES, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        padded = F.pad(images, (1, 1, 1, 1), value=-1.0)
        patches = padded.unfold(1, PATCH, STRIDE).unfold(2, PATCH, STRIDE).reshape(len(images), PATCHES, -1)
        x = self.embed(patches) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))
