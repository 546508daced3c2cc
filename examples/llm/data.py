"""The documentation topics that Python ships, as bytes, and batches that do not depend on the number of ranks."""

import torch

VOCABULARY = 256


def load() -> torch.Tensor:
    """All topics of `pydoc_data` in one uint8 tensor: some 460,000 bytes of English and Python."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name].strip() for name in sorted(topics))
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def batch(text: torch.Tensor, step: int, rows: int, context: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of the global batch of `step`, each rows x context: a function of (seed, step) alone.

    Every rank computes the whole batch and takes its part, so all layouts train on the same bytes in the same order.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    first = torch.randint(len(text) - context, (rows, 1), generator=generator)
    chosen = text[first + torch.arange(context + 1)].long()
    return chosen[:, :-1], chosen[:, 1:]
