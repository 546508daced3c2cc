"""Greedy generation, byte by byte."""

import torch


@torch.no_grad()
def generate(job, prompt: bytes, count: int, context: int) -> bytes:
    """`prompt` and `count` bytes after it. All ranks call it and return the same bytes.

    The window always has the length the model was trained with: what lies behind the last byte is hidden from it by the
    causal attention, and a sequence-parallel rank has its equal part of any text. Nothing is cached.
    """
    text = list(prompt)
    for _ in range(count):
        window = text[-context:]
        padded = torch.tensor([window + [0] * (context - len(window))], device=job.grid.device)
        logits = job.logits(padded)[0, len(window) - 1]
        text.append(int(logits.argmax()))
    return bytes(text)
