"""scikit-learn's handwritten digits, and a sampling order that does not depend on the number of ranks."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

HELD_OUT = 360  # of 1,797 images: a fifth, never trained on
TRAINED_ON = 1797 - HELD_OUT
SIDE = 8
# Where an image may move to: nowhere, or a pixel up, down, left or right. Diagonal moves cut off too much of 8 x 8.
MOVES = torch.tensor([[0, 0], [0, 0], [0, 0], [0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])


@dataclass(frozen=True)
class Digits:
    """Images are float32, N x 8 x 8, between -1 and 1; labels are int64."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


def load() -> Digits:
    """Loads the data set that ships with scikit-learn; the split is always the same, whatever the seed of the run."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = torch.from_numpy(raw.images).float() / 8 - 1
    labels = torch.from_numpy(raw.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1797))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    return Digits(images[train], labels[train], images[test], labels[test])


class Sampler:
    """Which images belong to a global step: a function of (seed, step) alone.

    Every rank computes the whole global batch's indices and takes its slice, so two ranks see the same batch as one,
    and a run that is resumed on another number of ranks goes on with the batch it would have had.
    """

    def __init__(self, images: int, global_batch: int, seed: int):
        if not 0 < global_batch <= images:
            raise ValueError(f"the global batch is {global_batch}, but there are {images} images: take 1..{images}")
        self.steps_per_epoch = images // global_batch
        self._images = images
        self._global_batch = global_batch
        self._seed = seed
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.long)

    def indices(self, step: int) -> torch.Tensor:
        """The global batch of `step`. The images that don't fill a batch at an epoch's end wait for another epoch."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
            self._order = torch.randperm(self._images, generator=generator)
            self._epoch = epoch
        return self._order[position * self._global_batch : (position + 1) * self._global_batch]


def slice_of(batch: torch.Tensor, rank: int, world: int) -> torch.Tensor:
    """This rank's equal part of a global batch."""
    local = len(batch) // world
    return batch[rank * local : (rank + 1) * local]


def move(images: torch.Tensor, which_move: torch.Tensor) -> torch.Tensor:
    """Moves image i by MOVES[which_move[i]] (rows, columns); what comes in is background."""
    offsets = MOVES[which_move]
    padded = F.pad(images, (1, 1, 1, 1), value=-1.0)
    line = torch.arange(SIDE)
    rows = line + 1 + offsets[:, :1]
    columns = line + 1 + offsets[:, 1:]
    image = torch.arange(len(images))
    return padded[image[:, None, None], rows[:, :, None], columns[:, None, :]]
