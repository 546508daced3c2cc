"""A barrier before the clock starts, without the backend that is measured."""

import mmap
import os
from pathlib import Path


class SharedBarrier:
    """A barrier in a file that all ranks map: a byte for each rank, which counts its visits."""

    def __init__(self, path: Path, rank: int, ranks: int):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(file, 64 * ranks)
        self._places, self._rank, self._ranks, self._visit = mmap.mmap(file, 64 * ranks), rank, ranks, 0
        os.close(file)

    def wait(self) -> None:
        self._visit = (self._visit + 1) % 256
        self._places[64 * self._rank] = self._visit
        ahead = (self._visit + 1) % 256  # whoever is quicker may be at the next visit already
        for other in range(self._ranks):
            while self._places[64 * other] not in (self._visit, ahead):
                os.sched_yield()
