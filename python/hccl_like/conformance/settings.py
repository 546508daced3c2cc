"""What the user asked for. Set by the command before the zygotes are forked, read by everything below it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Settings:
    backend: str = "hccl-like"
    device: str = "cpu"
    world_size: int = 4
    suites: list[str] = field(default_factory=lambda: ["distributed"])
    # A checkout of PyTorch, of whose files suites are the names.
    checkout: Path | None = None
    patterns: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    # Ids to run and no others; None: all of them.
    only: set[str] | None = None
    timeout: float = 120.0
    # How long the other ranks get once one of them died, so that they can say what they saw.
    grace: float = 5.0
    jobs: int = 1
    fail_fast: bool = False
    include_disabled: bool = False
    profiling: bool = True
    list_only: bool = False


current = Settings()
